"""The names that channels can have."""

from culver.channels.core.reserved_names import RESERVED_PREFIX
from culver.errors import InvalidRequest, TooLarge

MOST_CHANNEL_BYTES = 4_096


def check_channel_name(name: bytes, field: str = "channel") -> bytes:
    """
    :raises InvalidRequest: no channel can have this name.
    :raises TooLarge: the name is too long.
    """
    if not name:
        raise InvalidRequest("a channel's name must not be empty", field=field)
    if len(name) > MOST_CHANNEL_BYTES:
        raise TooLarge(
            f"a channel's name has at most {MOST_CHANNEL_BYTES:,} bytes, not {len(name):,}",
            field=field,
            limit=MOST_CHANNEL_BYTES,
        )
    if name.startswith(RESERVED_PREFIX):
        raise InvalidRequest(f"names that begin with {RESERVED_PREFIX.decode()} are reserved", field=field)
    return name
