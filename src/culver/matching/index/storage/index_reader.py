"""Reading an index: one version, opened, against which events are matched."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching.filter import Found, Matches, MatchList, select_rows, spread_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.results.gatherer import Gatherer
from culver.matching.index.results.grouping import Grouping
from culver.matching.index.search.columnar_matcher import ColumnarMatcher, ColumnarView
from culver.matching.index.search.text_matcher import TextMatcher, TextView, join_matches
from culver.matching.index.segments.columnar_segment import ColumnarSegment, segment_in_memory
from culver.matching.index.segments.segment_file import SegmentView
from culver.matching.index.segments.text_segment import Filters, TextSegment
from culver.matching.index.storage.version_files import read_version, views_of

_FEW_ROWS = 64


class SearchMemory:
    """Working memory of `Index.find`, used again from call to call. Not thread-safe."""

    def __init__(self) -> None:
        self.grouping = Grouping()
        self.gatherer = Gatherer()
        self._columns: BatchColumns | None = None

    def columns_of(self, batch: pa.RecordBatch) -> BatchColumns:
        """The columns of a batch, kept until another comes or `let_go`: several sets ask about the same one."""
        columns = self._columns
        if columns is None or columns.batch is not batch:
            columns = self._columns = BatchColumns(batch)
        return columns

    def let_go(self) -> None:
        """Forget the last batch."""
        self._columns = None


class Index:
    """One version, memory-mapped. Immutable, safe to share between threads; processes share its pages.

    Files that are deleted while it is open stay readable for it. The mapping ends with `close` and the last use of
    what `match` returned.
    """

    def __init__(
        self, version: int, views: Sequence[ColumnarView], text_matcher: TextMatcher | None = None
    ) -> None:
        every: list[ColumnarView | TextView] = [*views, *(() if text_matcher is None else text_matcher.views)]
        self.version = version
        self.count = sum(view.in_effect() for view in every)
        """The registrations that have not ended."""
        # Numbers grow with time, so in this order the results of segments mostly just follow one another.
        self._matcher: ColumnarMatcher | None = ColumnarMatcher(sorted(views, key=_first_number))
        ends = [view.segment.arrays.numbers[[0, -1]] for view in every if len(view.segment)]
        self.numbers = (int(min(e[0] for e in ends)), int(max(e[1] for e in ends))) if ends else (0, 0)
        """The lowest and the highest number there may be in what `match` returns."""
        self._text_matcher = text_matcher

    @classmethod
    def open(
        cls, directory: Path, version: int, only_set: int | None = None, filters: Filters | None = None
    ) -> "Index":
        """Open a whole version, or one set of it. `filters` makes the filters of schemes other than `columnar`;
        without it, a version that needs one is refused with a ValueError. Raises NotFound where there is no such
        version, StorageCorrupt where a file of it is damaged."""
        stored = read_version(directory, version, only_set).segments
        views, others = views_of(stored, ColumnarSegment), views_of(stored, TextSegment)
        if not others:
            return cls(version, views)
        if filters is None:
            raise ValueError(f"version {version} has segments of scheme {others[0].segment.scheme}")
        return cls(version, views, TextMatcher(others, filters))

    @classmethod
    def in_memory(cls, table: ClauseTable) -> "Index":
        """An index of these clauses without any file."""
        if not len(table.numbers):
            return cls(1, [])
        return cls(1, [SegmentView(segment_in_memory(ClauseTable.joined([table])))])

    def match(
        self, batch: pa.RecordBatch, first_offset: int = 0, chosen: NDArray[np.bool_] | None = None
    ) -> Matches:
        """Find the registrations that each event of `batch`, or each chosen one, matches. Row i is the event at log
        offset `first_offset + i`, and a registration takes part where `since <= offset < until`."""
        return self._match_some(BatchColumns(batch), chosen, first_offset)

    def _match_some(
        self, columns: BatchColumns, chosen: NDArray[np.bool_] | None, first_offset: int
    ) -> Matches:
        matcher = self._open_matcher()
        if self._text_matcher is None and (chosen is None or chosen.all()):
            return matcher.match(columns, first_offset)
        taken, rows = columns, np.arange(columns.rows)
        if chosen is not None and not chosen.all():
            rows = np.flatnonzero(chosen)
            taken = BatchColumns(columns.batch.take(pa.array(rows)))
        if taken is columns or not matcher.changes_within(first_offset, first_offset + columns.rows):
            found = matcher.match(taken, first_offset)
        else:  # a registration may be in effect for some of the events only: it matters where an event is
            found = select_rows(matcher.match(columns, first_offset), rows)
        if self._text_matcher is not None:
            found = join_matches([found, self._text_matcher.match(taken.batch, first_offset + rows)])
        return found if taken is columns else spread_rows(found, rows, columns.rows)

    def find(
        self,
        batch: pa.RecordBatch,
        start: int,
        first_row: int,
        chosen: NDArray[np.bool_] | None,
        memory: SearchMemory,
    ) -> Iterator[Found]:
        """Do as `match`, with results to be grouped by registration. The events are the rows from `first_row`
        on, and row r is at log offset `start + r`."""
        matcher, count = self._open_matcher(), batch.num_rows
        if not matcher.views and self._text_matcher is None:
            return
        if _is_sparse(matcher, count if chosen is None else int(np.count_nonzero(chosen))):
            columns, first = memory.columns_of(batch), start + first_row
            yield self._listed(self._match_some(columns, chosen, first), first_row)
            return
        rows = np.arange(first_row, first_row + count).astype(np.uint16)
        if chosen is not None and not chosen.all():
            rows, batch = rows[chosen], batch.take(pa.array(np.flatnonzero(chosen)))
        step = matcher.rows_at_a_time
        for begin in range(0, len(rows), step):
            columns = BatchColumns(batch.slice(begin, step))
            for view in matcher.views:
                yield memory.gatherer.find(view, columns, rows[begin : begin + step], start)
        if self._text_matcher is not None:
            found = self._text_matcher.match(batch, start + rows.astype(np.int64))
            yield self._listed(spread_rows(found, rows.astype(np.int64) - first_row, count), first_row)

    def _listed(self, matches: Matches, first_row: int) -> MatchList:
        return MatchList(first_row, self.numbers, matches.offsets, matches.numbers)

    def in_effect(self, start: int, end: int) -> tuple[Integers, Integers]:
        """The registrations that are in effect for any offset of `[start, end)`, whatever their filters, and the last
        such offset of each. Several segments may hold the same registration."""
        text_views = () if self._text_matcher is None else self._text_matcher.views
        numbers, last = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for view in (*self._open_matcher().views, *text_views):
            arrays = view.segment.arrays
            until = np.full(len(view.segment), end) if view.until is None else np.minimum(view.until, end)
            present = (arrays.since < end) & (until > np.maximum(arrays.since, start))
            numbers.append(arrays.numbers[present])
            last.append(until[present] - 1)
        return np.concatenate(numbers), np.concatenate(last)

    def take_scheme_work(self) -> tuple[tuple[str, int, float], ...]:
        """(scheme, pairs, seconds) of each scheme but `columnar` since the last call. For one owner, who matches."""
        return () if self._text_matcher is None else self._text_matcher.take_work()

    def close(self) -> None:
        self._matcher = None

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open_matcher(self) -> ColumnarMatcher:
        if self._matcher is None:
            raise ValueError("the index is closed")
        return self._matcher


def _is_sparse(matcher: ColumnarMatcher, count: int) -> bool:
    """Gathering looks at every registration, which does not pay where there are fewer pairs than that."""
    return count <= _FEW_ROWS or matcher.matches_per_row() * count < matcher.registrations


def _first_number(view: ColumnarView) -> int:
    numbers = view.segment.arrays.numbers
    return int(numbers[0]) if len(numbers) else 0
