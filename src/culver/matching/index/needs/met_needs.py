"""The needs that each row of a batch meets, as one sparse list.

`ColumnNeeds` has those of one column, by the distinct values there:

    rows    0  1  2  3          item i belongs to row rows[i]
    codes   1  0 -1  1          and has the value codes[i]; -1: none
    start   0     2     3       value c meets needs[start[c] : start[c + 1]]
    needs   7  9  4

`gather` puts columns together in two passes, counting and filling, so the cost is that of the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from culver.jit import Integers, Shorts, compiled
from culver.matching.index.compile.clause_table import run_starts


@dataclass(frozen=True, slots=True)
class MetNeeds:
    """Row i meets the needs `needs[start[i] : start[i + 1]]`, distinct, in no particular order."""

    start: Integers
    needs: Shorts


class ColumnNeeds(NamedTuple):
    """Some needs of some rows, as drawn above. No two of them, and no two items of a row, share a need."""

    rows: Shorts
    codes: Shorts
    start: Integers
    needs: Shorts


def gather(parts: Sequence[ColumnNeeds], rows: int) -> MetNeeds:
    """Put together what all parts say about a batch of `rows` rows."""
    start = np.zeros(rows + 1, np.int64)
    for part in parts:
        count(part.rows, part.codes, part.start, start)
    np.cumsum(start, out=start)
    needs = np.empty(start[rows], np.int32)
    ends = start[:rows].copy()
    for part in parts:
        fill(part.rows, part.codes, part.start, part.needs, ends, needs)
    return MetNeeds(start, needs)


def join_lists(lists: Sequence[Shorts]) -> tuple[Integers, Shorts]:
    """Put lists one after another. Returns where each begins, and all of them."""
    start = run_starts(np.array([len(each) for each in lists], np.int64))
    return start, np.concatenate(lists) if lists else np.empty(0, np.int32)


@compiled
def count(rows: Shorts, codes: Shorts, start: Integers, counts: Integers) -> None:
    """Add what each row meets to counts[row + 1]."""
    for i in range(len(codes)):
        code = codes[i]
        if code >= 0:
            counts[rows[i] + 1] += start[code + 1] - start[code]


@compiled
def fill(rows: Shorts, codes: Shorts, start: Integers, needs: Shorts, ends: Integers, result: Shorts) -> None:
    """Write what each row meets to result[ends[row] ...], and move ends[row] behind it."""
    for i in range(len(codes)):
        code = codes[i]
        if code >= 0:
            # Unsigned, because Numba tests signed indices for being negative: a third less time.
            first, end = np.uint64(start[code]), np.uint64(ends[rows[i]])
            length = np.uint64(start[code + 1]) - first
            for k in range(length):
                result[end + k] = needs[first + k]
            ends[rows[i]] = end + length


@compiled
def drop_repeated(rows: Shorts, codes: Shorts, latest: Shorts) -> None:
    """Set the code of an item to -1 where an earlier item of the same row has it. `latest` has a place for each code,
    -1 at first; the items of a row stand together."""
    for i in range(len(codes)):
        code = codes[i]
        if code >= 0:
            if latest[code] == rows[i]:
                codes[i] = -1
            else:
                latest[code] = rows[i]
