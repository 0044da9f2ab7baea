"""A filter in its two forms: the condition as written (a tree), and its clauses (what indexes work on).

The reference evaluates the tree, with SQL's three values. The clauses mean the same: they are a disjunction of
conjunctions of constraints on single attributes, and an event matches when all constraints of some clause are true.
"""

import enum

import msgspec

from culver.model.values import Domain, Scalar, Value


class Operator(enum.StrEnum):
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


# --- the tree -------------------------------------------------------------------------------------------


class Attribute(msgspec.Struct, frozen=True):
    name: str


class Literal(msgspec.Struct, frozen=True, eq=False):
    """Equal only to a literal of the same type: `x * 1` and `x * 1.0` do not mean the same."""

    value: Scalar

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class Parameter(msgspec.Struct, frozen=True):
    """The value of a literal that is not known yet; `number` is its place among the filter's parameters, from 0."""

    number: int


class Arithmetic(msgspec.Struct, frozen=True):
    """`operator` is one of + - * /. Unary minus is 0 - operand, folded where the operand is a literal."""

    operator: str
    left: "Operand"
    right: "Operand"


Operand = Attribute | Literal | Arithmetic


class Comparison(msgspec.Struct, frozen=True):
    """`parse` puts a literal on the right, computes the comparison of two, and lets nothing order booleans."""

    operator: Operator
    left: Operand
    right: Operand


class In(msgspec.Struct, frozen=True):
    """`attribute IN (literals)`."""

    attribute: Attribute
    values: tuple[Scalar, ...]


class Like(msgspec.Struct, frozen=True):
    """`attribute LIKE pattern`: % is any run of characters, _ any one, unless `escape` stands before it."""

    attribute: Attribute
    pattern: str
    escape: str | None = None


class Member(msgspec.Struct, frozen=True):
    """`'value' IN attribute`: the list of strings holds the value."""

    value: str
    attribute: Attribute


class IsNull(msgspec.Struct, frozen=True):
    attribute: Attribute


class Constant(msgspec.Struct, frozen=True):
    value: bool


class Not(msgspec.Struct, frozen=True):
    condition: "Condition"


class And(msgspec.Struct, frozen=True):
    conditions: tuple["Condition", ...]


class Or(msgspec.Struct, frozen=True):
    conditions: tuple["Condition", ...]


Condition = Comparison | In | Like | Member | IsNull | Constant | Not | And | Or


# --- the clauses ----------------------------------------------------------------------------------------


class Between(msgspec.Struct, frozen=True):
    """The attribute lies between the bounds; None is no bound. `domain` is NUMBER, STRING or TIMESTAMP.

    It is never empty and has at least one bound; a point (`x = 5`) is a OneOf instead."""

    attribute: str
    domain: Domain
    low: Value | None
    low_closed: bool
    high: Value | None
    high_closed: bool


class OneOf(msgspec.Struct, frozen=True):
    """The attribute equals one of `values` (sorted, distinct, all of `domain`), or with `negated` none of them. It is
    unknown for an attribute of another domain. `domain` is NUMBER, STRING, BOOLEAN or TIMESTAMP."""

    attribute: str
    domain: Domain
    values: tuple[Scalar, ...]
    negated: bool = False


class PatternShape(enum.StrEnum):
    """The shape of a LIKE pattern with a wildcard; without one it is a OneOf."""

    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUBSTRING = "substring"
    GENERAL = "general"


class Pattern(msgspec.Struct, frozen=True):
    """A string matches a LIKE pattern, or with `negated` does not.

    `parts` are literal texts and wildcards, and `kinds[i]` is True where `parts[i]` is a wildcard. `text` is the
    literal text of a PREFIX, SUFFIX or SUBSTRING and empty for a GENERAL pattern."""

    attribute: str
    shape: PatternShape
    text: str
    parts: tuple[str, ...]
    kinds: tuple[bool, ...]
    negated: bool = False


class Contains(msgspec.Struct, frozen=True):
    """The attribute is a list of strings that holds `value`, or with `negated` one that does not."""

    attribute: str
    value: str
    negated: bool = False


class Presence(msgspec.Struct, frozen=True):
    """The attribute is present (of any type), or with `present=False` absent."""

    attribute: str
    present: bool


class Computed(msgspec.Struct, frozen=True):
    """A comparison other than that of an attribute with a literal: of two attributes, or with arithmetic."""

    comparison: Comparison


Constraint = Between | OneOf | Pattern | Contains | Presence | Computed
Clause = tuple[Constraint, ...]


class Predicate(msgspec.Struct, frozen=True):
    """A parsed filter. Without clauses it matches nothing; with an empty clause it matches everything."""

    text: str
    condition: Condition
    clauses: tuple[Clause, ...]
