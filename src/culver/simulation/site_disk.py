"""The disk of a simulated site: what outlives its process."""

from bisect import bisect_right
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

from culver.matching import EncodedPredicate


class LoggedEvent(NamedTuple):
    """An event of a site's log: its number in the pool of events, and where it comes from, if from elsewhere."""

    number: int
    origin: str | None = None
    offset: int = -1


@dataclass(slots=True)
class SiteMailbox:
    """The offsets that a site must get, ascending, and how far it has them. A filter is in effect from `since` on,
    and the first one was from `begun` on."""

    predicate: EncodedPredicate
    since: int
    acknowledged: int
    begun: int
    offsets: list[int] = field(default_factory=list)


@dataclass(slots=True)
class SiteDisk:
    """Survives a crash, except for events from `synced` on. `skipped`, `promised`, `floors` and `given_anew` are what
    production has in its received file."""

    identity: bytes
    log: list[LoggedEvent] = field(default_factory=list)
    synced: int = 0
    mailboxes: dict[str, SiteMailbox] = field(default_factory=dict)
    subscriptions: set[int] = field(default_factory=set)
    skipped: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    given_anew: int | None = None

    def positions(self) -> dict[str, int]:
        """The positions that the log has reached in the logs of other sites."""
        reached = dict(self.skipped)
        for event in self.log:
            if event.origin is not None:
                reached[event.origin] = max(event.offset + 1, reached.get(event.origin, 0))
        return reached

    def lose_unsynced(self) -> None:
        """Does what a power cut does."""
        del self.log[self.synced :]
        for mailbox in self.mailboxes.values():
            del mailbox.offsets[bisect_right(mailbox.offsets, self.synced - 1) :]

    def renew(self, identity: bytes, given_anew: int) -> None:
        """Does what a site does that has left the overlay."""
        self.identity = identity
        self.given_anew = given_anew if self.given_anew is None else min(given_anew, self.given_anew)
        self.mailboxes.clear()
        self.floors.clear()

    def copy(self) -> "SiteDisk":
        """A backup of this moment."""
        copied = deepcopy(self)
        copied.lose_unsynced()
        return copied
