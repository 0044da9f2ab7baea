"""Random filters over the same small pool of names and values as `support.events`.

`random_filter` takes a seeded generator and gives text that always parses under the default settings.
`filter_texts` and `conditions` are strategies for Hypothesis, over texts and trees; `token_soup` strings
together what filters are made of, mostly not to a filter.
"""

import random

from hypothesis import strategies as st

from culver.config import FilterSettings
from culver.errors import InvalidFilter
from culver.model.language import clause_text
from culver.model.language.parser import parse
from culver.model.language.predicate import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Member,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
)
from culver.model.timestamps import parse_timestamp
from culver.model.values import Kind
from support.events import (
    HOME_KINDS,
    INTEGERS_64,
    NAMES,
    REALS,
    SMALL_INTEGERS,
    STRINGS,
    TIMESTAMPS,
)

DEFAULTS = FilterSettings()
MORE_NAMES = ("type", "time", "nested.a", "nested.d", '"no such name"', "missing")
PATTERNS = ("%", "_", "a%", "%b", "%b%", "a_b", "_b%", "%a%b%", "a", "", "a\\%b", "%\\_%", "é%", "__%")
ORDERINGS = ("<", "<=", ">", ">=")
COMPARISONS = ("=", "<>", "!=", *ORDERINGS)
_LITERAL_KINDS = (Kind.INTEGER, Kind.REAL, Kind.STRING, Kind.BOOLEAN, Kind.TIMESTAMP)
_ORDERED_KINDS = (Kind.INTEGER, Kind.REAL, Kind.STRING, Kind.TIMESTAMP)
_NUMERIC_NAMES = ("a", "b", "c")


# --- text, from a seeded generator ----------------------------------------------------------------------


def random_filter(rng: random.Random) -> str:
    """A filter with one to five tests, joined by AND, OR, NOT and parentheses at random."""
    return _random_condition(rng, rng.choice((1, 1, 2, 2, 3, 3, 4, 5)))


def random_literal(rng: random.Random, kind: Kind) -> str:
    match kind:
        case Kind.INTEGER:
            return str(rng.choice(INTEGERS_64 if rng.random() < 0.2 else SMALL_INTEGERS))
        case Kind.REAL:
            return repr(rng.choice(REALS))
        case Kind.BOOLEAN:
            return rng.choice(("TRUE", "FALSE", "true"))
        case Kind.TIMESTAMP:
            return f"TIMESTAMP '{rng.choice(TIMESTAMPS)}'"
        case _:
            return _quoted(rng.choice(STRINGS))


def _random_condition(rng: random.Random, tests: int) -> str:
    if tests == 1:
        test = _random_test(rng)
        return rng.choice((test, test, test, f"NOT {test}", f"({test})", f"NOT (NOT {test})"))
    first = rng.randrange(1, tests)
    joiner = rng.choice(("AND", "AND", "OR", "and"))
    parts = [_random_condition(rng, first), _random_condition(rng, tests - first)]
    text = f" {joiner} ".join(part if rng.random() < 0.4 else f"({part})" for part in parts)
    return rng.choice((text, text, f"NOT ({text})"))


def _random_test(rng: random.Random) -> str:
    name = rng.choice(NAMES) if rng.random() < 0.9 else rng.choice(MORE_NAMES)
    kind = HOME_KINDS.get(name, Kind.STRING)
    if rng.random() < 0.15:
        kind = rng.choice(_LITERAL_KINDS)
    if rng.random() < 0.2 and name in NAMES:
        name = "data." + name
    negation = rng.choice(("", "", "NOT "))
    literal_kind = Kind.STRING if kind is Kind.STRINGS else kind
    roll = rng.random()
    if roll < 0.05:
        return f"{name} IS {negation}NULL"
    if roll < 0.10:
        return _random_calculation(rng)
    if roll < 0.13:
        return f"{name} {rng.choice(COMPARISONS)} {rng.choice(NAMES)}"
    if roll < 0.15:
        return rng.choice(("TRUE", "FALSE"))
    if kind is Kind.STRINGS or roll < 0.18:
        return f"{_quoted(rng.choice(STRINGS))} {negation}IN {name}"
    if roll < 0.32:
        kinds = [literal_kind] if rng.random() < 0.8 else list(_LITERAL_KINDS)
        count = rng.randrange(1, 5)
        return (
            f"{name} {negation}IN ({', '.join(random_literal(rng, rng.choice(kinds)) for _ in range(count))})"
        )
    if kind is Kind.STRING and roll < 0.55:
        pattern = rng.choice(PATTERNS)
        escape = " ESCAPE '\\'" if "\\" in pattern else ""
        return f"{name} {negation}LIKE {_quoted(pattern)}{escape}"
    if kind is Kind.BOOLEAN:
        return rng.choice(
            (name, f"NOT {name}", f"{name} {rng.choice(('=', '<>'))} {random_literal(rng, kind)}")
        )
    if roll < 0.60:
        low, high = random_literal(rng, literal_kind), random_literal(rng, literal_kind)
        return f"{name} {negation}BETWEEN {low} AND {high}"
    literal = random_literal(rng, literal_kind)
    if roll < 0.66:
        return f"{literal} {rng.choice(COMPARISONS)} {name}"
    return f"{name} {rng.choice(COMPARISONS)} {literal}"


def _random_calculation(rng: random.Random) -> str:
    def operand() -> str:
        return rng.choice(
            (*_NUMERIC_NAMES, "data.a", random_literal(rng, Kind.INTEGER), random_literal(rng, Kind.REAL))
        )

    def step(left: str) -> str:
        sign, right = rng.choice("+-*/"), operand()
        # One of five from a draw of four, so that the seeds of tests still draw what they did.
        return f"{left} {'%' if sign == '/' and sum(right.encode()) % 2 else sign} {right}"

    # In parentheses from the inside out, so that no two literals meet: they might divide by zero.
    left = rng.choice(_NUMERIC_NAMES)
    for _ in range(rng.randrange(2)):
        left = rng.choice(("({})", "-({})")).format(step(left))
    return f"{step(left)} {rng.choice(COMPARISONS)} {operand()}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def parsed_or_refused(text: str, settings: FilterSettings = DEFAULTS) -> Predicate | InvalidFilter:
    """The predicate, or the refusal as a value, to look at either."""
    try:
        return parse(text, settings)
    except InvalidFilter as refusal:
        return refusal


def clause_lines(predicate: Predicate) -> list[str]:
    """One line for each clause; none where the predicate matches nothing."""
    return [clause_text(clause) for clause in predicate.clauses]


# --- strategies -----------------------------------------------------------------------------------------


def filter_texts() -> st.SearchStrategy[str]:
    return st.integers(0, 2**32).map(lambda seed: random_filter(random.Random(seed)))


def conditions() -> st.SearchStrategy[Condition]:
    """Trees of every node, with literals of any type."""
    attributes = st.sampled_from(NAMES + tuple(f"data.{name}" for name in NAMES)).map(Attribute)
    numbers = st.one_of(
        st.sampled_from(SMALL_INTEGERS + INTEGERS_64),
        st.sampled_from(REALS),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
    )
    values = st.one_of(
        numbers,
        st.sampled_from(STRINGS),
        st.booleans(),
        st.sampled_from(TIMESTAMPS).map(parse_timestamp),
    )
    operands: st.SearchStrategy[Operand] = st.one_of(
        attributes,
        st.builds(Arithmetic, st.sampled_from("+-*/%"), attributes, numbers.map(Literal) | attributes),
    )
    literals = values.map(Literal)
    comparisons = st.builds(Comparison, st.sampled_from(Operator), operands, operands | literals)
    common = st.builds(Comparison, st.sampled_from(Operator), attributes, literals)

    def orders_no_booleans(comparison: Comparison) -> bool:
        right = comparison.right
        is_boolean = isinstance(right, Literal) and isinstance(right.value, bool)
        return not is_boolean or comparison.operator in (Operator.EQUAL, Operator.NOT_EQUAL)

    leaves: st.SearchStrategy[Condition] = st.one_of(
        common.filter(orders_no_booleans),
        comparisons.filter(orders_no_booleans),
        st.builds(In, attributes, st.lists(values, min_size=1, max_size=4).map(tuple)),
        st.builds(Like, attributes, st.sampled_from(PATTERNS), st.just("\\")),
        st.builds(Member, st.sampled_from(STRINGS), attributes),
        st.builds(IsNull, attributes),
        st.builds(Constant, st.booleans()),
    )

    def extended(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        several = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(st.builds(Not, inner), st.builds(And, several), st.builds(Or, several))

    return st.recursive(leaves, extended, max_leaves=6)


_TOKENS = (
    *("a", "b", "data.c", '"x y"', "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL"),
    *("TRUE", "FALSE", "TIMESTAMP", "'s'", "'%'", "'\\'", "'2026-01-01T00:00:00Z'", "1", "2.5", "1e400"),
    *(
        "9223372036854775808",
        "=",
        "<>",
        "<",
        "<=",
        "(",
        ")",
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "'",
        '"',
    ),
    *("é", ".", "\n", "\x00", "#", "''", "-1", "and"),
)


def token_soup() -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(_TOKENS), max_size=16).map(" ".join)


def random_soup(rng: random.Random) -> str:
    return rng.choice((" ", "", " ")).join(rng.choices(_TOKENS, k=rng.randrange(1, 14)))
