"""Finds where a log ends after a crash, and tells a torn tail from damage.

A crash may leave any part of the last group on disk, because its pages are written in no order. So the first record
that is not intact ends the log, and its group goes with it, unless an intact record of a later group follows: groups
are written one after the other, each durable before the next, so the bad record was once acknowledged, and cutting it
would break that promise. Damage to the very last group cannot be told from a torn tail; it is cut, and the cut is
logged. Zeros alone are no group but preallocated space.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from culver.log.files.log_segment import (
    HEADER,
    BadRecord,
    Record,
    SegmentHeader,
    corrupt,
    find_later_group,
    walk,
)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the last whole group, which starts at `group_position`. Everything behind `position` is to be cut:
    preallocated zeros, and with `torn` also a part of a group."""

    position: int
    offset: int
    received_us: int
    group_position: int
    torn: bool


def find_tail(descriptor: int, path: Path, header: SegmentHeader) -> tuple[Tail, list[Record]]:
    """Scan the last segment; returns its tail and its records. Raises StorageCorrupt for damage."""
    records: list[Record] = []
    whole = 0  # the number of records that belong to whole groups
    try:
        for record, _ in walk(descriptor, header, HEADER.size, header.first_offset):
            records.append(record)
            if record.after == 0:
                whole = len(records)
    except BadRecord:
        pass
    position, offset = HEADER.size, header.first_offset
    if records:
        position, offset = records[-1].end_position, records[-1].end_offset
    rest = _read_from(descriptor, position)
    if find_later_group(rest, header, position, offset) is not None:
        raise corrupt(path, position, "a record fails its checksum, and acknowledged ones follow it")
    torn = whole < len(records) or bool(rest.strip(b"\0"))
    del records[whole:]
    if not records:
        return Tail(HEADER.size, header.first_offset, header.received_us, HEADER.size, torn), []
    last = records[-1]
    group = next(record for record in reversed(records) if record.before == 0)
    return Tail(last.end_position, last.end_offset, last.received_us, group.position, torn), records


def _read_from(descriptor: int, position: int) -> bytes:
    parts = []
    while part := os.pread(descriptor, 16 * 1024 * 1024, position):
        parts.append(part)
        position += len(part)
    return b"".join(parts)
