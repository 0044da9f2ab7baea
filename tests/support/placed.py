"""Registrations in portions, a batch of events, and who satisfies what, for tests of placements.

portions     tables as they would come to a placement, one after another
pairs        (event, number) of every match, as the reference finds them
"""

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.workloads import named
from culver.matching.filters.reference import ReferenceFilter
from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import Constant, Predicate
from culver.model.language.prepared_filter import prepare
from culver.model.values import Timestamp, Value
from culver.placement.placement import NOWHERE, Route
from support.events import random_event
from support.families import Events, random_family
from support.filters import random_filter

SEED = 20_260_117
_EVENTS = 120
# The first ones too few to learn from, then enough of them together, then many at once.
_PORTIONS = (1, 70, 90)


@dataclass(frozen=True, slots=True)
class Scene:
    portions: tuple[ClauseTable, ...]
    batch: pa.RecordBatch
    pairs: NDArray[np.int64]  # (matches, 2): event and number


def _scene(predicates: Sequence[Predicate], batch: pa.RecordBatch) -> Scene:
    numbers = random.Random(SEED).sample(range(10**6), len(predicates))
    entries = [Entry(number, predicate) for number, predicate in zip(numbers, predicates, strict=True)]
    portions = []
    rest = entries
    for size in (*_PORTIONS, len(entries)):
        if rest:
            portions.append(compile_entries(rest[:size]))
        rest = rest[size:]
    return Scene(tuple(portions), batch, _pairs(entries, batch))


def _pairs(entries: Sequence[Entry], batch: pa.RecordBatch) -> NDArray[np.int64]:
    reference = ReferenceFilter()
    reference.add((entry.number, entry.predicate) for entry in entries)
    matches = reference.match(batch)
    events = np.repeat(np.arange(batch.num_rows), np.diff(matches.offsets))
    return np.stack([events, matches.numbers], axis=1)


def _batch(events: Sequence[Event]) -> pa.RecordBatch:
    return concat(encode(events, 0))


def _random() -> Scene:
    """Disjunctions, NOT, IS NULL, patterns, lists, arithmetic, and attributes of all types or none."""
    rng = random.Random(SEED)
    predicates = [parse(random_filter(rng)) for _ in range(400)]
    predicates += [Predicate("FALSE", Constant(False), ()), parse("TRUE"), parse("a > 3 AND a < 2")]
    return _scene(predicates, _batch([random_event(rng) for _ in range(_EVENTS)]))


def _family(seed: int) -> Scene:
    """Many filters of a few forms, and events at their bounds."""
    rng = random.Random(seed)
    members = random_family(rng).members(rng, 300)
    events = Events(members).several(rng, _EVENTS)
    return _scene([member.predicate() for member in members], _batch(events))


def _workload(name: str, count: int, events: int) -> Scene:
    workload = named(name)
    return _scene([parse(text) for text in workload.filters(count, SEED)], workload.event_batch(events, SEED))


def _strings() -> Scene:
    """Equalities, lists, prefixes and ranges of one attribute, some alike in more than their first eight bytes."""
    rng = random.Random(SEED)
    words = [f"{rng.choice(('', 'n', 'northern-'))}{rng.randrange(60):02d}" for _ in range(80)]
    forms: tuple[Callable[[], str], ...] = (
        lambda: f"s = '{rng.choice(words)}'",
        lambda: f"s = '{rng.choice(words)}' AND a > {rng.randrange(9)}",
        lambda: f"s IN ('{rng.choice(words)}', '{rng.choice(words)}')",
        lambda: f"s LIKE '{rng.choice(words)}%'",
        lambda: f"s >= '{rng.choice(words)}' AND s < '{rng.choice(words)}~'",
        lambda: f"s <> '{rng.choice(words)}'",
        lambda: f"s = '{rng.choice(words)}' OR s IS NULL",
    )
    shares = (8, 8, 3, 1, 1, 1, 1)
    filters = [form() for form in rng.choices(forms, shares, k=400)]
    values = [*words, *(word + "x" for word in words), 7, True, ("n01",), None]
    events: list[Event] = []
    for _ in range(_EVENTS):
        value = rng.choice(values)
        data = {"a": rng.randrange(10)} if value is None else {"a": rng.randrange(10), "s": value}
        events.append(Event({}, data, b"{}"))
    return _scene([parse(text) for text in filters], _batch(events))


def _several() -> Scene:
    """Applications that ask about attributes of their own, narrowly and widely, and events of one or of two."""
    rng = random.Random(SEED)

    def between(name: str, width: float) -> str:
        low = rng.uniform(-10, 1000)
        return f"{name} BETWEEN {low} AND {low + width}"

    forms: tuple[Callable[[], str], ...] = (
        lambda: f"{between('x', 50)} AND {between('y', 60)} AND {between('z', 40)}",
        lambda: f"{between('x', 900)} AND {between('y', 60)} AND {between('z', 40)}",
        lambda: (
            f"({between('x', 50)} AND {between('y', 9)}) OR ({between('x', 10)} AND {between('y', 9)} AND z > 500)"
        ),
        lambda: f"{between('x', -50)} AND {between('y', 60)} AND {between('z', 40)}",
        lambda: (
            f"symbol = 's{rng.randrange(40)}' AND when > TIMESTAMP '2024-01-{rng.randrange(10, 28)}T00:00:00Z'"
        ),
        lambda: f"symbol IN ('s{rng.randrange(40)}', 's{rng.randrange(40)}') AND flag = {rng.random() < 0.5}",
        lambda: f"symbol IN ({', '.join(repr(f's{n}') for n in range(20))})",
        lambda: f"level = {rng.randrange(9007199254740990, 9007199254740999)} AND x > {rng.uniform(0, 1000)}",
        lambda: f"x = {rng.randrange(100)}.0 AND y = {rng.randrange(1000)} AND z <= {rng.randrange(1000)}",
    )
    filters = [form() for form in rng.choices(forms, (14, 1, 3, 1, 6, 3, 1, 1, 1), k=500)]
    events: list[Event] = []
    for _ in range(_EVENTS):
        data: dict[str, Value] = {}
        if rng.random() < 0.7:
            data |= {name: rng.choice((rng.uniform(0, 1000), rng.randrange(1000))) for name in "xyz"}
        if rng.random() < 0.6:
            data |= {"symbol": f"s{rng.randrange(40)}", "flag": rng.random() < 0.5, "level": 9007199254740993}
            data["when"] = Timestamp(1_705_000_000_000_000 + rng.randrange(10**12))
        if rng.random() < 0.2:
            data["x"] = rng.choice(("5", True, 2**62, -1e308))
        if data and rng.random() < 0.1:
            data.pop(rng.choice(sorted(data)))
        events.append(Event({}, data, b"{}"))
    return _scene([parse(text) for text in filters], _batch(events))


def _bulk() -> Scene:
    """Rows of one prepared filter, whose clauses do not lie in the order of registrations."""
    rng = np.random.default_rng(SEED)
    prepared = prepare("(x >= ? AND x < ?) OR (x = ? AND y > ?)")
    low, other, y = (rng.integers(0, 100, 300) for _ in range(3))
    columns = [low, low + 5, other, y]
    numbers = rng.permutation(10_000)[:300]
    entries = [
        Entry(int(number), prepared.bind(tuple(int(column[row]) for column in columns)))
        for row, number in enumerate(numbers)
    ]
    pieces = [slice(0, 20), slice(20, 300)]
    portions = [
        compile_rows(prepared, numbers[piece], [column[piece] for column in columns]) for piece in pieces
    ]
    values = rng.integers(0, 110, (_EVENTS, 2)).tolist()
    batch = _batch([Event({}, {"x": x, "y": y}, b"{}") for x, y in values])
    return Scene(tuple(portions), batch, _pairs(entries, batch))


SCENES: dict[str, Callable[[], Scene]] = {
    "random": _random,
    "strings": _strings,
    "bulk": _bulk,
    "several applications": _several,
    **{f"family {seed}": functools.partial(_family, seed) for seed in (0, 1, 16, 52)},
    "W1": lambda: _workload("W1", 400, 60),
    "W2": lambda: _workload("W2", 400, 60),
    "W3": lambda: _workload("W3", 170, 20),
}


@functools.cache
def scene(name: str) -> Scene:
    return SCENES[name]()


class Holders:
    """Which sets hold what has been assigned so far."""

    def __init__(self, sets: int) -> None:
        self._numbers = np.empty(0, np.int64)
        self._held = np.empty((0, sets), np.bool_)

    def add(self, table: ClauseTable, held: NDArray[np.bool_]) -> None:
        numbers = np.concatenate([self._numbers, table.numbers])
        order = np.argsort(numbers)
        self._numbers, self._held = numbers[order], np.concatenate([self._held, held])[order]

    def wrong(self, sets: Sequence[NDArray[np.int64]], played: Scene) -> NDArray[np.int64]:
        """The matches of what is assigned that not exactly one of the sets holds which get the event."""
        events, numbers = played.pairs[:, 0], played.pairs[:, 1]
        places = np.searchsorted(self._numbers, numbers).clip(max=len(self._numbers) - 1)
        found = np.zeros(len(events), np.int64)
        for each in sets:
            got = each[events]
            found += (got != NOWHERE) & self._held[places, got]
        wrong: NDArray[np.int64] = played.pairs[(self._numbers[places] == numbers) & (found != 1)]
        return wrong


def as_chosen(route: Route) -> Iterator[list[NDArray[np.int64]]]:
    """The sets that get each event: every candidate once for all events, and mixtures."""
    for place in range(max(choice.shape[1] for choice in route.choices)):
        yield [_candidates(choice, np.full(route.events, place)) for choice in route.choices]
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        yield [_candidates(choice, rng.integers(0, 9, route.events)) for choice in route.choices]


def _candidates(choice: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    count = np.maximum(1, np.count_nonzero(choice != NOWHERE, axis=1))
    found: NDArray[np.int64] = choice[np.arange(len(choice)), places % count]
    return found
