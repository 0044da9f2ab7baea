"""The operators M beside the columnar one: segments of other schemes, asked after it, each by its own filter.

    events --> columnar segments ------------------.
           --> counting: a filter per segment ------+--> joined by event
           --> reference: a filter per segment -----'

A filter knows nothing of time: its answers are cut here to the positions between which each registration is in
effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.index.compile.clause_table import starts
from culver.matching.index.search.columnar_matcher import FOREVER
from culver.matching.index.search.match_kernels import join
from culver.matching.index.segments.text_segment import Filters, TextSegment

Done = tuple[str, int, float]
"""A scheme, the pairs that it found, and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A segment, and the position at which each of its registrations has ended (FOREVER for the others)."""

    segment: TextSegment
    until: NDArray[np.int64]

    def in_effect(self) -> int:
        """How many registrations have not ended."""
        return int(np.count_nonzero(self.until == FOREVER))

    def match(self, batch: pa.RecordBatch, positions: NDArray[np.int64], filters: Filters) -> Matches:
        """The registrations in effect that each row matches; row i is at log position positions[i]."""
        found = self.segment.match(batch, filters)
        arrays = self.segment.arrays
        positions = np.repeat(positions, np.diff(found.offsets))
        places = np.searchsorted(arrays.numbers, found.numbers)
        kept = (arrays.since[places] <= positions) & (positions < self.until[places])
        if kept.all():
            return found
        return Matches(starts(kept.astype(np.int64))[found.offsets], found.numbers[kept])


class Beside:
    """Some parts of other schemes, at least one, matched one after another. What it has done is counted for its owner
    alone."""

    def __init__(self, parts: Sequence[TextPart], filters: Filters) -> None:
        self.parts = sorted(parts, key=lambda part: part.segment.scheme)
        self._filters = filters
        self._done: dict[str, tuple[int, float]] = {}

    def match(self, batch: pa.RecordBatch, positions: NDArray[np.int64]) -> Matches:
        """What all of them find; row i is at log position positions[i]."""
        results: list[Matches] = []
        for part in self.parts:
            began = perf_counter()
            results.append(part.match(batch, positions, self._filters))
            pairs, seconds = self._done.get(part.segment.scheme, (0, 0.0))
            pairs += len(results[-1].numbers)
            self._done[part.segment.scheme] = pairs, seconds + perf_counter() - began
        return joined(results)

    def take_done(self) -> tuple[Done, ...]:
        """What was done since the last call, by scheme."""
        done, self._done = self._done, {}
        return tuple((scheme, *each) for scheme, each in sorted(done.items()))


def joined(results: Sequence[Matches]) -> Matches:
    """What several have found for the same events, put together by event."""
    if len(results) == 1:
        return results[0]
    bases = starts(np.array([len(found.numbers) for found in results[:-1]], np.int64))
    offsets = np.concatenate([found.offsets for found in results])
    numbers = np.concatenate([found.numbers for found in results])
    return Matches(*join(offsets, numbers, bases, len(results[0].offsets) - 1))
