"""A filter in its two forms: the condition as written (a tree), and its clauses (what indexes work on).

The tree is what the reference evaluates, with SQL's three values. The clauses are a disjunction of
conjunctions of constraints over single attributes, and say the same: an event matches when some clause
has no constraint that is false or unknown.
"""

import enum
from dataclasses import dataclass

from culver.model.values import Domain, Timestamp, Value


class Operator(enum.StrEnum):
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


# --- the tree -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """Equal only to a literal of the same type: `x * 1` and `x * 1.0` do not mean the same."""

    value: int | float | str | bool | Timestamp

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`operator` is one of + - * /. Unary minus is 0 - operand, folded where the operand is a literal."""

    operator: str
    left: "Operand"
    right: "Operand"


Operand = Attribute | Literal | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: Operator
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    """`attribute IN (literals)`."""

    attribute: Attribute
    values: tuple[int | float | str | bool | Timestamp, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`attribute LIKE pattern`: % is any run of characters, _ any one; `escape` takes their meaning away."""

    attribute: Attribute
    pattern: str
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """`'value' IN attribute`: the list of strings holds the value."""

    value: str
    attribute: Attribute


@dataclass(frozen=True, slots=True)
class IsNull:
    attribute: Attribute


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool


@dataclass(frozen=True, slots=True)
class Not:
    condition: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    conditions: tuple["Condition", ...]


Condition = Comparison | In | Like | Member | IsNull | Constant | Not | And | Or


# --- the clauses ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Between:
    """The attribute lies between the bounds; None is no bound. `domain` is NUMBER, STRING or TIMESTAMP.

    Never empty, never unbounded on both sides, and a point (`x = 5`) is a OneOf instead.
    """

    attribute: str
    domain: Domain
    low: Value | None
    low_closed: bool
    high: Value | None
    high_closed: bool


@dataclass(frozen=True, slots=True)
class OneOf:
    """The attribute equals one of `values` (sorted, distinct, all of `domain`); with `negated`, none of
    them. `domain` is NUMBER, STRING, BOOLEAN or TIMESTAMP. Unknown for an attribute of another domain."""

    attribute: str
    domain: Domain
    values: tuple[int | float | str | bool | Timestamp, ...]
    negated: bool = False


class PatternShape(enum.StrEnum):
    """What a LIKE pattern comes down to; `LIKE` without a wildcard is a OneOf."""

    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUBSTRING = "substring"
    GENERAL = "general"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A string matches a LIKE pattern, or with `negated` does not.

    `parts` alternates literal text and wildcards, both as in `("ab", "%", "c", "_")`, but with `kinds`
    telling them apart: `kinds[i]` is True where `parts[i]` is a wildcard. `text` is the literal text of a
    PREFIX, SUFFIX or SUBSTRING and empty for a GENERAL pattern.
    """

    attribute: str
    shape: PatternShape
    text: str
    parts: tuple[str, ...]
    kinds: tuple[bool, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Contains:
    """The attribute is a list of strings that holds `value`, or with `negated` one that does not."""

    attribute: str
    value: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Presence:
    """The attribute is there (of any type), or with `present=False` is not."""

    attribute: str
    present: bool


@dataclass(frozen=True, slots=True)
class Computed:
    """A comparison that is not attribute-against-literal: arithmetic, or two attributes."""

    comparison: Comparison


Constraint = Between | OneOf | Pattern | Contains | Presence | Computed
Clause = tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A parsed filter. No clauses: it matches nothing. An empty clause: it matches everything."""

    text: str
    condition: Condition
    clauses: tuple[Clause, ...]
