"""A version of the index as the pipeline uses it: its sets, opened as they are needed, and its placement."""

from pathlib import Path

import numpy as np

from culver.matching.index import Index
from culver.matching.index.beside import Done
from culver.matching.index.snapshot import placed_in
from culver.placement.placement import Placement, sets_of
from culver.plugins import filter_named, placement_named


class DividedIndex:
    """Sets share nothing but the version. Not thread-safe."""

    def __init__(self, directory: Path, version: int) -> None:
        """Raises NotFound where there is no such version, StorageCorrupt."""
        placed = placed_in(directory, version)
        self.version = version
        self.slices = placed.slices
        self.placement: Placement | None = None
        """Which events each slice gets, for which sets; None: there is one set, and one slice that gets all."""
        self._homes = np.array(placed.homes)
        if len(placed.homes) > 1 or placed.slices > 1:
            self.placement = placement_named(placed.name).from_state(placed.slices, placed.state)
        self._directory = directory
        self._opened: dict[int, Index] = {}

    def open_slice(self, own: int) -> None:
        """Open all sets that a slice may work on. Raises NotFound, StorageCorrupt."""
        for number in sets_of(self._homes, own):
            self.set(number)

    def set(self, number: int) -> Index:
        """Raises NotFound, StorageCorrupt."""
        if number not in self._opened:
            self._opened[number] = Index.open(self._directory, self.version, number, filter_named)
        return self._opened[number]

    def take_done(self) -> tuple[Done, ...]:
        """What schemes other than the columnar have done in all sets since the last call."""
        done: dict[str, Done] = {}
        for index in self._opened.values():
            for scheme, pairs, seconds in index.take_done():
                _, more, longer = done.get(scheme, (scheme, 0, 0.0))
                done[scheme] = (scheme, pairs + more, seconds + longer)
        return tuple(done[scheme] for scheme in sorted(done))

    def close(self) -> None:
        for index in self._opened.values():
            index.close()
