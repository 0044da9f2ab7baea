"""W1: BlueDove's ranges (section IV-B of its paper).

Four real attributes on [0, 1000). A subscription is a box of side 250 whose centre is normal in each
dimension (sd 250) around 125, 375, 625 and 875; a centre outside the space is drawn again. Part of a box
may lie outside the space. Events are uniform points. At 40,000 subscriptions an event matches about 130.

Section IV-F of the paper varies it: other deviations of the centres, and events that fall in some dimensions as the
centres do. Those are workloads of other names.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.workloads.workload import batch_of, event_stream, filter_stream

ATTRIBUTES = ("a", "b", "c", "d")
_MEANS = (125.0, 375.0, 625.0, 875.0)
LENGTH = 1000.0  # of each dimension
_WIDTH = 250.0
_DEVIATION = 250.0


class RangesWorkload:
    subscriptions = 40_000

    def __init__(self, deviation: float = _DEVIATION, skewed: int = 0, width: float = _WIDTH) -> None:
        """`deviation` is that of the centres; in the first `skewed` dimensions events fall as the centres of W1.
        `width` is that of the boxes."""
        self._deviation = deviation
        self._skewed = skewed
        self._width = width
        varied = [f"sd {deviation:.0f}"] if deviation != _DEVIATION else []
        varied += [f"{skewed} skewed"] if skewed else []
        varied += [f"boxes of {width:.0f}"] if width != _WIDTH else []
        self.name = ", ".join(["W1", *varied])

    def boxes(self, count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower bounds (closed) and upper bounds (open), each of shape (count, 4)."""
        random = filter_stream(seed)
        centres = np.column_stack([_cropped_normal(random, mean, self._deviation, count) for mean in _MEANS])
        return centres - self._width / 2, centres + self._width / 2

    def points(self, count: int, seed: int) -> NDArray[np.float64]:
        """The events' values, of shape (count, 4)."""
        random = event_stream(seed)
        result = random.random((count, len(ATTRIBUTES))) * LENGTH
        for dimension in range(self._skewed):
            result[:, dimension] = _cropped_normal(random, _MEANS[dimension], _DEVIATION, count)
        return result

    def filters(self, count: int, seed: int) -> list[str]:
        low, high = self.boxes(count, seed)
        return [
            " AND ".join(
                f"{name} >= {a!r} AND {name} < {b!r}"
                for name, a, b in zip(ATTRIBUTES, lows, highs, strict=True)
            )
            for lows, highs in zip(low.tolist(), high.tolist(), strict=True)
        ]

    def events(self, count: int, seed: int) -> list[dict[str, Any]]:
        return [dict(zip(ATTRIBUTES, values, strict=True)) for values in self.points(count, seed).tolist()]

    def event_batch(self, count: int, seed: int) -> pa.RecordBatch:
        points = self.points(count, seed)
        columns = {f"d:r:{name}": pa.array(points[:, i].copy()) for i, name in enumerate(ATTRIBUTES)}
        return batch_of(self.events(count, seed), columns)


def _cropped_normal(
    random: np.random.Generator, mean: float, deviation: float, count: int
) -> NDArray[np.float64]:
    """Normal draws; those outside [0, 1000) are drawn again."""
    values = random.normal(mean, deviation, count)
    while len(outside := np.flatnonzero((values < 0) | (values >= LENGTH))):
        values[outside] = random.normal(mean, deviation, len(outside))
    return values
