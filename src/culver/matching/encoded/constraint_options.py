"""From clauses to sets of categories.

An event that satisfies a clause has all categories of at least one of the clause's sets. A constraint gives one or
more options, each a few categories, and a clause the product of its constraints' options:

    symbol IN ('A', 'B') AND price BETWEEN 10 AND 19
    symbol   (equal A) or (equal B)
    price    (cell 2^4, number 0) or (cell 2^4, number 1)          4 sets

What cannot be said by categories is left out, which makes a set wider and never wrong. The encoding "paper" is that
of B-DRP, with existence and equality alone; "cells" is ours.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from culver.matching.encoded.forms import (
    AFFIX_LEVELS,
    ANY,
    BOOLEAN,
    CELL,
    CELL_LEVELS,
    DOMAIN_NAMES,
    EQUAL,
    EXISTS,
    HIGHEST_THRESHOLD,
    HOLDS,
    LEAST,
    LIST,
    MOST,
    NUMBER,
    PREFIX,
    STRING,
    SUFFIX,
    THRESHOLDS,
    TIMESTAMP,
    Category,
    CategoryForm,
    canonical_number,
)
from culver.model import Timestamp, Value
from culver.model.language import (
    Arithmetic,
    Attribute,
    Between,
    Clause,
    Computed,
    Constraint,
    Contains,
    OneOf,
    Operand,
    Pattern,
    PatternShape,
    Presence,
)

CELLS, PAPER = "cells", "paper"
ENCODINGS = (CELLS, PAPER)

CategorySet = frozenset[Category]
Option = tuple[Category, ...]

# Sets of one clause. Beyond that, constraints with many options become existence.
_MOST_SETS = 16
# A set of more categories than these is as good as never true of an event by chance.
_MOST_CATEGORIES = 6
# The most telling ones first.
_RANKS = {kind: rank for rank, kind in enumerate((EQUAL, HOLDS, PREFIX, SUFFIX, CELL, LEAST, MOST, EXISTS))}


def category_sets(clause: Clause, encoding: str) -> set[CategorySet]:
    """The sets of a clause; an empty set among them stands for every event."""
    options = [_options(constraint, encoding) for constraint in clause]
    while math.prod(map(len, options)) > _MOST_SETS:
        widest = max(range(len(options)), key=lambda place: len(options[place]))
        options[widest] = [(_existence(options[widest][0][0]),)]
    return {_essential(chosen) for chosen in product(*options)}


def _essential(chosen: tuple[Option, ...]) -> CategorySet:
    """Put options together, without existence where something better is known of the attribute."""
    every = {category for option in chosen for category in option}
    known = {(form.domain, form.attribute) for form, _ in every if form.kind != EXISTS}
    named = {form.attribute for form, _ in every if form.domain != ANY}
    kept = [
        category
        for category in every
        if category.form.kind != EXISTS
        or (
            category.form[1:3] not in known
            if category.form.domain != ANY
            else category.form.attribute not in named
        )
    ]
    if len(kept) > _MOST_CATEGORIES:
        kept = sorted(kept, key=lambda each: (_RANKS[each.form.kind], each.form, repr(each.value)))
    return frozenset(kept[:_MOST_CATEGORIES])


def _existence(category: Category) -> Category:
    return _exists(category.form.domain, category.form.attribute)


def _exists(domain: str, attribute: str) -> Category:
    return Category(CategoryForm(EXISTS, domain, attribute))


def _options(constraint: Constraint, encoding: str) -> list[Option]:
    match constraint:
        case OneOf(attribute, domain, values, negated):
            return _equalities(attribute, DOMAIN_NAMES[domain], values, negated)
        case Contains(attribute, value, negated):
            if negated:
                return [(_exists(LIST, attribute),)]
            return [(Category(CategoryForm(HOLDS, LIST, attribute), value.encode()),)]
        case Presence(attribute, present):
            return [(_exists(ANY, attribute),)] if present else [()]
        case Computed(comparison):
            operands = (comparison.left, comparison.right)
            return [tuple(found for operand in operands for found in _needed(operand, ANY))]
        case Between(attribute, domain):
            options = _interval(constraint) if encoding == CELLS else []
            return options or [(_exists(DOMAIN_NAMES[domain], attribute),)]
        case Pattern(attribute):
            found = _affixes(constraint) if encoding == CELLS and not constraint.negated else ()
            return [found or (_exists(STRING, attribute),)]


def _equalities(attribute: str, domain: str, values: tuple[Value, ...], negated: bool) -> list[Option]:
    if negated and domain == BOOLEAN and len(values) == 1:
        values, negated = (not values[0],), False
    if negated:
        return [(_exists(domain, attribute),)]
    form = CategoryForm(EQUAL, domain, attribute)
    return [(Category(form, _plain(value)),) for value in values]


def _plain(value: Value) -> int | float | bytes:
    match value:
        case str():
            return value.encode()
        case Timestamp(microseconds):
            return microseconds
        case bool():
            return int(value)
        case int() | float():
            return canonical_number(value)
        case _:
            raise TypeError(f"no scalar: {value!r}")


def _needed(operand: Operand, domain: str) -> Iterator[Category]:
    """A comparison is true only where all its attributes are there, and arithmetic only has numbers."""
    match operand:
        case Attribute(name):
            yield _exists(domain, name)
        case Arithmetic(_, left, right):
            yield from _needed(left, NUMBER)
            yield from _needed(right, NUMBER)


# --- ranges ---------------------------------------------------------------------------------------------


def _interval(bounds: Between) -> list[Option]:
    """The options of a range, none where nothing better than existence is known."""
    domain = DOMAIN_NAMES[bounds.domain]
    if domain == STRING:
        return _string_interval(bounds)
    low, high = _number(bounds.low), _number(bounds.high)
    if low is not None and high is not None:
        cells = _cells(Fraction(low), Fraction(high), bounds.high_closed)
        if cells is not None:
            level, first, last = cells
            form = CategoryForm(CELL, domain, bounds.attribute, level)
            return [(Category(form, cell),) for cell in range(first, last + 1)]
    if domain == TIMESTAMP:
        return []
    sides = []
    if low is not None and (least := _threshold_below(low)) is not None:
        sides.append(Category(CategoryForm(LEAST, NUMBER, bounds.attribute, least)))
    if high is not None and (most := _threshold_below(-high)) is not None:
        sides.append(Category(CategoryForm(MOST, NUMBER, bounds.attribute, -most)))
    return [tuple(sides)] if sides else []


def _number(bound: Value | None) -> int | float | None:
    if isinstance(bound, Timestamp):
        return bound.microseconds
    assert bound is None or isinstance(bound, int | float)
    return bound


def _cells(low: Fraction, high: Fraction, high_closed: bool) -> tuple[int, int, int] | None:
    """The finest level at which one or two cells cover a range, and the first and the last of them."""
    width = high - low
    # 2^exponent is not far from the width, so few levels are tried.
    exponent = width.numerator.bit_length() - width.denominator.bit_length() - 2
    for level in CELL_LEVELS:
        if level < exponent:
            continue
        size = Fraction(2) ** level
        first, last = math.floor(low / size), math.floor(high / size)
        if not high_closed and last * size == high and last > first:
            last -= 1
        if last - first < 2:
            return (level, first, last) if first > -(2**62) and last < 2**62 else None
    return None


def _threshold_below(bound: int | float) -> int | None:
    """The level of the greatest threshold that is not above a bound."""
    above = bisect_right(THRESHOLDS, bound)
    return above - 1 - HIGHEST_THRESHOLD if above else None


# --- strings --------------------------------------------------------------------------------------------


def _string_interval(bounds: Between) -> list[Option]:
    if not isinstance(bounds.low, str) or not isinstance(bounds.high, str):
        return []
    low, high = bounds.low.encode(), bounds.high.encode()
    common = 0
    while common < min(len(low), len(high)) and low[common] == high[common]:
        common += 1
    if (
        not bounds.high_closed
        and len(high) == common + 1
        and low[common : common + 1] == bytes((high[-1] - 1,))
    ):
        common += 1  # 'ab' <= x < 'ac': everything that begins with 'ab'
    found = _affix(PREFIX, bounds.attribute, low[:common])
    return [found] if found else []


def _affixes(pattern: Pattern) -> Option:
    """The literal texts that a string must begin and end with."""
    found: Option = ()
    if pattern.shape is not PatternShape.SUBSTRING and pattern.parts:
        if not pattern.kinds[0]:
            found += _affix(PREFIX, pattern.attribute, pattern.parts[0].encode())
        if not pattern.kinds[-1]:
            found += _affix(SUFFIX, pattern.attribute, pattern.parts[-1].encode())
    return found


def _affix(kind: str, attribute: str, text: bytes) -> Option:
    levels = [level for level in AFFIX_LEVELS if level <= len(text)]
    if not levels:
        return ()
    level = levels[-1]
    return (
        Category(
            CategoryForm(kind, STRING, attribute, level), text[:level] if kind == PREFIX else text[-level:]
        ),
    )
