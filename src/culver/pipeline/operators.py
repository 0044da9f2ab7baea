"""The three operators as pure functions on Arrow batches, the same in every engine.

StreamHub, section 3.2: the access point (AP) sends each event to the slices that may match it, matching (M)
finds the subscriptions, the exit point (EP) joins the partial results and groups them for those who deliver.
There is one slice so far: it holds every registration, and AP sends it every event.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from culver.errors import StorageCorrupt
from culver.matching.filter import Matches
from culver.matching.index import Index
from culver.model import batch as batches
from culver.pipeline.notifications import Notifications


def access_point(start: int, end: int, pieces: Iterable[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch:
    """The events of `[start, end)` as one batch, from the pieces in which the log holds them.

    Raises StorageCorrupt where a piece is missing: an event must never be passed over in silence."""
    parts: list[pa.RecordBatch] = []
    expected = start
    for offset, piece in pieces:
        if offset != expected:
            break
        parts.append(piece)
        expected += piece.num_rows
    if expected != end:
        raise StorageCorrupt(
            f"the log ends or breaks at offset {expected}, before {end}, which was acknowledged"
        )
    return batches.concat(parts)


def match(index: Index, batch: pa.RecordBatch, start: int) -> Matches:
    """The registrations that each event satisfies and in whose time it falls."""
    return index.match(batch, start)


def exit_point(start: int, index_version: int, batch: pa.RecordBatch, matches: Matches) -> Notifications:
    """The matches of a batch, grouped by registration."""
    rows = np.repeat(np.arange(batch.num_rows, dtype=np.uint32), np.diff(matches.offsets))
    order = np.argsort(matches.numbers, kind="stable")
    numbers, first = np.unique(matches.numbers[order], return_index=True)
    return Notifications(
        start=start,
        end=start + batch.num_rows,
        index_version=index_version,
        numbers=numbers,
        bounds=np.append(first, len(order)).astype(np.int64),
        rows=rows[order],
        sizes=batches.payload_sizes(batch),
    )
