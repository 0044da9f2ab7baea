"""Needs that compute: comparisons with arithmetic, or of two attributes.

Each is worked out only for the rows that have all its attributes, for each combination of their kinds by itself.
Whole columns of numbers are computed at once where that gives exactly what `evaluate` says: as long as no integer
leaves 64 bits and none beyond 2^53 meets a real. Everything else goes row by row.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching.index.compile.key_lines import KeyLine, reals_of_keys
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.needs.met_needs import ColumnNeeds
from culver.model import Kind, Timestamp, Value
from culver.model.language import (
    CALCULATE,
    COMPARE,
    Arithmetic,
    Attribute,
    Comparison,
    Literal,
    Operand,
    attributes_in,
    compute,
)

# Integers up to here are reals too.
_EXACT_REAL = 2**53
# Below, going row by row costs less.
_FEW_ROWS = 8

_LINES = {Kind.INTEGER: KeyLine.INTEGERS, Kind.REAL: KeyLine.REALS}

Rows = Integers


class ComputedNeeds:
    """Comparisons, each of which is the need at some place of a pool."""

    def __init__(self, needs: Sequence[tuple[int, Comparison]]) -> None:
        self._needs = [
            (comparison, sorted({*attributes_in(comparison.left), *attributes_in(comparison.right)}))
            for _, comparison in needs
        ]
        self._places = np.array([place for place, _ in needs], np.int32)
        self._start = np.arange(len(needs) + 1)

    def part(self, columns: BatchColumns) -> ColumnNeeds | None:
        """The rows for which each comparison is true; None: no comparison is true for any row."""
        rows: list[Rows] = []
        codes: list[int] = []
        valid = functools.cache(functools.partial(_valid, columns))
        for code, (comparison, names) in enumerate(self._needs):
            for kinds in itertools.product(*(columns.attribute(name) for name in names)):
                there = np.ones(columns.rows, np.bool_)
                for name, kind in zip(names, kinds, strict=True):
                    there &= valid(name, kind)
                inside = np.flatnonzero(there)
                if len(inside):
                    holding = _holding(comparison, dict(zip(names, kinds, strict=True)), columns, inside)
                    rows.append(holding)
                    codes.append(code)
        if not rows:
            return None
        counts = [len(each) for each in rows]
        return ColumnNeeds(
            np.concatenate(rows).astype(np.int32),
            np.repeat(np.array(codes, np.int32), counts),
            self._start,
            self._places,
        )


def _holding(comparison: Comparison, kinds: dict[str, Kind], columns: BatchColumns, rows: Rows) -> Rows:
    """The rows for which the comparison is true, among rows with attributes of these kinds."""
    if len(rows) >= _FEW_ROWS and all(kind in _LINES for kind in kinds.values()):
        try:
            return rows[_Numbers(kinds, columns, rows).compare(comparison)]
        except _InexactError:
            pass
    values = {name: _values(columns, name, kind, rows) for name, kind in kinds.items()}
    return rows[[compute(comparison, _lookup(values, i)) is True for i in range(len(rows))]]


class _InexactError(Exception):
    """Columns of 64 bits would not give the exact result."""


# An array, which of its items are known (None: all), and a bound of the absolute values of integers.
_Computed = tuple[NDArray[Any], NDArray[np.bool_] | None, int | None]


class _Numbers:
    def __init__(self, kinds: dict[str, Kind], columns: BatchColumns, rows: Rows) -> None:
        self._kinds, self._columns, self._rows = kinds, columns, rows

    def compare(self, comparison: Comparison) -> NDArray[np.bool_]:
        left, right = self._operand(comparison.left), self._operand(comparison.right)
        known = _both(left[1], right[1])
        if (left[2] is None) is not (right[2] is None):
            left, right = _real(left), _real(right)
        result: NDArray[np.bool_] = COMPARE[comparison.operator](left[0], right[0])
        return result if known is None else result & known

    def _operand(self, operand: Operand) -> _Computed:
        match operand:
            case Attribute(name):
                return self._column(name)
            case Literal(value):
                return self._literal(value)
            case Arithmetic(sign, left, right):
                return _calculate(sign, self._operand(left), self._operand(right))

    def _column(self, name: str) -> _Computed:
        kind = self._kinds[name]
        keys = self._columns.keys((name, _LINES[kind]))
        assert keys is not None
        numbers = keys[0][self._rows]
        if kind is Kind.REAL:
            return reals_of_keys(numbers), None, None
        return numbers, None, max(-int(numbers.min()), int(numbers.max()), 0)

    def _literal(self, value: int | float | str | bool | Timestamp) -> _Computed:
        if type(value) is int:
            if not -(2**63) < value < 2**63:
                raise _InexactError
            return np.full(len(self._rows), value), None, abs(value)
        if type(value) is float:
            return np.full(len(self._rows), value), None, None
        return np.zeros(len(self._rows)), np.zeros(len(self._rows), np.bool_), None  # no number: unknown


def _calculate(sign: str, left: _Computed, right: _Computed) -> _Computed:
    known = _both(left[1], right[1])
    if sign != "/" and left[2] is not None and right[2] is not None:
        if sign == "%":
            if max(left[2], right[2]) >= 2**63:
                raise _InexactError
            divisible = right[0] != 0
            # NumPy's fmod, unlike its %, has the sign of the left side.
            rest = np.fmod(left[0], np.where(divisible, right[0], 1))
            return rest, _both(known, divisible), min(left[2], right[2])
        bound = left[2] * right[2] if sign == "*" else left[2] + right[2]
        if bound >= 2**63:
            raise _InexactError
        return CALCULATE[sign](left[0], right[0]), known, bound
    first, second = _real(left)[0], _real(right)[0]
    with np.errstate(all="ignore"):
        result = np.fmod(first, second) if sign == "%" else CALCULATE[sign](first, second)
    return result, _both(known, np.isfinite(result)), None


def _real(number: _Computed) -> _Computed:
    array, known, bound = number
    if bound is None:
        return number
    if bound > _EXACT_REAL:
        raise _InexactError
    return array.astype(np.float64), known, None


def _both(left: NDArray[np.bool_] | None, right: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _valid(columns: BatchColumns, name: str, kind: Kind) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = columns.attribute(name)[kind].is_valid().to_numpy(zero_copy_only=False)
    return flags


def _values(columns: BatchColumns, name: str, kind: Kind, rows: Rows) -> list[Value]:
    values: list[Any] = columns.attribute(name)[kind].take(rows).to_pylist()
    if kind is Kind.TIMESTAMP:
        return [Timestamp(value) for value in values]
    return [tuple(value) for value in values] if kind is Kind.STRINGS else values


def _lookup(values: dict[str, list[Value]], row: int) -> Callable[[str], Value]:
    return lambda name: values[name][row]
