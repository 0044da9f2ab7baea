"""Positions in a group of subscriptions: what a client of HTTP keeps between two requests.

    17-3f2a9c01     offset 17, and a mark: which subscriptions the group has, and which gateway's share of them

A single subscription needs no mark, because all of its events come in the order of their offsets: whoever was handed
offset 17 was handed everything before. A group keeps that order, too, but only for those who are in it. If a client
changes the list that it asks for, or the site starts with another number of gateways, subscriptions come in whose
events below 17 the client was never handed. Over a WebSocket nothing has to be compared, since a group lasts as long
as its connection. Over HTTP the mark tells: a position with another mark neither acknowledges nor skips anything.

A position without a mark is an offset for which the client vouches.
"""

import re
from hashlib import blake2b

import msgspec

from culver.delivery import Selection, Share
from culver.errors import Conflict, InvalidRequest
from culver.gateway.api.request_reader import MAX_OFFSET
from culver.model import GROUP_POSITION


class GroupMark:
    """The mark of a group at one gateway: the same for the same selection and share, also after a restart."""

    def __init__(self, selection: Selection, share: Share) -> None:
        members = sorted(selection.subscriptions or ())
        parts = (selection.set_name, selection.prefix, members, share.number, share.gateways)
        self._text = blake2b(msgspec.json.encode(parts), digest_size=4).hexdigest()

    def position(self, offset: int) -> str:
        return f"{offset}-{self._text}"

    def offset_of(self, position: str, field: str) -> int:
        """The offset of a position. Raises InvalidRequest, and Conflict for a position of another group."""
        offset, mark = read_position(position, field)
        if mark not in (None, self._text):
            raise Conflict(
                f"position {position!r} is that of another group: its list has changed, or the site's number of "
                "gateways; receive again without it, from what is not acknowledged on",
                field=field,
            )
        return offset


def read_position(text: str, field: str) -> tuple[int, str | None]:
    """Raises InvalidRequest."""
    offset, _, mark = text.partition("-") if re.fullmatch(GROUP_POSITION, text) else ("", "", "")
    if not offset or int(offset) > MAX_OFFSET:
        raise InvalidRequest(f"{text[:100]!r} is not a position, which looks like 17-3f2a9c01", field=field)
    return int(offset), mark or None
