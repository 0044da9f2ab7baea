"""Categories, the forms that they come in, and their hashes.

A category is something that can be said of one attribute of an event and that a constraint can ask for (B-DRP,
section 3, has the first two kinds). Its form is what it says without the value:

    exists:number:price        the attribute is there, as a number ("any": of any type)
    equal:string:symbol        ... and equals a value
    holds:list:tags            ... is a list of strings that holds a value
    cell:number:price:4        ... lies in a cell of 2^4, counted from 0
    least:number:price:25      ... is at least `threshold(25)`, which is 16
    most:number:price:27       ... is at most `threshold(27)`, which is 64
    prefix:string:name:3       ... begins with certain 3 bytes of UTF-8
    suffix:string:name:2       ... ends with certain 2 bytes

An event has up to one category of a form (a list may have several), and only categories of forms that some predicate
uses. Of forms that differ in the last number, the level, one is coarser than another: a cell of 2^6 holds four cells
of 2^4, and a prefix of 2 bytes is that of all prefixes of 3 bytes that begin with it. Everything is coarser than
nothing and finer than `exists`.

Hashes are the same in every process, on every machine and in every version. `event_vectors` has compiled twins of the
functions here, which must agree.
"""

import math
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from culver.model import Domain, Event, Timestamp, Value, domain_of

EXISTS, EQUAL, HOLDS = "exists", "equal", "holds"
CELL, LEAST, MOST, PREFIX, SUFFIX = "cell", "least", "most", "prefix", "suffix"

ANY = "any"
DOMAIN_NAMES = {
    Domain.NUMBER: "number",
    Domain.STRING: "string",
    Domain.BOOLEAN: "boolean",
    Domain.TIMESTAMP: "timestamp",
    Domain.STRINGS: "list",
}
NUMBER, STRING, BOOLEAN, TIMESTAMP, LIST = DOMAIN_NAMES.values()

CELL_LEVELS = range(-20, 61, 2)
AFFIX_LEVELS = (1, 2, 4, 8, 16, 32)
_LOWEST_EXPONENT = -20
HIGHEST_THRESHOLD = 80
"""The level of the greatest threshold; that of the least one is its negative."""
_THRESHOLD_LEVELS = range(-HIGHEST_THRESHOLD, HIGHEST_THRESHOLD + 1)

# One without levels has the level 0, which is not written.
DOMAINS_OF_KIND = {
    EXISTS: (NUMBER, STRING, BOOLEAN, TIMESTAMP, LIST, ANY),
    EQUAL: (NUMBER, STRING, BOOLEAN, TIMESTAMP),
    HOLDS: (LIST,),
    CELL: (NUMBER, TIMESTAMP),
    LEAST: (NUMBER,),
    MOST: (NUMBER,),
    PREFIX: (STRING,),
    SUFFIX: (STRING,),
}
_LEVELS_OF_KIND: dict[str, frozenset[int]] = {
    CELL: frozenset(CELL_LEVELS),
    LEAST: frozenset(_THRESHOLD_LEVELS),
    MOST: frozenset(_THRESHOLD_LEVELS),
    PREFIX: frozenset(AFFIX_LEVELS),
    SUFFIX: frozenset(AFFIX_LEVELS),
}
# Of these, the higher level is the coarser one.
_COARSER_UPWARDS = (CELL, MOST)

WORD = 2**64 - 1
FIRST, SECOND, STEP = 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0x9E37_79B9_7F4A_7C15
REAL_MARK = 0x5851_F42D_4C95_7F2D
"""Keeps the bits of a real apart from an integer with the same bits."""


class CategoryForm(NamedTuple):
    kind: str
    domain: str
    attribute: str
    level: int = 0

    @property
    def has_levels(self) -> bool:
        return self.kind in _LEVELS_OF_KIND

    @property
    def has_choice(self) -> bool:
        """Whether there are forms of this kind for several domains."""
        return len(DOMAINS_OF_KIND[self.kind]) > 1

    @property
    def text(self) -> str:
        start = f"{self.kind}:{self.domain}:{self.attribute}"
        return f"{start}:{self.level}" if self.has_levels else start

    @classmethod
    def parse(cls, text: str) -> "CategoryForm":
        """Raises ValueError for what is no form's text."""
        kind, domain, attribute = text.split(":", 2)
        level = "0"
        if kind in _LEVELS_OF_KIND:
            attribute, _, level = attribute.rpartition(":")
        form = cls(kind, domain, attribute, int(level))
        levels = _LEVELS_OF_KIND.get(kind, frozenset((0,)))
        if domain not in DOMAINS_OF_KIND.get(kind, ()) or form.level not in levels or form.text != text:
            raise ValueError(text)
        return form


class Category(NamedTuple):
    """`value` is the number of a cell, the bytes of a string, a boolean's, timestamp's or whole number's integer, any
    other number's real, or None where the form says everything."""

    form: CategoryForm
    value: int | float | bytes | None = None


def threshold(level: int) -> float:
    """The thresholds of `least` and `most`: 0, and the powers of two from 2^-20 on, of both signs."""
    return math.copysign(2.0 ** (abs(level) - 1 + _LOWEST_EXPONENT), level) if level else 0.0


THRESHOLDS = tuple(threshold(level) for level in _THRESHOLD_LEVELS)


def is_coarser(form: CategoryForm, than: CategoryForm) -> bool:
    """Whether each category of one form lies within one of the other; both differ in their levels only."""
    return form.level > than.level if form.kind in _COARSER_UPWARDS else form.level < than.level


def coarsened(category: Category, form: CategoryForm) -> Category:
    """The category of a coarser form, which differs in its level or is an `exists`, that holds all of this one."""
    kind, value = category.form.kind, category.value
    if form.kind == EXISTS or kind in (LEAST, MOST):
        return Category(form)
    if kind == CELL:
        assert isinstance(value, int)
        return Category(form, value >> (form.level - category.form.level))
    assert isinstance(value, bytes)
    return Category(form, value[: form.level] if kind == PREFIX else value[-form.level :])


def existence(form: CategoryForm) -> CategoryForm:
    return CategoryForm(EXISTS, form.domain, form.attribute)


# --- hashes ---------------------------------------------------------------------------------------------


def hash_integer(integer: int) -> int:
    """Make all bits depend on all bits of the lowest 64 (the finaliser of SplitMix64, as in `portable_keys`)."""
    bits = (integer + STEP) & WORD
    bits ^= bits >> 30
    bits = bits * FIRST & WORD
    bits ^= bits >> 27
    bits = bits * SECOND & WORD
    return bits ^ (bits >> 31)


def hash_bytes(data: bytes) -> int:
    """Eight bytes at a time, as in `portable_keys`."""
    bits = len(data) * STEP & WORD
    for place in range(0, len(data), 8):
        bits ^= int.from_bytes(data[place : place + 8].ljust(8, b"\0"), "big")
        bits = bits * FIRST & WORD
        bits ^= bits >> 29
    bits = bits * SECOND & WORD
    bits ^= bits >> 31
    bits = bits * STEP & WORD
    return bits ^ (bits >> 32)


@lru_cache(maxsize=1 << 14)
def seed_of(form: CategoryForm) -> int:
    return hash_bytes(form.text.encode())


@lru_cache(maxsize=1 << 16)
def hash_category(category: Category) -> int:
    """64 bits, of which the bits of a vector are made (see `bloom_vectors`)."""
    value = category.value
    if value is None:
        hashed = 0
    elif isinstance(value, bytes):
        hashed = hash_bytes(value)
    elif isinstance(value, float):
        hashed = hash_integer(int.from_bytes(struct.pack("<d", value), "little") ^ REAL_MARK)
    else:
        hashed = hash_integer(value)
    return hash_integer(seed_of(category.form) ^ hashed)


# --- the categories of an event, slowly -----------------------------------------------------------------


def canonical_number(value: int | float) -> int | float:
    """One form for numbers that are equal: an integer where the number is one of 64 bits."""
    if isinstance(value, float) and value.is_integer() and -(2.0**63) <= value < 2.0**63:
        return int(value)
    return value


def cell_of(value: int | float, level: int) -> int | None:
    """The cell of 2^level that a number lies in; None where its number needs more than 63 bits."""
    if isinstance(value, int):
        cell = value >> level if level >= 0 else value << -level
    else:
        scaled = math.ldexp(value, -level) if abs(value) < 2.0**900 else math.inf
        if not abs(scaled) < 2.0**62:
            return None
        cell = -1 if value < 0 and scaled == 0 else math.floor(scaled)
    return cell if -(2**62) < cell < 2**62 else None


def categories_of_event(event: Event, forms: Iterable[CategoryForm]) -> Iterator[Category]:
    """The reference for `event_vectors`."""
    for form in forms:
        value = event.value(form.attribute)
        if value is not None:
            yield from _categories_of_value(value, form)


def _categories_of_value(value: Value, form: CategoryForm) -> Iterator[Category]:
    domain = DOMAIN_NAMES[domain_of(value)]
    if form.domain not in (domain, ANY):
        return
    if form.kind == EXISTS:
        yield Category(form)
    elif isinstance(value, tuple):
        yield from (Category(form, member.encode()) for member in value)
    elif isinstance(value, str):
        data = value.encode()
        if form.kind == EQUAL:
            yield Category(form, data)
        elif len(data) >= form.level:
            yield Category(form, data[: form.level] if form.kind == PREFIX else data[-form.level :])
    else:
        number = value.microseconds if isinstance(value, Timestamp) else value
        if form.kind == EQUAL:
            yield Category(form, canonical_number(number))
        elif form.kind == CELL:
            cell = cell_of(number, form.level)
            if cell is not None:
                yield Category(form, cell)
        else:
            bound = threshold(form.level)
            if float(number) >= bound if form.kind == LEAST else float(number) <= bound:
                yield Category(form)
