"""The columnar filter: compiled index segments in memory, tombstones for what was removed.

The next match compiles the subscriptions that have come since, together with the smallest segments, into one segment.
`merge_policy` says which segments to merge then: small ones at once, larger ones in a thread beside the matching, one
such merge at a time. It is the machinery of `IndexWriter` without the files.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching.filter import Matches
from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.search.columnar_matcher import ColumnarMatcher, ColumnarView
from culver.matching.index.segments.columnar_segment import ColumnarSegment, segment_in_memory
from culver.matching.index.segments.segment_file import FOREVER, SegmentView
from culver.matching.index.storage import merge_policy
from culver.matching.index.storage.compaction import merge_columnar
from culver.model.language import Predicate, Prepared

# A segment with more registrations is merged in the thread only.
_MERGED_AT_ONCE = 2048
# After so many matches without a change, the filter becomes as compact as possible.
_QUIET_MATCHES = 16


class ColumnarFilter:
    """`close`, or the end of a `with`, waits for the thread if there is one. A filter that is dropped without it
    costs at most the rest of one merge."""

    def __init__(self, segment: ColumnarSegment | None = None) -> None:
        """`segment` has the subscriptions to begin with."""
        self._fresh: dict[int, Predicate] = {}  # not compiled yet
        self._gone: set[int] = set()  # perhaps compiled, and to be marked as removed
        self._pieces: list[_Piece] = [] if segment is None else [_Piece(segment)]
        self._merge: _Merge | None = None
        self._matcher: ColumnarMatcher | None = None  # of the pieces as they were at the last match
        self._changed = False  # since the last match
        self._unchanged = 0  # matches since the last change

    @classmethod
    def of_table(cls, table: ClauseTable) -> "ColumnarFilter":
        """A filter that begins with compiled subscriptions."""
        return cls(segment_in_memory(table) if len(table.numbers) else None)

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        self._fresh.update(subscriptions)

    def add_rows(
        self, prepared: Prepared, numbers: Integers, columns: Sequence[NDArray[Any] | Sequence[Any]]
    ) -> None:
        """Add many subscriptions of one form, compiled at once (see `bulk_compiler`), as a segment of their own.
        Raises as `Prepared.bind` does, and then adds none."""
        self._take(compile_rows(prepared, numbers, columns))

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._fresh.pop(number, None)
            self._gone.add(number)

    def match(self, batch: pa.RecordBatch) -> Matches:
        return self.settled().match(BatchColumns(batch), 0)

    def settled(self) -> ColumnarMatcher:
        """What `match` asks, for the subscriptions of now. Any thread may use it at log position 0, also while the
        owner makes changes, of which it may see removals."""
        self._settle()
        if self._matcher is None:
            self._matcher = ColumnarMatcher([piece.view for piece in self._pieces])
        return self._matcher

    def table(self) -> ClauseTable:
        """The clauses of all subscriptions."""
        self._compile()
        return merge_columnar([piece.view for piece in self._pieces], 0, [compile_entries(())])[0]

    def __len__(self) -> int:
        self._compile()
        return sum(piece.in_effect for piece in self._pieces)

    @property
    def nbytes(self) -> int:
        return sum(piece.memory_bytes() for piece in self._pieces)

    def close(self) -> None:
        if self._merge is not None:
            self._merge.wait()

    def __enter__(self) -> "ColumnarFilter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _settle(self) -> None:
        """Bring the segments up to date with what was added and removed, and merge what is due."""
        self._compile()
        changed, self._changed = self._changed, False
        self._unchanged = 0 if changed else self._unchanged + 1
        if self._merge is not None and self._merge.done:
            merge, self._merge = self._merge, None
            self._replace(merge.sources, merge.result())
            changed = True
        quiet = self._unchanged == _QUIET_MATCHES
        if changed or quiet:
            self._matcher = None
            self._merge_small()
            if self._merge is None and (chosen := _choose(self._pieces, quiet)):
                self._merge = _Merge(chosen)

    def _compile(self) -> None:
        """Make tombstones and a segment for what has changed, if anything has."""
        if not self._fresh and not self._gone:
            return
        self._changed = True
        fresh, gone = self._fresh, self._gone
        self._fresh, self._gone = {}, set()
        self._end(np.array(sorted(gone), np.int64))
        if fresh:
            self._take(compile_entries(Entry(number, predicate) for number, predicate in fresh.items()))

    def _take(self, table: ClauseTable) -> None:
        """Add compiled subscriptions. They replace those that have their numbers."""
        self._compile()
        self._changed = True
        self._end(table.numbers)
        small = self._free(merge_policy.SMALLEST)
        table, _ = merge_columnar([piece.view for piece in small], 0, [table])
        self._replace(small, _Piece(segment_in_memory(table)))

    def _end(self, numbers: Integers) -> None:
        for piece in self._pieces:
            piece.end(numbers)

    def _merge_small(self) -> None:
        while chosen := _choose(self._free(_MERGED_AT_ONCE)):
            self._replace(chosen, _merged([piece.view for piece in chosen]))

    def _replace(self, pieces: Sequence["_Piece"], by: "_Piece | None") -> None:
        self._pieces = [piece for piece in self._pieces if piece not in pieces]
        if by is not None:
            self._pieces.append(by)

    def _free(self, most: int) -> list["_Piece"]:
        """The pieces of at most so many registrations that are not being merged."""
        busy = () if self._merge is None else self._merge.sources
        return [piece for piece in self._pieces if len(piece.segment) <= most and piece not in busy]


class _Piece:
    """A segment and its tombstones, which change in place: only the filter's owner sees them."""

    def __init__(self, segment: ColumnarSegment) -> None:
        self.segment = segment
        self.view = SegmentView(segment)
        self.in_effect = len(segment)

    def end(self, numbers: Integers) -> None:
        """Mark registrations as removed (numbers ascending); those that are not here are ignored."""
        own = self.segment.arrays.numbers
        if not len(numbers) or not len(own) or numbers[0] > own[-1] or numbers[-1] < own[0]:
            return
        places, there = self.segment.places(numbers)
        places = places[there]
        if not len(places):
            return
        until = self.view.until
        if until is None:
            until = np.full(len(own), FOREVER)
            self.view = SegmentView(self.segment, until)
        self.in_effect -= int(np.count_nonzero(until[places]))
        until[places] = 0  # a window that ends where the log begins

    def snapshot(self) -> ColumnarView:
        """The view as it is now, which later tombstones do not change."""
        until = self.view.until
        return SegmentView(self.segment, None if until is None else until.copy())

    def ended_since(self, before: ColumnarView) -> Integers:
        """The numbers marked as removed since that snapshot. Not all that are marked, because a number that was
        replaced is marked in one piece and in effect in another."""
        until = self.view.until
        if until is None:
            return np.empty(0, np.int64)
        ended = until == 0 if before.until is None else until != before.until
        numbers: Integers = self.segment.arrays.numbers[ended]
        return numbers

    def memory_bytes(self) -> int:
        until = self.view.until
        tombstones = 0 if until is None else until.nbytes
        return tombstones + sum(array.nbytes for array in self.segment.arrays)


class _Merge:
    """Merges pieces into one in a thread."""

    def __init__(self, sources: Sequence[_Piece]) -> None:
        self.sources = tuple(sources)
        self._views = [piece.snapshot() for piece in sources]
        self._result: _Piece | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="culver-merge")
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()

    def result(self) -> _Piece | None:
        """The merged piece without what ended meanwhile; None if it is empty. Raises what the thread raised."""
        if self._error is not None:
            raise self._error
        if self._result is not None:
            for source, before in zip(self.sources, self._views, strict=True):
                self._result.end(source.ended_since(before))
        return self._result

    def _run(self) -> None:
        try:
            self._result = _merged(self._views)
        except BaseException as exc:
            self._error = exc


def _choose(pieces: Sequence[_Piece], quiet: bool = False) -> list[_Piece]:
    sizes = [len(piece.segment) for piece in pieces]
    dead = [len(piece.segment) - piece.in_effect for piece in pieces]
    places = (merge_policy.choose_when_quiet if quiet else merge_policy.choose)(sizes, dead)
    return [pieces[place] for place in places]


def _merged(views: Sequence[ColumnarView]) -> _Piece | None:
    table, _ = merge_columnar(views, 0)
    return _Piece(segment_in_memory(table)) if len(table.numbers) else None
