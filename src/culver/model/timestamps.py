"""Timestamps as text: RFC 3339 with an offset, kept as whole microseconds since 1970 in UTC.

Digits beyond microseconds are cut off, in events and filters alike, because many producers write nanoseconds. A time
without an offset is refused, because it names no moment.
"""

import re
from datetime import UTC, datetime, timedelta

from culver.model.values import Timestamp

# Python's own reader takes more than RFC 3339 allows: weeks, other separators, offsets of hours only.
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([0-9]{2}):[0-9]{2}:([0-9]{2})(?:\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000
# 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999Z
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
_SHAPE = "such as 2026-01-01T00:00:00Z or 2026-01-01T00:00:00.5+02:00"


def parse_timestamp(text: str) -> Timestamp:
    """The moment that `text` names. Raises ValueError with a sentence that says what is wrong."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not a timestamp: write RFC 3339, {_SHAPE}")
    hour, second, offset = match.groups()
    if offset is None:
        raise ValueError("a timestamp without an offset names no moment: end it with Z or with +hh:mm")
    if second == "60":
        raise ValueError("leap seconds (:60) are not supported")
    if hour == "24":
        raise ValueError("not a timestamp: hour must be in 0..23")
    if offset[1:3] > "23" or offset[4:] > "59":
        raise ValueError("not a timestamp: the offset must lie between -23:59 and +23:59")
    try:
        since = datetime.fromisoformat(text.upper()) - _EPOCH
    except ValueError as exc:
        raise ValueError(f"not a timestamp: {exc}") from None
    microseconds = since.days * _DAY + since.seconds * 1_000_000 + since.microseconds
    if not EARLIEST <= microseconds <= LATEST:
        raise ValueError("a timestamp must lie in the years 0001 to 9999 of UTC")
    return Timestamp(microseconds)


def format_timestamp(timestamp: Timestamp) -> str:
    """`timestamp` in UTC, with six digits of fraction where it has one: 2026-01-01T00:00:00.250000Z."""
    moment = _EPOCH + timedelta(microseconds=timestamp.microseconds)
    return moment.replace(tzinfo=None).isoformat() + "Z"
