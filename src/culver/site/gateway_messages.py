"""What the site and one of its gateways tell one another, in order, over one socket.

    site                                          gateway
    Welcome    who you are, the files there are
    Registered Accepted Merged   as it happens    Reached    how many of those are worked off, how far it has come
                                                  Report     once a second: needs, what has ended, figures
    Request / Answer                              Request / Answer      both ways; see `peer`

What is announced comes in the order in which it took effect: a registration before the first file that may have a row
for it. Whatever a gateway asks is answered behind all announcements that the answer rests on.
"""

from dataclasses import dataclass, field

from culver.config import Settings
from culver.delivery import FileRange, Finished, Share
from culver.registry import Block, Registration


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first message. `ports` are those of all gateways, by number."""

    settings: Settings
    share: Share
    ports: tuple[int, ...]
    ranges: tuple[FileRange, ...]
    frontier: int
    log_address: str
    next_offset: int
    log_level: int


@dataclass(frozen=True, slots=True)
class Registered:
    """Registrations that began, changed or ended."""

    registrations: tuple[Registration | Block, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The file of this range is complete and continues the sequence; the log ends at `next_offset`."""

    start: int
    end: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Merged:
    """The file of this range has taken the place of those between; with `pruned`, without the rows that nobody
    wants any more."""

    start: int
    end: int
    pruned: bool


Announcement = Registered | Accepted | Merged


@dataclass(frozen=True, slots=True)
class Reached:
    """So many announcements are worked off; all offsets below the frontier are accepted."""

    announcements: int
    frontier: int


@dataclass(frozen=True, slots=True)
class Report:
    """`needed_from` is the lowest offset that must stay, and never goes back; the rest is as of now."""

    needed_from: int = 0
    finished: Finished = field(default_factory=Finished)
    subscriptions: int = 0
    sessions: int = 0
    pending: int = 0
    deliveries_sent: int = 0
