"""What the operators did, measured where they run.

A record travels with the result that it is about: in memory, or in the header of the notification file. So it is
counted once, by whoever takes the result, and nothing has to reach the site by a way of its own. Imports nothing
heavy: every process of Spark needs it.
"""

import os
import socket
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace


class SchemeWork(NamedTuple):
    """What the operator M of one scheme, other than the columnar, did on one block."""

    scheme: str
    pairs: int
    seconds: float


class SetWork(NamedTuple):
    """What M did in one set of a slice on one block."""

    set: int
    sent: int  # events
    seconds: float


class SliceWork(Struct, frozen=True):
    """What was done for one slice on one block. Times are seconds of the clock in which a thread was at it. What
    serves several slices at once, such as a read or a join, is divided evenly among them.

    A struct, not a dataclass: it is made, and made again with the time of the join, for every few events."""

    slice: int
    events: int  # that the access point looked at for it
    sent: int  # of them, those that it was sent to match
    pairs: int  # of an event and a registration, found and grouped
    ap_seconds: float  # reading and routing
    m_seconds: float
    ep_seconds: float  # grouping and joining
    worker: str  # host:pid
    files: int = 0  # that the worker has finished since the record before: a file cannot tell of itself
    written_bytes: int = 0
    write_seconds: float = 0.0  # until they were on disk
    schemes: tuple[
        SchemeWork, ...
    ] = ()  # of `pairs` and `m_seconds`, the part that is not the columnar scheme's
    division: str = ""  # the placement that the sets are numbered by
    sets: tuple[SetWork, ...] = ()  # that events were sent to, where the index is divided


def members_of(work: SliceWork) -> dict[str, Any]:
    """For JSON."""
    return asdict(work)


def work_from(members: dict[str, Any]) -> SliceWork:
    """From what `members_of` and JSON have made of it."""
    schemes = tuple(SchemeWork(*each) for each in members.get("schemes", ()))
    sets = tuple(SetWork(*each) for each in members.get("sets", ()))
    return SliceWork(**{**members, "schemes": schemes, "sets": sets})


class MatchMeter:
    """Adds up the matching of one slice on one block, set by set."""

    __slots__ = ("_sets", "seconds", "sent")

    def __init__(self) -> None:
        self.sent = 0  # events that the slice got, for one set or for several
        self.seconds = 0.0  # in all sets
        self._sets: dict[int, tuple[int, float]] = {}

    def get(self, events: int) -> None:
        self.sent += events

    def add(self, number: int, events: int, seconds: float) -> None:
        """What was done in a set, with events that were not counted there before."""
        before = self._sets.get(number, (0, 0.0))
        self._sets[number] = before[0] + events, before[1] + seconds
        self.seconds += seconds

    def sets(self) -> tuple[SetWork, ...]:
        return tuple(SetWork(number, *done) for number, done in sorted(self._sets.items()))


class WrittenFiles:
    """What a worker has written and not told yet. Not thread-safe."""

    def __init__(self) -> None:
        self._files = self._bytes = 0
        self._seconds = 0.0

    def add(self, size: int, seconds: float) -> None:
        self._files += 1
        self._bytes += size
        self._seconds += seconds

    def tell(self, work: tuple[SliceWork, ...]) -> tuple[SliceWork, ...]:
        """The records, with what has been written since the last call in the first of them."""
        if not work or not self._files:
            return work
        first = replace(
            work[0],
            files=work[0].files + self._files,
            written_bytes=work[0].written_bytes + self._bytes,
            write_seconds=work[0].write_seconds + self._seconds,
        )
        self._files = self._bytes = 0
        self._seconds = 0.0
        return (first, *work[1:])


def with_join_time(work: tuple[SliceWork, ...], ep_seconds: float) -> tuple[SliceWork, ...]:
    """The records with the time of a join, a share for each."""
    share = ep_seconds / max(1, len(work))
    return tuple([replace(each, ep_seconds=each.ep_seconds + share) for each in work])


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
