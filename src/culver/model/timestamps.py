"""Timestamps as text: RFC 3339 with an offset, kept as whole microseconds since 1970 in UTC.

Digits beyond microseconds are cut off, in events and filters alike, because many producers write
nanoseconds. A time without an offset is refused: nobody can say which moment it is.
"""

import re
from datetime import UTC, datetime, timedelta

from culver.model.values import Timestamp

_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000
EARLIEST = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
LATEST = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
_SHAPE = "such as 2026-01-01T00:00:00Z or 2026-01-01T00:00:00.5+02:00"


def parse_timestamp(text: str) -> Timestamp:
    """The moment that `text` names. Raises ValueError with a sentence that says what is wrong."""
    microseconds = _quickly(text)
    return Timestamp(_carefully(text) if microseconds is None else microseconds)


def _quickly(text: str) -> int | None:
    """What `_carefully` returns, where `text` has the form that most producers write: 2026-01-01T00:00:00Z, with or
    without a fraction. None for any other, and for what is wrong.

    Python reads more than RFC 3339 allows: other separators, weeks, offsets of hours only, anything after six digits
    of fraction, and from some version on the hour 24. None of it passes the two tests."""
    if text[4:17:3] != "--T::" or text[11:13] == "24" or not text.isascii():
        return None
    rest = text[19:]
    if rest != "Z" and not (rest[:1] == "." and rest[-1:] == "Z" and rest[1:-1].isdigit()):
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        return None
    return since.days * _DAY + since.seconds * 1_000_000 + since.microseconds


def _carefully(text: str) -> int:
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not a timestamp: write RFC 3339, {_SHAPE}")
    year, month, day, hour, minute, second, fraction, zulu, sign, offset_hour, offset_minute = match.groups()
    if zulu is None and sign is None:
        raise ValueError("a timestamp without an offset names no moment: end it with Z or with +hh:mm")
    if second == "60":
        raise ValueError("leap seconds (:60) are not supported")
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError as exc:
        raise ValueError(f"not a timestamp: {exc}") from None
    since = moment - _EPOCH
    microseconds = since.days * _DAY + since.seconds * 1_000_000
    if fraction is not None:
        microseconds += int(fraction[:6].ljust(6, "0"))
    if sign is not None:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            raise ValueError("not a timestamp: the offset must lie between -23:59 and +23:59")
        offset = (int(offset_hour) * 60 + int(offset_minute)) * 60_000_000
        microseconds += -offset if sign == "+" else offset
    if not EARLIEST <= microseconds <= LATEST:
        raise ValueError("a timestamp must lie in the years 0001 to 9999 of UTC")
    return microseconds


def format_timestamp(timestamp: Timestamp) -> str:
    """`timestamp` in UTC, with six digits of fraction where it has one: 2026-01-01T00:00:00.250000Z."""
    moment = _EPOCH + timedelta(microseconds=timestamp.microseconds)
    return moment.replace(tzinfo=None).isoformat() + "Z"
