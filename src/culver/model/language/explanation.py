"""Why an event matches a filter, or why not: constraint by constraint.

no match: unknown
  clause 1 of 1
    true     symbol = 'XYZ'
    unknown  price > 20       price is missing
"""

from dataclasses import dataclass

from culver.model.event import Event
from culver.model.language.predicate import (
    Comparison,
    Computed,
    Constraint,
    OneOf,
    Predicate,
    Presence,
    attributes_in,
    domain_of_constraint,
    evaluate,
    satisfies,
)
from culver.model.language.rendering import constraint_text, name_text, value_text
from culver.model.values import Domain, Value, domain_of

_LONGEST_VALUE = 60
_WORDS = {True: "true", False: "false", None: "unknown"}
_PHRASES = {
    Domain.NUMBER: "a number",
    Domain.STRING: "a string",
    Domain.BOOLEAN: "a boolean",
    Domain.TIMESTAMP: "a timestamp",
    Domain.STRINGS: "a list of strings",
}


@dataclass(frozen=True, slots=True)
class ExplainedConstraint:
    text: str
    holds: bool | None
    """None is SQL's unknown: an attribute is missing or has another type."""
    reason: str
    """What the event has there; empty where nothing needs to be said."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """`str` writes it for people."""

    matches: bool
    result: bool | None
    """The value of the whole filter; None is SQL's unknown."""
    clauses: tuple[tuple[ExplainedConstraint, ...], ...]
    """An event matches when all constraints of one clause hold. Without clauses, no event matches."""

    def __str__(self) -> str:
        lines = ["match" if self.matches else f"no match: {_WORDS[self.result]}"]
        width = max((len(each.text) for clause in self.clauses for each in clause), default=0)
        for place, clause in enumerate(self.clauses, 1):
            lines.append(f"  clause {place} of {len(self.clauses)}")
            lines += [
                f"    {_WORDS[each.holds]:7}  {each.text:{width}}  {each.reason}".rstrip()
                for each in clause or (ExplainedConstraint("TRUE", True, ""),)
            ]
        return "\n".join(lines)


def explain(predicate: Predicate, event: Event) -> Explanation:
    result = evaluate(predicate.condition, event)
    clauses = tuple(
        tuple(_explained(constraint, event) for constraint in clause) for clause in predicate.clauses
    )
    return Explanation(result is True, result, clauses)


def _explained(constraint: Constraint, event: Event) -> ExplainedConstraint:
    holds = satisfies(constraint, event)
    reasons: list[str] = []
    match constraint:
        case Presence() | OneOf(values=(_,), negated=False) if holds:
            pass  # the constraint says it all
        case Computed(Comparison(_, left, right)):
            names = dict.fromkeys((*attributes_in(left), *attributes_in(right)))
            reasons = [_found(name, event.value(name), None) for name in names]
        case Presence(attribute):
            reasons = [_found(attribute, event.value(attribute), None)]
        case _:
            name, wanted = constraint.attribute, domain_of_constraint(constraint)
            reasons = [_found(name, event.value(name), wanted)]
    return ExplainedConstraint(constraint_text(constraint), holds, ", ".join(reasons))


def _found(name: str, value: Value | None, wanted: Domain | None) -> str:
    """What the event has under a name."""
    if value is None:
        return f"{name_text(name)} is missing"
    domain = domain_of(value)
    if wanted is not None and domain is not wanted:
        return f"{name_text(name)} is {_PHRASES[domain]}, not {_PHRASES[wanted]}"
    shown = ", ".join(map(value_text, value)) if isinstance(value, tuple) else value_text(value)
    if len(shown) > _LONGEST_VALUE:
        shown = f"{shown[:_LONGEST_VALUE]}..."
    return f"{name_text(name)} is {f'({shown})' if isinstance(value, tuple) else shown}"
