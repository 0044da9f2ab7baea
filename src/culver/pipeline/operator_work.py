"""Records of what the operators did, measured where they run.

A record travels with its result: in memory, or in the header of the notification file. So whoever takes the result
counts it, once, and no record needs a way of its own to the site. Imports nothing heavy: every process of Spark needs
it.
"""

import os
import socket
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace


class SchemeWork(NamedTuple):
    """The work of the operator M of one scheme, other than the columnar one, on one block."""

    scheme: str
    pairs: int
    seconds: float


class SetWork(NamedTuple):
    """The work of M in one set of a slice on one block."""

    set: int
    sent: int  # events
    seconds: float


class SliceWork(Struct, frozen=True):
    """The work for one slice on one block. Times are wall-clock seconds in which a thread worked. Work that serves
    several slices at once, such as a read or a join, is divided evenly among them.

    It is a struct, not a dataclass, because there may be one for every few events, and another with the join."""

    slice: int
    events: int  # that the access point looked at for it
    sent: int  # events that it got to match, out of those
    pairs: int  # (event, registration) that it found and grouped
    ap_seconds: float  # reading and routing
    m_seconds: float
    ep_seconds: float  # grouping and joining
    worker: str  # host:pid
    files: int = 0  # finished by the worker since its last record, because a file cannot report itself
    written_bytes: int = 0
    write_seconds: float = 0.0  # until they were on disk
    # The part of `pairs` and `m_seconds` that is not the columnar scheme's.
    schemes: tuple[SchemeWork, ...] = ()
    division: str = ""  # identifies the placement that numbers the sets
    sets: tuple[SetWork, ...] = ()  # those that got events, where the index is divided


class MatchMeter:
    """Adds up the matching of one slice on one block, set by set."""

    __slots__ = ("_sets", "seconds", "sent")

    def __init__(self) -> None:
        self.sent = 0  # events that the slice got, each once, for one set or for several
        self.seconds = 0.0  # in all sets
        self._sets: dict[int, tuple[int, float]] = {}

    def add(self, number: int, events: int, seconds: float) -> None:
        """Count work in a set, with events that were not counted there before."""
        before = self._sets.get(number, (0, 0.0))
        self._sets[number] = before[0] + events, before[1] + seconds
        self.seconds += seconds

    def sets(self) -> tuple[SetWork, ...]:
        return tuple(SetWork(number, *done) for number, done in sorted(self._sets.items()))


class WrittenFiles:
    """The files that a worker has written and not reported yet. Not thread-safe."""

    def __init__(self) -> None:
        self._files: list[tuple[int, float]] = []

    def add(self, size: int, seconds: float) -> None:
        self._files.append((size, seconds))

    def tell(self, work: tuple[SliceWork, ...]) -> tuple[SliceWork, ...]:
        """The records, the first of which also reports what was written since the last call."""
        if not work or not self._files:
            return work
        sizes, seconds = zip(*self._files, strict=True)
        self._files = []
        first = replace(
            work[0],
            files=work[0].files + len(sizes),
            written_bytes=work[0].written_bytes + sum(sizes),
            write_seconds=work[0].write_seconds + sum(seconds),
        )
        return (first, *work[1:])


def with_join_time(work: tuple[SliceWork, ...], ep_seconds: float) -> tuple[SliceWork, ...]:
    """The records, each with an even share of the time of a join."""
    share = ep_seconds / max(1, len(work))
    return tuple([replace(each, ep_seconds=each.ep_seconds + share) for each in work])


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
