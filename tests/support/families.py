"""Families of filters: many of one form, as subscribers make them, and events at their bounds.

Filters drawn one by one hardly ever ask about the same attributes in the same way. Members of a family do, so that
an index lays them out together; and events that lie at a bound, or one step beside it, tell `<` from `<=`.

    family    a few forms over the same attributes     a >= ? AND a < ? AND s = ?      a > ? AND s = ?
    member    a form and its values                    (3, 7.5, 'ab')                  (3, 'b')
    event     near the values of some member           {a: 7.499999999999999, s: 'ab'}
"""

import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from culver.model.event import Event
from culver.model.language.predicate import Predicate
from culver.model.language.prepared_filter import Prepared, prepare
from culver.model.values import Scalar, Timestamp, Value

Draw = Callable[[random.Random], Scalar]

NUMBERS = ("a", "b", "c", "d", "e")
STRINGS = ("s", "t")
MOMENTS = ("at", "until")
LOWEST, HIGHEST = -(2**63), 2**63 - 1
LIMITS: tuple[int | float, ...] = (
    *(sign * 2**53 + step for sign in (-1, 1) for step in range(-2, 3)),
    *(LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST, 2.0**53, -(2.0**53), 2.0**63, -(2.0**63), 2.0**64),
    *(1.7976931348623157e308, -1.7976931348623157e308, 5e-324, -5e-324, -0.0, 0, 1, -1, 0.5),
)
WORDS = (
    *("", "a", "ab", "abc", "aab", "b", "ba", "bab", "é", "éa", "z", "\U0001f600", "it's", "a%b", "a_b", "~"),
    *(f"northern-{i:02d}" for i in range(20)),  # alike in their first eight bytes, and beyond
    *("northern", "northern-", "northern-00a", "norther", "eightbyt", "eightbytes", "eightbyt\x01"),
)
TAGS = ("red", "green", "blue")


# --- values ---------------------------------------------------------------------------------------------


def _crowded(rng: random.Random) -> float:
    """Thousands of neighbours and a few far away: one cell of an axis holds nearly all, however it is measured."""
    return rng.choice((-1e15, 1e15, 5e-324)) if rng.random() < 0.01 else 1.0 + rng.randrange(4000) * 2.0**-52


def _clustered(rng: random.Random) -> float:
    return rng.choice((-1e12, 1e15, 3.0)) if rng.random() < 0.03 else rng.gauss(50.0, 1e-3)


def _skewed(rng: random.Random) -> float:
    return rng.choice((-1, 1, 1, 1)) * rng.lognormvariate(0.0, 6.0)


def _huge(rng: random.Random) -> float:
    """Mostly beyond 2^53: integers and reals are told apart."""
    return rng.choice((-1.0, 1.0)) * math.exp(rng.uniform(32.0, 709.0))


def _mixed(rng: random.Random) -> int | float:
    return rng.randrange(100) if rng.random() < 0.5 else rng.randrange(400) / 4


def _large(rng: random.Random) -> int | float:
    middle = rng.choice((2**53, -(2**53), 2**62, HIGHEST, LOWEST, 0))
    number = min(max(middle + rng.randrange(-40, 40), LOWEST), HIGHEST)
    return float(number) if rng.random() < 0.3 else number


NUMBER_DRAWS: dict[str, Draw] = {
    "small": lambda rng: rng.randrange(30),
    "even": lambda rng: rng.uniform(-500.0, 500.0),
    "wide": lambda rng: rng.randrange(-(2**52), 2**52),
    "mixed": _mixed,
    "skewed": _skewed,
    "clustered": _clustered,
    "crowded": _crowded,
    "equal": lambda rng: rng.choice((1, 1.0, 7.5)),
    "tiny": lambda rng: rng.choice((-1, 1)) * rng.randrange(200) * 5e-324,
    "limits": lambda rng: rng.choice(LIMITS),
    "large": _large,
    "huge": _huge,
}


def _letters(rng: random.Random) -> str:
    return "".join(rng.choices("abcé", k=rng.randrange(1, 5)))


STRING_DRAWS: tuple[Draw, ...] = (lambda rng: rng.choice(WORDS), _letters)


def _moment(rng: random.Random) -> Timestamp:
    return Timestamp(rng.choice((0, 1_767_225_600_000_000, -(10**15))) + rng.randrange(-50, 50))


def near(rng: random.Random, value: Value) -> Value:
    """The value, its neighbour up or down, or the same in the other type of number."""
    match value:
        case bool():
            return rng.random() < 0.5
        case int():
            found = rng.choice((value, value, value - 1, value + 1, float(value), value + 0.5))
            if isinstance(found, int):
                return min(max(found, LOWEST), HIGHEST)
            return math.nextafter(found, rng.choice((found, found, -math.inf, math.inf)))
        case float():
            found = math.nextafter(value, rng.choice((value, value, value, -math.inf, math.inf)))
            if not math.isfinite(found):
                return value
            if rng.random() < 0.25 and LOWEST <= found <= 2.0**62:
                return rng.choice((math.floor(found), math.ceil(found)))
            return -0.0 if found == 0 and rng.random() < 0.5 else found
        case str():
            others = (
                value + "a",
                value + "\x01",
                value[:-1],
                value[:-1] + "b",
                "a" + value,
                value + "\U0001f600",
            )
            return value if rng.random() < 0.5 else rng.choice(others)
        case Timestamp(moment):
            return Timestamp(moment + rng.choice((-1, 0, 0, 1)))
        case _:
            return value


def _between(rng: random.Random, values: Sequence[Scalar]) -> Value:
    """A number amid the bounds, or else a value near one of them."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values) >= 2 and rng.random() < 0.5:
        return min(numbers) / 2 + max(numbers) / 2
    return near(rng, rng.choice(values))


def _ascending(values: list[Scalar]) -> list[Scalar]:
    keys: list[Any] = list(values)  # of one type, all of them
    return sorted(keys)


def _mistyped(rng: random.Random) -> Value:
    return rng.choice((True, 3, 1.0, "a", "northern-03", ("red",), Timestamp(0)))


# --- filters --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a form: its text, and whose values stand for its parameters."""

    text: str
    name: str
    draw: Draw
    ordered: float = 0.0  # how often the values are made to ascend; 1.0: always, and none equals the next

    def values(self, rng: random.Random) -> list[Scalar]:
        count = self.text.count("?")
        drawn = [self.draw(rng) for _ in range(count)]
        while self.ordered == 1.0 and len(set(drawn)) < count:
            drawn = [self.draw(rng) for _ in range(count)]
        return _ascending(drawn) if rng.random() < self.ordered else drawn


MOSTLY = 0.97
Form = tuple[Piece, ...]

RANGES = (
    *("{0} >= ? AND {0} < ?", "{0} > ? AND {0} <= ?", "{0} >= ? AND {0} <= ?", "{0} > ? AND {0} < ?"),
    *("{0} BETWEEN ? AND ?", "{0} >= ? AND {0} < ?", "{0} >= ?", "{0} > ?", "{0} <= ?", "{0} < ?"),
    *("NOT {0} BETWEEN ? AND ?", "NOT {0} >= ?"),
)
EQUALITIES = ("{0} = ?", "{0} = ?", "{0} IN (?, ?)")
PREFIXES = ("a%", "ab%", "northern-0%", "northern%", "é%", "\U0001f600%", "eightbyt%", "~%")
# What is no interval; the values of these attributes are drawn from `_OTHERS`.
NEEDS = (
    *(
        "word LIKE '%b'",
        "word LIKE '%a%'",
        "word NOT LIKE '%a%'",
        "word LIKE 'a_b%'",
        "word NOT IN ('ab', 'b')",
    ),
    f"word IN ({', '.join(repr(f'northern-{i:02d}') for i in range(18))})",
    *("n NOT IN (1, 2.5, 9007199254740993)", f"n IN ({', '.join(map(str, range(0, 40, 2)))})", "n <> 3"),
    *("n IS NULL", "n IS NOT NULL", "missing IS NULL", "'red' IN tags", "NOT ('red' IN tags)"),
    *("n + 1 > m", "n < m", "on = TRUE", "NOT on", "word >= 'a' AND word LIKE '%b'"),
)
_OTHERS: dict[str, Draw | Callable[[random.Random], Value]] = {
    "s": lambda rng: rng.choice(WORDS),
    "word": lambda rng: rng.choice(WORDS),
    "n": lambda rng: rng.choice((0, 1, 2, 2.0, 2.5, 3, 39, 2**53 + 1, HIGHEST)),
    "m": lambda rng: rng.choice((0, 1, 2.5, 40, HIGHEST)),
    "tags": lambda rng: tuple(rng.choices(TAGS, k=rng.randrange(3))),
    "on": lambda rng: rng.random() < 0.5,
}


@dataclass(frozen=True, slots=True)
class Member:
    """A filter of a family. `names` says whose value each of `values` is."""

    template: str
    names: tuple[str, ...]
    values: tuple[Scalar, ...]

    def predicate(self) -> Predicate:
        return prepared(self.template).bind(self.values)


@functools.lru_cache(maxsize=4096)
def prepared(template: str) -> Prepared:
    return prepare(template)


@dataclass(frozen=True, slots=True)
class Family:
    forms: tuple[Form, ...]
    joined: tuple[str, ...]  # what stands before each piece of all forms after the first: AND, or OR

    def member(self, rng: random.Random) -> Member:
        form = rng.choice(self.forms)
        values = [piece.values(rng) for piece in form]
        names = tuple(piece.name for piece, drawn in zip(form, values, strict=True) for _ in drawn)
        text = form[0].text + "".join(
            f" {word} {piece.text}" for word, piece in zip(self.joined, form[1:], strict=True)
        )
        return Member(text, names, tuple(value for drawn in values for value in drawn))

    def members(self, rng: random.Random, count: int) -> list[Member]:
        return [self.member(rng) for _ in range(count)]


def random_family(rng: random.Random) -> Family:
    """One to five attributes with ranges, some with an equality, some with needs, some of them disjunctions."""
    parts = [_random_range(rng, name) for name in rng.sample(NUMBERS, rng.choice((1, 1, 2, 2, 3, 4, 5)))]
    if rng.random() < 0.25:
        draw = rng.choice(STRING_DRAWS)
        parts.append([Piece(_on(text, "s"), "s", draw, MOSTLY) for text in rng.choices(RANGES, k=3)])
    elif rng.random() < 0.3:
        parts.append(
            [Piece(f"s LIKE '{prefix}'", "s", STRING_DRAWS[0]) for prefix in rng.sample(PREFIXES, 3)]
        )
    if rng.random() < 0.2:
        name = rng.choice(MOMENTS)
        parts.append([Piece(_on(text, name), name, _moment, MOSTLY) for text in rng.choices(RANGES, k=3)])
    if rng.random() < 0.5:
        parts.append([_random_equality(rng)])
    parts += [
        [Piece(text, "word", STRING_DRAWS[0]) for text in rng.sample(NEEDS, rng.choice((1, 3)))]
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))
    ]
    rng.shuffle(parts)
    parts = parts[: rng.choice((1, 2, 3, 5, 8, 8))]  # now and then few attributes, or nothing but needs
    forms = tuple(tuple(rng.choice(options) for options in parts) for _ in range(rng.randrange(1, 7)))
    chance = rng.choice((0.0, 0.0, 0.0, 0.4))
    return Family(forms, tuple("OR" if rng.random() < chance else "AND" for _ in parts[1:]))


def box_family(names: Sequence[str], draws: Sequence[str], need: str = "") -> Family:
    """Closed ranges, never empty and no points, each with values from its NUMBER_DRAWS, and perhaps a need."""
    form = [
        Piece(_on("{0} >= ? AND {0} <= ?", name), name, NUMBER_DRAWS[draw], 1.0)
        for name, draw in zip(names, draws, strict=True)
    ]
    if need:
        form.append(Piece(need, "word", STRING_DRAWS[0]))
    return Family((tuple(form),), ("AND",) * (len(form) - 1))


def _random_range(rng: random.Random, name: str) -> list[Piece]:
    draw = NUMBER_DRAWS[rng.choice(sorted(NUMBER_DRAWS))]
    return [Piece(_on(text, name), name, draw, MOSTLY) for text in rng.choices(RANGES, k=4)]


def _random_equality(rng: random.Random) -> Piece:
    """With one of a few values, so that many members share each."""
    name = rng.choice((*NUMBERS, *STRINGS, "on"))
    if name == "on":
        return Piece("on = ?", name, lambda rng: rng.random() < 0.5)
    draw = rng.choice(STRING_DRAWS) if name in STRINGS else NUMBER_DRAWS[rng.choice(sorted(NUMBER_DRAWS))]
    values = [draw(rng) for _ in range(rng.randrange(1, 5))]
    return Piece(_on(rng.choice(EQUALITIES), name), name, lambda rng: rng.choice(values))


def _on(text: str, name: str) -> str:
    return "(" + text.format(name) + ")"


# --- events ---------------------------------------------------------------------------------------------


class Events:
    """Draws events near the bounds of some members."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._values: dict[str, list[Scalar]] = {}
        for member in members:
            for name, value in zip(member.names, member.values, strict=True):
                self._values.setdefault(name, []).append(value)

    def draw(self, rng: random.Random) -> Event:
        """Mostly near the bounds of one member, so that all of its ranges may hold at once; now and then without
        an attribute, or with one of another type."""
        chosen = rng.choice(self._members)
        data: dict[str, Value] = {}
        for name, values in self._values.items():
            own = [value for each, value in zip(chosen.names, chosen.values, strict=True) if each == name]
            data[name] = _between(rng, own) if own else near(rng, rng.choice(values))
        for name, draw in _OTHERS.items():
            if name not in data:
                data[name] = draw(rng)
        for name in list(data):
            chance = rng.random()
            if chance < 0.03:
                del data[name]
            elif chance < 0.06:
                data[name] = _mistyped(rng)
        return Event({}, data, b"{}")

    def several(self, rng: random.Random, count: int) -> list[Event]:
        return [self.draw(rng) for _ in range(count)]
