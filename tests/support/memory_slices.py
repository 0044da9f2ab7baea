"""Slices in memory: registrations are points on one dimension, in a sorted list for each slice. Behaves as
`pipeline.slices` says; a slice that is added really takes half of a list, and one that goes really leaves its list to
its neighbours."""

from culver.control.slices import (
    DecisionView,
    DimensionSegment,
    DimensionView,
    LayerView,
    SetView,
    SlicesView,
    SliceView,
    check_add,
    check_remove,
)


class MemorySlices:
    """Two dimensions, `price` by ranges and `symbol` by hashes; the sets of the second hold what those of the first
    do. One more set is the rest, and one a backup."""

    def __init__(self, placement: str = "mpartition", lists: list[list[int]] | None = None) -> None:
        self.placement = placement
        self.lists = [list(range(100)), list(range(100, 130))] if lists is None else lists
        self.told: DecisionView | None = None

    async def add(self, split: int | None = None) -> SlicesView:
        check_add(self.view(), split)
        if split is None:
            split = max(range(len(self.lists)), key=lambda each: len(self.lists[each]))
        points = self.lists[split]
        middle = len(points) // 2
        self.lists[split : split + 1] = [points[:middle], points[middle:]]
        self.told = DecisionView("add", split, "somebody wanted it", 3.0)
        return self.view()

    async def remove(self, number: int) -> SlicesView:
        check_remove(self.view(), number)
        points = self.lists.pop(number)
        if number == 0:
            self.lists[0] = points + self.lists[0]
        elif number == len(self.lists):
            self.lists[-1] = self.lists[-1] + points
        else:
            middle = len(points) // 2
            self.lists[number - 1] = self.lists[number - 1] + points[:middle]
            self.lists[number] = points[middle:] + self.lists[number]
        self.told = DecisionView("remove", number, "somebody wanted it", 3.0)
        return self.view()

    def view(self) -> SlicesView:
        count = len(self.lists)
        sizes = [len(points) for points in self.lists]
        sets = [
            SetView(
                dimension * count + number,
                (number + dimension) % count,
                size,
                10 * size,
                100.0 * size,
                5_000.0 if size else None,
                2.0 * size,
                layer=0,
                dimension=dimension,
            )
            for dimension in range(2)
            for number, size in enumerate(sizes)
        ]
        sets.append(SetView(2 * count, None, 7, 70))
        if count > 1:
            sets.append(SetView(2 * count + 1, 1, 4, 40, layer=0, backup_of=0))
        starts = [None, *(points[0] if points else 0 for points in self.lists[1:])]
        ends = [*starts[1:], None]
        ranges = tuple(DimensionSegment(i, *ends_) for i, ends_ in enumerate(zip(starts, ends, strict=True)))
        hashes = tuple(DimensionSegment(number) for number in range(count))
        return SlicesView(
            self.placement,
            f"{self.placement}: as the setting pipeline.placement says",
            tuple(self._slice(number, sets) for number in range(count)),
            tuple(sets),
            (
                LayerView(
                    (
                        DimensionView("price", "numbers", False, ranges),
                        DimensionView("symbol", "strings", True, hashes),
                    )
                ),
            ),
            "adaptive",
            True,
            DecisionView("nothing", None, "the slices keep up", 0.5),
            self.told,
        )

    def _slice(self, number: int, sets: list[SetView]) -> SliceView:
        own = [each for each in sets if each.home in (number, None)]
        homed = tuple(each.set for each in sets if each.home == number)
        return SliceView(
            number,
            homed,
            sum(each.registrations for each in own),
            sum(each.bytes for each in own),
            sum(each.sent_per_second for each in own),
            5_000.0,
            0.25,
            sum(each.queue for each in own),
        )
