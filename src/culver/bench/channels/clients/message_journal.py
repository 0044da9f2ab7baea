"""The journals of numbered clients, and the account that is drawn from them: what was lost, doubled or out of order.

A journal is a file of fixed records, appended several times a second, so that it tells what a killed process did:

    kind u8 | channel u16 | publisher u64 | number u64 | last u64 | began f64 | ended f64

``SENT`` and ``FAILED`` are publications, from the call to its answer; ``RECEIVED`` is a message, ``LOST`` a gap of
the numbers ``number`` to ``last``, ``JOINED`` a confirmed subscription, ``ERROR`` an exception of the client library.
``MARK`` ends everything that is written at once: all that happened before it is in the journal. ``CLOSED`` is the
last record of a client that ended in an orderly way. Times are of the machine's monotonic clock.
"""

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from struct import Struct

import numpy as np
from numpy.typing import NDArray

_RECORD = Struct("<BHQQQdd")
_LAYOUT = np.dtype(
    [
        ("kind", "u1"),
        ("channel", "<u2"),
        ("publisher", "<u8"),
        ("number", "<u8"),
        ("last", "<u8"),
        ("began", "<f8"),
        ("ended", "<f8"),
    ]
)

#: A subscription misses nothing unnoticed from this time after its confirmation on.
STEADY_SECONDS = 3.5
#: Within this time every loss is reported.
REPORT_SECONDS = 4.0
#: What a publisher has published so shortly before it was killed may be lost without anybody knowing.
UNTOLD_SECONDS = 1.5


class JournalKind(IntEnum):
    SENT = 1
    FAILED = 2
    RECEIVED = 3
    LOST = 4
    JOINED = 5
    ERROR = 6
    MARK = 7
    CLOSED = 8


class JournalWriter:
    """Appends to a journal. ``flush`` makes what was added so far outlive this process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._waiting = bytearray()

    def add(
        self,
        kind: JournalKind,
        channel: int = 0,
        publisher: int = 0,
        number: int = 0,
        last: int = 0,
        began: float = 0.0,
        ended: float = 0.0,
    ) -> None:
        self._waiting += _RECORD.pack(kind, channel, publisher, number, last, began, ended)

    def flush(self) -> None:
        self.add(JournalKind.MARK, began=time.monotonic())
        os.write(self._file, self._waiting)
        self._waiting.clear()

    def close(self, *, orderly: bool = True) -> None:
        """Says that the client has ended in an orderly way, unless it has not; what was not flushed is then lost."""
        if orderly:
            self.add(JournalKind.CLOSED)
            self.flush()
        os.close(self._file)


@dataclass(slots=True)
class MessageAccount:
    """Messages are counted once for each subscriber that is due to get them: ``due`` ones were published with success
    while it was steady. ``reported`` is the part of ``lost`` of which a gap tells, ``wrongly_reported`` what a gap
    tells of and was received all the same."""

    published: int = 0
    failed: int = 0
    due: int = 0
    lost: int = 0
    reported: int = 0
    wrongly_reported: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    errors: int = 0

    @property
    def silently_lost(self) -> int:
        return self.lost - self.reported

    def __str__(self) -> str:
        return ", ".join(
            f"{field.name.replace('_', ' ')} {getattr(self, field.name):,}" for field in fields(self)
        )


def draw_account(publishers: Sequence[Path], subscribers: Sequence[Path]) -> MessageAccount:
    """Compares the journals of all publishers with those of all subscribers. Each is of one life of one client."""
    account = MessageAccount()
    sent: dict[tuple[int, int], NDArray[np.void]] = {}
    tellable: dict[tuple[int, int], float] = {}
    for path in publishers:
        journal = _read(path)
        known_until = np.inf if _closed(journal) else _horizon(journal) - UNTOLD_SECONDS
        account.published += int(np.count_nonzero(journal["kind"] == JournalKind.SENT))
        account.failed += int(np.count_nonzero(journal["kind"] == JournalKind.FAILED))
        account.errors += int(np.count_nonzero(journal["kind"] == JournalKind.ERROR))
        for stream, records in _streams(journal, JournalKind.SENT).items():
            sent[stream], tellable[stream] = records, known_until
    for path in subscribers:
        journal = _read(path)
        account.errors += int(np.count_nonzero(journal["kind"] == JournalKind.ERROR))
        received = _streams(journal, JournalKind.RECEIVED)
        gaps = _streams(journal, JournalKind.LOST)
        steady_from = _steady_from(journal)
        reported_until = _horizon(journal) - REPORT_SECONDS
        for numbers in (records["number"] for records in received.values()):
            account.duplicated += numbers.size - np.unique(numbers).size
            account.out_of_order += _out_of_order(numbers)
        for stream, records in sent.items():
            until = min(reported_until, tellable[stream])
            is_due = (records["began"] >= steady_from[stream[1]]) & (records["ended"] <= until)
            due = records["number"][is_due]
            got = received[stream]["number"] if stream in received else due[:0]
            told = _told(gaps[stream]) if stream in gaps else due[:0]
            lost = np.setdiff1d(due, got)
            account.due += due.size
            account.lost += lost.size
            account.reported += int(np.count_nonzero(np.isin(lost, told)))
            account.wrongly_reported += int(np.count_nonzero(np.isin(told, got)))
    return account


def _read(path: Path) -> NDArray[np.void]:
    """A process that is killed while it writes may leave a part of a record, which does not count."""
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data, _LAYOUT, len(data) // _LAYOUT.itemsize)


def _closed(journal: NDArray[np.void]) -> bool:
    return bool((journal["kind"] == JournalKind.CLOSED).any())


def _horizon(journal: NDArray[np.void]) -> float:
    """The last moment of which the journal tells."""
    marks = journal["began"][journal["kind"] == JournalKind.MARK]
    return float(marks[-1]) if marks.size else -np.inf


def _streams(journal: NDArray[np.void], kind: JournalKind) -> dict[tuple[int, int], NDArray[np.void]]:
    """The records of a kind by publisher and channel, in their order."""
    chosen = journal[journal["kind"] == kind]
    order = np.lexsort((chosen["channel"], chosen["publisher"]))
    chosen = chosen[order]
    keys = chosen[["publisher", "channel"]]
    starts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    parts = np.split(chosen, starts) if chosen.size else []
    return {(int(part[0]["publisher"]), int(part[0]["channel"])): part for part in parts}


def _steady_from(journal: NDArray[np.void]) -> defaultdict[int, float]:
    steady: defaultdict[int, float] = defaultdict(lambda: np.inf)
    for record in journal[journal["kind"] == JournalKind.JOINED]:
        steady[int(record["channel"])] = min(
            steady[int(record["channel"])], float(record["began"]) + STEADY_SECONDS
        )
    return steady


def _told(gaps: NDArray[np.void]) -> NDArray[np.uint64]:
    return np.concatenate([np.arange(gap["number"], gap["last"] + 1, dtype=np.uint64) for gap in gaps])


def _out_of_order(numbers: NDArray[np.uint64]) -> int:
    """How many came after a higher one. Copies do not count."""
    first = np.sort(np.unique(numbers, return_index=True)[1])
    once = numbers[first]
    return int(np.count_nonzero(once[1:] < np.maximum.accumulate(once)[:-1]))
