"""The filter language: text to predicate, and its meaning."""

from culver.model.language.evaluation import compute, constraint_holds_for_value, evaluate, matching_clause
from culver.model.language.parser import parse
from culver.model.language.patterns import like
from culver.model.language.predicate import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Clause,
    Comparison,
    Computed,
    Condition,
    Constant,
    Constraint,
    Contains,
    Literal,
    OneOf,
    Operand,
    Operator,
    Or,
    Pattern,
    PatternShape,
    Predicate,
    Presence,
)
from culver.model.language.prepared_filter import Bound, Prepared, prepare
from culver.model.language.rendering import clause_text
from culver.model.language.template import Parameter

__all__ = [
    "And",
    "Arithmetic",
    "Attribute",
    "Between",
    "Bound",
    "Clause",
    "Comparison",
    "Computed",
    "Condition",
    "Constant",
    "Constraint",
    "Contains",
    "Literal",
    "OneOf",
    "Operand",
    "Operator",
    "Or",
    "Parameter",
    "Pattern",
    "PatternShape",
    "Predicate",
    "Prepared",
    "Presence",
    "clause_text",
    "compute",
    "constraint_holds_for_value",
    "evaluate",
    "like",
    "matching_clause",
    "parse",
    "prepare",
]
