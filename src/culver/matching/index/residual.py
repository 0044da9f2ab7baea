"""The needs of a segment: constraints that are no interval, each evaluated once per distinct value.

What a value meets is remembered from batch to batch, within bounds: symbols, types and sources recur.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.codec import constraint_from_text
from culver.matching.index.columns import BatchColumns
from culver.matching.index.kernels import spread
from culver.model.evaluate import compute, constraint_holds_for_value
from culver.model.predicate import (
    Attribute,
    Comparison,
    Computed,
    Contains,
    Literal,
    OneOf,
    Operand,
    Pattern,
    Presence,
    Range,
)
from culver.model.values import Domain, Kind, Value, domain_of

_MAX_REMEMBERED = 1_000_000  # needs met, over all values of a segment

_OfValue = Range | OneOf | Pattern | Contains


@dataclass(frozen=True, slots=True)
class Held:
    """Row i meets the needs `needs[start[i] : start[i + 1]]`."""

    start: NDArray[np.int64]
    needs: NDArray[np.int32]


class Needs:
    """The pool of one segment, ready to be evaluated. Safe to share between threads."""

    def __init__(self, pool: tuple[str, ...]) -> None:
        self.count = len(pool)
        self._of_values: dict[tuple[str, Domain], list[tuple[int, _OfValue]]] = {}
        self._presence: dict[str, list[tuple[int, bool]]] = {}
        self._computed: list[tuple[int, Comparison, frozenset[str]]] = []
        self._remembered: dict[tuple[str, Kind, Value], NDArray[np.int32]] = {}
        self._size = 0
        for place, text in enumerate(pool):
            constraint = constraint_from_text(text)
            match constraint:
                case Computed(comparison):
                    names = frozenset(_names(comparison.left) | _names(comparison.right))
                    self._computed.append((place, comparison, names))
                case Presence(attribute, present):
                    self._presence.setdefault(attribute, []).append((place, present))
                case _:
                    key = constraint.attribute, _domain(constraint)
                    self._of_values.setdefault(key, []).append((place, constraint))

    def evaluate(self, columns: BatchColumns) -> "Held":
        """The needs that each row meets."""
        held = np.zeros(columns.rows * self.count, np.uint8)
        if not self.count:
            return Held(np.zeros(columns.rows + 1, np.int64), np.empty(0, np.int32))
        grid = held.reshape(columns.rows, self.count)
        for attribute, presences in self._presence.items():
            there = columns.present(attribute)
            for place, present in presences:
                grid[:, place] = there if present else 1 - there
        for (attribute, domain), needs in self._of_values.items():
            for kind, distinct in columns.distinct(attribute).items():
                if not distinct.values or domain_of(distinct.values[0]) is not domain:
                    continue
                met = [self._met(attribute, kind, value, needs) for value in distinct.values]
                start = np.zeros(len(met) + 1, np.int64)
                np.cumsum([len(places) for places in met], out=start[1:])
                spread(distinct.codes, start, np.concatenate(met), self.count, held)
        self._compute(columns, grid)
        start = np.zeros(columns.rows + 1, np.int64)
        np.cumsum(np.count_nonzero(grid, axis=1), out=start[1:])
        return Held(start, np.nonzero(grid)[1].astype(np.int32))

    def _met(
        self, attribute: str, kind: Kind, value: Value, needs: list[tuple[int, _OfValue]]
    ) -> NDArray[np.int32]:
        # The kind is part of the key because 1, 1.0 and True are one key to a dictionary.
        key = (attribute, kind, value)
        places = self._remembered.get(key)
        if places is None:
            holding = [place for place, need in needs if constraint_holds_for_value(need, value) is True]
            places = np.array(holding, np.int32)
            if self._size > _MAX_REMEMBERED:
                self._remembered.clear()
                self._size = 0
            self._remembered[key] = places
            self._size += len(places) + 16
        return places

    def _compute(self, columns: BatchColumns, grid: NDArray[np.uint8]) -> None:
        values: dict[str, list[Value | None]] = {}
        for place, comparison, names in self._computed:
            if not all(columns.attribute(name) for name in names):
                continue  # unknown for every row
            for name in names - values.keys():
                values[name] = _values(columns, name)
            for row in range(columns.rows):
                grid[row, place] = compute(comparison, _lookup(values, row)) is True


def _lookup(values: dict[str, list[Value | None]], row: int) -> Callable[[str], Value | None]:
    return lambda name: values[name][row]


def _values(columns: BatchColumns, name: str) -> list[Value | None]:
    result: list[Value | None] = [None] * columns.rows
    for distinct in columns.distinct(name).values():
        for row, code in enumerate(distinct.codes.tolist()):
            if code >= 0:
                result[row] = distinct.values[code]
    return result


def _domain(constraint: _OfValue) -> Domain:
    match constraint:
        case Pattern():
            return Domain.STRING
        case Contains():
            return Domain.STRINGS
        case _:
            return constraint.domain


def _names(operand: Operand) -> set[str]:
    match operand:
        case Attribute(name):
            return {name}
        case Literal():
            return set()
        case _:
            return _names(operand.left) | _names(operand.right)
