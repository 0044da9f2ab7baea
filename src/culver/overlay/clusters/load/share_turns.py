"""Takes turns among candidates in proportion to their weights, as evenly over time as possible.

This is smooth weighted round robin: with the weights a: 5, b: 1, c: 1 the turns are a a b a c a a.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

Candidate = TypeVar("Candidate")


class ShareTurns(Generic[Candidate]):
    """Remembers what each candidate is owed. Weights may change from turn to turn, and candidates come and go."""

    def __init__(self) -> None:
        self._owed: dict[Candidate, float] = {}

    def next(self, weights: Mapping[Candidate, float]) -> Candidate | None:
        """The candidate whose turn it is, None where nobody has a weight above 0. Of equal ones, the first."""
        total = sum(weight for weight in weights.values() if weight > 0)
        if total <= 0:
            return None
        self._owed = {
            each: self._owed.get(each, 0.0) + weight / total for each, weight in weights.items() if weight > 0
        }
        chosen = max(self._owed, key=self._owed.__getitem__)
        self._owed[chosen] -= 1.0
        return chosen
