"""What the operators did, measured where they run.

A record travels with the result that it is about: in memory, or in the header of the notification file. So it is
counted once, by whoever takes the result, and nothing has to reach the site by a way of its own. Imports nothing
heavy: every process of Spark needs it.
"""

import os
import socket
from dataclasses import dataclass, replace
from typing import NamedTuple


class SchemeWork(NamedTuple):
    """What the operator M of one scheme, other than the columnar, did on one block."""

    scheme: str
    pairs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """What was done for one slice on one block. Times are seconds of the clock in which a thread was at it. What
    serves several slices at once, such as a read or a join, is divided evenly among them."""

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


class Meter:
    """Adds up the routing and matching of one slice, tile by tile."""

    __slots__ = ("m_seconds", "route_seconds", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.route_seconds = 0.0
        self.m_seconds = 0.0

    def add(self, sent: int, route_seconds: float, m_seconds: float) -> None:
        self.sent += sent
        self.route_seconds += route_seconds
        self.m_seconds += m_seconds


class Written:
    """What a worker has written and not told yet. Not thread-safe."""

    def __init__(self) -> None:
        self._files = self._bytes = 0
        self._seconds = 0.0

    def add(self, size: int, seconds: float) -> None:
        self._files += 1
        self._bytes += size
        self._seconds += seconds

    def tell(self, work: tuple[Work, ...]) -> tuple[Work, ...]:
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


def shared(work: tuple[Work, ...], ep_seconds: float) -> tuple[Work, ...]:
    """The records with the time of a join, a share for each."""
    return tuple(replace(each, ep_seconds=each.ep_seconds + ep_seconds / len(work)) for each in work)


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
