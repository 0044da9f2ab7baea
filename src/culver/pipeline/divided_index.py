"""A version of the index as the pipeline uses it: its sets, opened when needed, and its placement."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching import Index, read_division
from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.operators import route_events
from culver.placement import ChosenSets, Forwarding, Placement, SetLoad, sets_of_slice
from culver.plugins import filter_named, placement_named


class DividedIndex:
    """Its sets share nothing but the version. Not thread-safe."""

    def __init__(self, directory: Path, version: int) -> None:
        """Raises NotFound if there is no such version, StorageCorrupt."""
        placed, registrations = read_division(directory, version)
        self.version = version
        self.slices = placed.slices
        self.placement: Placement | None = None
        """Decides which slice gets an event, and for which sets; None: one set, and one slice that gets all."""
        self.division = ""
        """Identifies this numbering of the sets; empty where there is one set."""
        self._homes = np.array(placed.homes)
        self._registrations = registrations
        if len(placed.homes) > 1 or placed.slices > 1:
            self.placement = placement_named(placed.name).from_state(placed.slices, placed.state)
            self.division = placed.fingerprint()
        self._directory = directory
        self._opened: dict[int, Index] = {}
        # The slices whose sets are open, and no others.
        self._open_for: Sequence[int] | None = None

    def open_slices(self, slices: Sequence[int]) -> None:
        """Open all sets that these slices may work on, and close the others. Raises NotFound, StorageCorrupt."""
        if slices == self._open_for:
            return
        for number in self.keep_slices(slices):
            self.set(number)
        self._open_for = slices

    def keep_slices(self, slices: Sequence[int]) -> set[int]:
        """Close all sets but those that these slices may work on; returns the latter, open or not."""
        self._open_for = None
        wanted = {number for own in slices for number in sets_of_slice(self._homes, own)}
        for number in self._opened.keys() - wanted:
            self._opened.pop(number).close()
        return wanted

    def load(self, told: LoadReport) -> SetLoad:
        """The load from a report, if it is about these sets; their registrations are known in any case."""
        about = told.division == self.division
        return SetLoad(
            self._homes,
            self.slices,
            self._registrations,
            np.zeros(len(self._homes)),  # a batch begins when the one before is done
            self._by_set(told.arrivals if about else ()),
            self._by_set(told.rates if about else ()),
            self._by_set(told.responses if about else ()),
        )

    def route(
        self, forwarding: Forwarding, told: LoadReport, start: int, parts: Sequence[pa.RecordBatch]
    ) -> list[ChosenSets] | None:
        """Where the events of a block go, part by part; None: all go to the only set, in the only slice."""
        if self.placement is None:
            return None
        return route_events(self.placement, forwarding, self.load(told), start, parts)

    def _by_set(self, known: Sequence[float]) -> NDArray[np.float64]:
        """The values, and 0 for sets that the report does not mention."""
        values = np.zeros(len(self._homes))
        values[: len(known)] = known[: len(values)]
        return values

    def set(self, number: int) -> Index:
        """Raises NotFound, StorageCorrupt."""
        if number not in self._opened:
            self._opened[number] = Index.open(self._directory, self.version, number, filter_named)
        return self._opened[number]

    def take_scheme_work(self) -> tuple[tuple[str, int, float], ...]:
        """The work of all schemes but the columnar one, in all sets, since the last call."""
        done: dict[str, tuple[str, int, float]] = {}
        for index in self._opened.values():
            for scheme, pairs, seconds in index.take_scheme_work():
                _, more, longer = done.get(scheme, (scheme, 0, 0.0))
                done[scheme] = (scheme, pairs + more, seconds + longer)
        return tuple([done[scheme] for scheme in sorted(done)]) if done else ()

    def close(self) -> None:
        for index in self._opened.values():
            index.close()
