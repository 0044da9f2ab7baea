"""The operators M beside the columnar one: segments of other schemes, each matched by a filter of its own.

A filter knows nothing of time, so its answers are cut to the positions between which each registration is in effect.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import pyarrow as pa

from culver.jit import Integers
from culver.matching.filter import Matches
from culver.matching.index.compile.clause_table import run_starts
from culver.matching.index.search.columnar_matcher import join
from culver.matching.index.segments.segment_file import SegmentView
from culver.matching.index.segments.text_segment import Filters, TextSegment

TextView = SegmentView[TextSegment]


class TextMatcher:
    """Matches events against some segments, at least one, one after another. For one owner: it counts its work."""

    def __init__(self, views: Sequence[TextView], filters: Filters) -> None:
        self.views = sorted(views, key=lambda view: view.segment.scheme)
        self._filters = filters
        self._work: dict[str, tuple[int, float]] = {}

    def match(self, batch: pa.RecordBatch, positions: Integers) -> Matches:
        """Find the registrations in effect that each row matches. Row i is at log position positions[i]."""
        results: list[Matches] = []
        for view in self.views:
            began = perf_counter()
            found = view.segment.match(batch, self._filters)
            results.append(_in_effect(found, view, positions))
            pairs, seconds = self._work.get(view.segment.scheme, (0, 0.0))
            pairs += len(results[-1].numbers)
            self._work[view.segment.scheme] = pairs, seconds + perf_counter() - began
        return join_matches(results)

    def take_work(self) -> tuple[tuple[str, int, float], ...]:
        """The scheme, the pairs found and the seconds taken since the last call, for each scheme."""
        work, self._work = self._work, {}
        return tuple((scheme, *each) for scheme, each in sorted(work.items()))


def _in_effect(found: Matches, view: TextView, positions: Integers) -> Matches:
    arrays = view.segment.arrays
    positions = np.repeat(positions, np.diff(found.offsets))
    places = np.searchsorted(arrays.numbers, found.numbers)
    kept = arrays.since[places] <= positions
    if view.until is not None:
        kept &= positions < view.until[places]
    if kept.all():
        return found
    return Matches(run_starts(kept.astype(np.int64))[found.offsets], found.numbers[kept])


def join_matches(results: Sequence[Matches]) -> Matches:
    """Put what several have found for the same events together, event by event."""
    if len(results) == 1:
        return results[0]
    bases = run_starts(np.array([len(found.numbers) for found in results[:-1]], np.int64))
    offsets = np.concatenate([found.offsets for found in results])
    numbers = np.concatenate([found.numbers for found in results])
    return Matches(*join(offsets, numbers, bases, len(results[0].offsets) - 1))
