"""Batches for a log in which event number n says so in its attribute `n`."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from culver.config import LogSettings
from culver.log import DamagedEvents, LogReader, ReadableLog
from culver.log.files import FileLog
from culver.log.files.log_segment import HEADER, Record, read_header, walk
from culver.model.columns.event_batch import encode
from culver.model.event import Event
from culver.sealed import SealFile

ONE_SEGMENT = LogSettings()
SMALL_SEGMENTS = LogSettings(segment_bytes=4096)


def event(number: int, padding: int = 0) -> Event:
    return Event({}, {"n": number}, b'{"n": %d}' % number + b" " * padding)


def batch(start: int, count: int = 1, received_us: int = 0, padding: int = 0) -> pa.RecordBatch:
    """Events `start` to `start + count - 1` in one batch."""
    (made,) = encode([event(start + i, padding) for i in range(count)], received_us)
    return made


def numbers(log: ReadableLog | LogReader, start: int, end: int) -> list[int]:
    """The numbers of the events in `[start, end)`, having checked that offsets go on without a hole."""
    found: list[int] = []
    for offset, part in log.read(start, end):
        assert offset == start + len(found)
        found += part.column("d:i:n").to_pylist()
    return found


class Listener:
    """A CommitObserver that passes on what it hears."""

    def __init__(
        self,
        committed: Callable[[int, Sequence[Event]], None] = lambda first, events: None,
        committing: Callable[[int, Sequence[pa.RecordBatch]], None] = lambda first, batches: None,
    ) -> None:
        self.committed = committed
        self.committing = committing


def last_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def records_of(path: Path) -> list[Record]:
    with path.open("rb") as file:
        header = read_header(file.fileno(), path)
        return [record for record, _ in walk(file.fileno(), header, HEADER.size, header.first_offset)]


def damage_record(path: Path, record: Record, kind: str = "body") -> DamagedEvents:
    """Damage a record; returns what is lost with it."""
    lost = DamagedEvents(str(path), record.position, record.offset, record.end_offset)
    with path.open("r+b") as file:
        if kind == "zeros":
            file.seek(record.position)
            file.write(bytes(record.end_position - record.position))
            return lost
        at = record.position + {"length": 3, "checksum": 4, "offset": 8, "salt": 20, "body": 60}[kind]
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ 0x40]))
    return lost


def append_unmatched(
    directory: Path, batches: Sequence[pa.RecordBatch], settings: LogSettings = ONE_SEGMENT
) -> list[int]:
    """Append batches to the log of a site that is stopped, as if it had been killed after it acknowledged them and
    before it matched them; returns where each begins."""
    with FileLog(directory, settings) as log, closing(SealFile(directory)) as seal:
        firsts = [log.append([each]) for each in batches]
        seal.write(log.next_offset)
    return firsts


def append_damaged(directory: Path, batches: Sequence[pa.RecordBatch], damaged: int) -> DamagedEvents:
    """The same, with one of the batches damaged; returns what is lost."""
    firsts = append_unmatched(directory, batches)
    path = last_segment(directory)
    [record] = [each for each in records_of(path) if each.offset == firsts[damaged]]
    return damage_record(path, record)
