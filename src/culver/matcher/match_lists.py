"""Matches with ids in place of numbers, as Arrow has them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from culver.matching import Matches

LISTS = pa.list_(pa.string())
PAIRS = pa.schema([("row", pa.int64()), ("id", pa.string())])
# Where the 32-bit offsets of Arrow's strings end.
_MOST_BYTES = 2**31 - 1
# Beside these is room for the row.
_NUMBER_BITS = 40


def in_order(matches: Matches) -> Matches:
    """The matches with the numbers of each row in ascending order, which is the order of adding."""
    # NumPy sorts one long array many times faster than each row by itself, or a compiled loop.
    rows = np.repeat(np.arange(len(matches.offsets) - 1), np.diff(matches.offsets))
    keys = rows << _NUMBER_BITS | matches.numbers
    keys.sort()
    return Matches(matches.offsets, keys & ((1 << _NUMBER_BITS) - 1))


def split(matches: Matches, ids: pa.Array) -> Iterator[Matches]:
    """Parts whose ids take less than 2^31 bytes."""
    # A row has each id once at most. Looking for the longest id takes longer than to match an event.
    if (len(matches.offsets) - 1) * ids.nbytes < _MOST_BYTES:
        yield matches
    else:
        yield from _halves(matches, pc.max(pc.binary_length(ids)).as_py() or 0)


def _halves(matches: Matches, longest: int) -> Iterator[Matches]:
    rows = len(matches.offsets) - 1
    if len(matches.numbers) * longest < _MOST_BYTES or rows == 1:
        yield matches
        return
    for begin, end in ((0, rows // 2), (rows // 2, rows)):
        offsets = matches.offsets[begin : end + 1]
        part = Matches(offsets - offsets[0], matches.numbers[offsets[0] : offsets[-1]])
        yield from _halves(part, longest)


def lists_of(matches: Matches, ids: pa.Array) -> pa.Array:
    """A list of ids for each row, of matches that `split` gave."""
    return pa.ListArray.from_arrays(pa.array(matches.offsets.astype(np.int32)), _taken(matches.numbers, ids))


def pairs_of(matches: Matches, ids: pa.Array, first_row: int) -> pa.RecordBatch:
    """A row for each match: the row of the event, and the id. Of matches that `split` gave."""
    rows = np.repeat(np.arange(first_row, first_row + len(matches.offsets) - 1), np.diff(matches.offsets))
    return pa.record_batch([pa.array(rows), _taken(matches.numbers, ids)], schema=PAIRS)


def _taken(numbers: NDArray[np.int64], ids: pa.Array) -> pa.Array:
    return pc.take(ids, pa.array(numbers), boundscheck=False).cast(pa.string())
