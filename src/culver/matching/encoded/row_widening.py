"""From the rows of a set of subscriptions to clauses for a summary.

Few rows are bound one by one. Of many, the filter is taken once, with wider conditions in place of those that have a
parameter: whatever holds for one row's value holds for the wider one too.

    symbol = ? AND price > ?      ->      symbol IN ('A', 'B', 'C') AND price > 12.5      few symbols; the least price
                                          symbol >= '' AND price > 12.5                   many symbols

A wider condition must also be unknown or false only where the condition is so for all rows. Under a NOT that turns
around, and only this much is kept: a comparison that is false, and not unknown, has an attribute that is there.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from culver.model import Timestamp, normalise_text
from culver.model.columns import Columns, is_text, values_at
from culver.model.language import (
    And,
    Attribute,
    Clause,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Parameter,
    Prepared,
    attributes_in,
)

_MOST_ROWS = 2_000
# Binding takes about as long as the filter's text is.
_MOST_CHARACTERS = 200_000
_MOST_VALUES = 16

_BELOW = (Operator.LESS, Operator.LESS_OR_EQUAL)
_ABOVE = (Operator.GREATER, Operator.GREATER_OR_EQUAL)


def clauses_of_rows(prepared: Prepared, columns: Columns) -> tuple[Clause, ...]:
    """Clauses of which every event satisfies one that satisfies the filter with some row's values."""
    rows = len(columns[0]) if columns else 1
    if rows <= _MOST_ROWS and rows * len(prepared.text) <= _MOST_CHARACTERS:
        found = {clause for row in range(rows) for clause in prepared.bind(values_at(columns, row)).clauses}
        return tuple(found)
    wider = _Widening(columns).condition(prepared.condition, False)
    return Prepared(prepared.text, prepared.settings, wider, [], []).bind([]).clauses


class _Widening:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def condition(self, condition: Condition, negated: bool) -> Condition:
        match condition:
            case And(conditions):
                return And(tuple(self.condition(each, negated) for each in conditions))
            case Or(conditions):
                return Or(tuple(self.condition(each, negated) for each in conditions))
            case Not(inner):
                return Not(self.condition(inner, not negated))
            case In(attribute, listed):
                if any(isinstance(each, Parameter) for each in listed):
                    return _present([attribute.name], negated)
            case Comparison(operator, left, Literal(right)) if isinstance(right, Parameter):
                if negated or not isinstance(left, Attribute):
                    return _present(list(attributes_in(left)), negated)
                return self._comparison(operator, left, self._columns[right.number])
        return condition

    def _comparison(self, operator: Operator, left: Attribute, column: pa.Array) -> Condition:
        """What holds of the attribute if the comparison with some value of the column does."""
        if operator is Operator.EQUAL:
            distinct = column.unique()
            if len(distinct) <= _MOST_VALUES:
                return In(left, tuple(map(_value, distinct)))
        if is_text(column.type):
            # Values get their normal form when they are bound, which may change their order.
            return Comparison(Operator.GREATER_OR_EQUAL, left, Literal(""))
        if pa.types.is_boolean(column.type) or operator is Operator.NOT_EQUAL:
            return _present([left.name], False)
        least, most = (_value(each) for each in pc.min_max(column).values())
        if operator in _ABOVE:
            return Comparison(operator, left, Literal(least))
        if operator in _BELOW:
            return Comparison(operator, left, Literal(most))
        return And(
            (
                Comparison(Operator.GREATER_OR_EQUAL, left, Literal(least)),
                Comparison(Operator.LESS_OR_EQUAL, left, Literal(most)),
            )
        )


def _value(scalar: pa.Scalar) -> Any:
    if pa.types.is_timestamp(scalar.type):
        return Timestamp(scalar.value)
    value = scalar.as_py()
    return normalise_text(value) if isinstance(value, str) else value


def _present(names: list[str], negated: bool) -> Condition:
    """A condition that is true where the attributes are there; with `negated`, one that is false there."""
    missing = tuple(IsNull(Attribute(name)) for name in names)
    if not missing:
        return Constant(not negated)
    return Or(missing) if negated else Not(Or(missing))
