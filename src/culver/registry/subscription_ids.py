"""The ids of subscriptions and names of sets: which ones a user may choose, and how the registry makes its own."""

import base64
import os
import re

from culver.errors import InvalidRequest
from culver.model import LIVE_PREFIX, SET_NAME, SITE_PREFIX, SUBSCRIPTION_ID

_DURABLE_PREFIX = "sub-"
# 12 characters of base32 have 60 bits, out of 8 random bytes.
_RANDOM_CHARACTERS = 12
PLACES = 10**18
"""The places of a set's members are below this, so that they have at most 18 digits."""

_MEMBER = re.compile(r"(.+)\.(0|[1-9][0-9]{0,17})", re.ASCII)


def check_id(text: str, *, durable: bool, of_site: bool = False) -> str:
    """Return the id if a subscription of that kind may have it, unescaped in a URL; `of_site` is the mailbox of
    another site. Raises InvalidRequest."""
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
    if of_site != text.startswith(SITE_PREFIX):
        raise InvalidRequest(
            f"ids that start with {SITE_PREFIX!r} are for the mailboxes of other sites, and only those; "
            f"{text!r} cannot be chosen",
            field="id",
        )
    return text


def new_ids(count: int, *, durable: bool) -> list[str]:
    """Make random ids, which are unique for all practical purposes."""
    prefix = _DURABLE_PREFIX if durable else LIVE_PREFIX
    entropy = os.urandom(8 * count)
    return [
        prefix + base64.b32encode(entropy[at : at + 8])[:_RANDOM_CHARACTERS].decode().lower()
        for at in range(0, len(entropy), 8)
    ]


def check_set_name(text: str, field: str = "name") -> str:
    """Check that a set may have this name; returns the name. Raises InvalidRequest."""
    if not re.fullmatch(SET_NAME, text):
        raise InvalidRequest(
            "the name of a set has 1 to 100 characters, letters, digits and . _ ~ - only, starts with a "
            f"letter or digit, and not with {LIVE_PREFIX!r} or {SITE_PREFIX!r}; it was {text[:200]!r}",
            field=field,
        )
    return text


def split_member(subscription: str) -> tuple[str, int] | None:
    """Split an id of the form NAME.PLACE; None for any other id."""
    match = _MEMBER.fullmatch(subscription)
    return None if match is None else (match[1], int(match[2]))
