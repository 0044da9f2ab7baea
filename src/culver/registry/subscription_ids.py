"""Names of subscriptions: which ones a user may choose, and how the registry makes its own."""

import base64
import os
import re

from culver.errors import InvalidRequest
from culver.model import LIVE_PREFIX, SET_NAME, SUBSCRIPTION_ID

_DURABLE_PREFIX = "sub-"
_RANDOM_CHARACTERS = 12  # of base32: 60 bits, out of 8 random bytes each
PLACES = 10**18
"""Members of a set are numbered below this: a number has 18 digits at most."""

_MEMBER = re.compile(r"(.+)\.(0|[1-9][0-9]{0,17})", re.ASCII)


def check_id(text: str, *, durable: bool) -> str:
    """`text`, where a subscription of that kind may have it as id; it then needs no escaping in a URL.
    Raises InvalidRequest."""
    if not re.fullmatch(SUBSCRIPTION_ID, text):
        raise InvalidRequest(
            "a subscription id has 1 to 128 characters, letters, digits and . _ ~ - only, and starts with "
            f"a letter or digit; it was {text[:200]!r}",
            field="id",
        )
    if durable == text.startswith(LIVE_PREFIX):
        raise InvalidRequest(
            f"ids that start with {LIVE_PREFIX!r} are for live subscriptions, and only those; "
            f"{text!r} cannot be chosen",
            field="id",
        )
    return text


def new_ids(count: int, *, durable: bool) -> list[str]:
    """Random ids, unlike any other for all practical purposes."""
    prefix = _DURABLE_PREFIX if durable else LIVE_PREFIX
    entropy = os.urandom(8 * count)
    return [
        prefix + base64.b32encode(entropy[at : at + 8])[:_RANDOM_CHARACTERS].decode().lower()
        for at in range(0, len(entropy), 8)
    ]


def check_set_name(text: str) -> str:
    """`text`, where a set may have it as name. Raises InvalidRequest."""
    if not re.fullmatch(SET_NAME, text):
        raise InvalidRequest(
            "the name of a set has 1 to 100 characters, letters, digits and . _ ~ - only, starts with a "
            f"letter or digit, and not with {LIVE_PREFIX!r}; it was {text[:200]!r}",
            field="name",
        )
    return text


def split_member(subscription: str) -> tuple[str, int] | None:
    """The set's name and the number of an id that is made as a member's is; None for any other id."""
    match = _MEMBER.fullmatch(subscription)
    return None if match is None else (match[1], int(match[2]))
