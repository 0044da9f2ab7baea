"""A version of the index as the pipeline uses it: its slices, opened as they are needed, and its placement."""

from pathlib import Path

from culver.matching.index import Index
from culver.matching.index.snapshot import placed_in
from culver.placement.placement import Placement
from culver.plugins import filter_named, placement_named


class DividedIndex:
    """Slices share nothing but the version. Not thread-safe."""

    def __init__(self, directory: Path, version: int) -> None:
        """Raises NotFound where there is no such version, StorageCorrupt."""
        placed = placed_in(directory, version)
        self.version = version
        self.slices = placed.slices
        self.placement: Placement | None = None
        """Which events each slice gets; None: there is one slice, and it gets all."""
        if placed.slices > 1:
            self.placement = placement_named(placed.name).from_state(placed.slices, placed.state)
        self._directory = directory
        self._opened: dict[int, Index] = {}

    def slice(self, number: int) -> Index:
        """Raises NotFound, StorageCorrupt."""
        if number not in self._opened:
            self._opened[number] = Index.open(self._directory, self.version, number, filter_named)
        return self._opened[number]

    def close(self) -> None:
        for index in self._opened.values():
            index.close()
