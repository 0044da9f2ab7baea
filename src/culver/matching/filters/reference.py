"""The reference filter: it evaluates every condition as written, on every event. Slow and obviously right."""

from collections.abc import Iterable

import pyarrow as pa

from culver.matching.filter import Matches, matches_of
from culver.model.columns import event_at
from culver.model.language import Predicate, evaluate


class ReferenceFilter:
    def __init__(self) -> None:
        self._predicates: dict[int, Predicate] = {}

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        self._predicates.update(subscriptions)

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._predicates.pop(number, None)

    def match(self, batch: pa.RecordBatch) -> Matches:
        result: list[list[int]] = []
        for row in range(batch.num_rows):
            event = event_at(batch, row)
            result.append(
                sorted(
                    number
                    for number, predicate in self._predicates.items()
                    if evaluate(predicate.condition, event) is True
                )
            )
        return matches_of(result)

    def __len__(self) -> int:
        return len(self._predicates)
