"""The filter language: text to predicate, and its meaning."""

from culver.model.language.explanation import (
    ExplainedConstraint as ExplainedConstraint,
    Explanation as Explanation,
    explain as explain,
)
from culver.model.language.filter_warnings import warnings_about as warnings_about
from culver.model.language.parser import parse as parse
from culver.model.language.patterns import like as like
from culver.model.language.predicate import (
    CALCULATE as CALCULATE,
    COMPARE as COMPARE,
    And as And,
    Arithmetic as Arithmetic,
    Attribute as Attribute,
    Between as Between,
    Clause as Clause,
    Comparison as Comparison,
    Computed as Computed,
    Condition as Condition,
    Constant as Constant,
    Constraint as Constraint,
    Contains as Contains,
    In as In,
    IsNull as IsNull,
    Literal as Literal,
    Not as Not,
    OneOf as OneOf,
    Operand as Operand,
    Operator as Operator,
    Or as Or,
    Parameter as Parameter,
    Pattern as Pattern,
    PatternShape as PatternShape,
    Predicate as Predicate,
    Presence as Presence,
    attributes_in as attributes_in,
    compute as compute,
    constraint_holds_for_value as constraint_holds_for_value,
    domain_of_constraint as domain_of_constraint,
    domains_of as domains_of,
    evaluate as evaluate,
    matching_clause as matching_clause,
)
from culver.model.language.prepared_filter import Prepared as Prepared, prepare as prepare
from culver.model.language.rendering import clause_text as clause_text
