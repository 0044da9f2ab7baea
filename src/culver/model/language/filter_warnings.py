"""Finds what its writer probably did not mean in a filter that is valid."""

from collections.abc import Iterator

from culver.model.language.predicate import (
    And,
    Attribute,
    Clause,
    Comparison,
    Condition,
    Not,
    Operator,
    Or,
)
from culver.model.language.rendering import name_text, value_text

NEVER_MATCHES = "never_matches"
COMPARES_ATTRIBUTES = "compares_attributes"

_EQUALITY = (Operator.EQUAL, Operator.NOT_EQUAL)
# Of one filter; a longer list helps nobody.
_MOST_WARNINGS = 8


def warnings_about(condition: Condition, clauses: tuple[Clause, ...] | None) -> list[tuple[str, str]]:
    """A stable code and a sentence for each doubt about a filter. Without `clauses`, which a filter with parameters
    does not have yet, whether it can match at all remains open."""
    found = []
    if clauses == ():
        found.append(
            (NEVER_MATCHES, "no event can match this filter: it is false or unknown for all of them")
        )
    # A dictionary, because the same comparison may occur many times.
    for comparison in dict.fromkeys(_comparisons(condition)):
        left, right = comparison.left, comparison.right
        if (
            comparison.operator in _EQUALITY
            and isinstance(left, Attribute)
            and isinstance(right, Attribute)
            and len(found) < _MOST_WARNINGS
        ):
            start = f"{name_text(left.name)} {comparison.operator}"
            found.append(
                (
                    COMPARES_ATTRIBUTES,
                    f"{start} {name_text(right.name)} compares two attributes; "
                    f"if the right side is a text, write {start} {value_text(right.name)}",
                )
            )
    return found


def _comparisons(condition: Condition) -> Iterator[Comparison]:
    match condition:
        case And(conditions) | Or(conditions):
            for each in conditions:
                yield from _comparisons(each)
        case Not(inner):
            yield from _comparisons(inner)
        case Comparison():
            yield condition
