r"""The messages between a site and one of its gateway processes, in order, over one socket.

    site                                          gateway
    Welcome                your share, the files
    RegistrationsChanged   \                      Reached         how many of those it has applied, its frontier
    RangeAccepted           >  as they happen     GatewayReport   once a second: needs, what has ended, figures
    RangesMerged           /
    PeerRequest, PeerAnswer                       PeerRequest, PeerAnswer       both ways; see `peer`

The site announces changes in the order in which they take effect: a registration before the first file that may have
a row for it. The answer to a request follows all announcements that it rests on.
"""

from dataclasses import dataclass, field

from culver.config import Settings
from culver.delivery import FileRange, FinishedRegistrations, Share
from culver.registry import Block, Registration


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first message. `identity` is the registry's; `ports` are those of all gateways, by number; `ranges` are the
    notification files; `now_us` is the time of the site's clock."""

    settings: Settings
    identity: bytes
    share: Share
    ports: tuple[int, ...]
    ranges: tuple[FileRange, ...]
    frontier: int
    log_address: str
    next_offset: int
    log_level: int
    now_us: int


@dataclass(frozen=True, slots=True)
class RegistrationsChanged:
    registrations: tuple[Registration | Block, ...]


@dataclass(frozen=True, slots=True)
class RangeAccepted:
    """The file of this range is complete and continues the sequence; the log ends at `next_offset`."""

    start: int
    end: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class RangesMerged:
    """The file of this range replaces those between; with `pruned`, it leaves out rows that nobody wants."""

    start: int
    end: int
    pruned: bool


Announcement = RegistrationsChanged | RangeAccepted | RangesMerged


@dataclass(frozen=True, slots=True)
class Reached:
    """The gateway has applied so many announcements and accepted all offsets below the frontier."""

    announcements: int
    frontier: int


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """`needed_from` is the lowest offset that must stay, and never decreases; the rest describes this moment."""

    needed_from: int = 0
    finished: FinishedRegistrations = field(default_factory=FinishedRegistrations)
    subscriptions: int = 0
    sessions: int = 0
    pending: int = 0
    deliveries_sent: int = 0
