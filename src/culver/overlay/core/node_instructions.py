"""The instructions of an overlay node. The shell around it, or a simulation, carries them out in their
order."""

from dataclasses import dataclass

from culver.matching import EncodedPredicate
from culver.overlay.core.overlay_messages import OverlayMessage


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message on a link. Packets may be dropped where the link's queue is full; everything else is urgent."""

    link: int
    message: OverlayMessage


@dataclass(frozen=True, slots=True)
class Register:
    """Make this the predicate of a site's mailbox, and answer with `OverlayNode.registered`."""

    site: str
    version: int
    predicate: EncodedPredicate


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove the mailbox of a site that is no more."""

    site: str


@dataclass(frozen=True, slots=True)
class Append:
    """Append events of another site, (offset there, payload), to the log, and answer with `OverlayNode.appended`.
    `end` is the position that this site has reached in the origin's log then."""

    origin: str
    end: int
    events: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class MoveCursor:
    """A site has everything up to and including `offset` of its mailbox."""

    site: str
    offset: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """Offer a site's mailbox again, behind offset `after`. What was read before must not be offered any more."""

    site: str
    after: int


@dataclass(frozen=True, slots=True)
class AnnounceGap:
    """Events of another site with offsets in `[start, end)` may be missing here. Store it: the stream goes on at
    `end`."""

    origin: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class StoreFloors:
    """Store `OverlayNode.floors` soon: a site has been met, and its old one would be wrong."""


@dataclass(frozen=True, slots=True)
class LeaveOverlay:
    """The site runs on an older copy of its data directory, and has given offsets from `given_anew` on a second time.
    Close all links, carry out nothing more of this node, and begin anew under a new key."""

    given_anew: int
    reason: str


@dataclass(frozen=True, slots=True)
class HearGossip:
    """Hand a message of the membership over that another site has sent to this one."""

    source: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """Something was refused or dropped. `source` is who caused it, and `reason` why; both are few. An operator must
    act on a `severe` one."""

    source: str
    reason: str
    severe: bool = False


@dataclass(frozen=True, slots=True)
class CloseLink:
    link: int
    reason: str


Instruction = (
    SendMessage
    | Register
    | Unregister
    | Append
    | MoveCursor
    | Rewind
    | AnnounceGap
    | StoreFloors
    | LeaveOverlay
    | HearGossip
    | Refuse
    | CloseLink
)
