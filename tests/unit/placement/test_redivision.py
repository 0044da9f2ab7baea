"""Slices that come and go: what is kept and what is filled anew is what assigning everything anew would give."""

import functools
import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import KeyLine
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from culver.model.values import Value
from culver.placement.divisions.layer import Layer
from culver.placement.divisions.range_division import RangeDivision
from culver.placement.mpartition import EventSpace, MPartition, OneDimension, Redivision
from support.placed import Holders, Scene, as_chosen, scene

Steps = Sequence[tuple[bool, int]]
KINDS = {kind.name: kind for kind in (MPartition, EventSpace, OneDimension)}
STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 99)), min_size=1, max_size=6)


def next_division(placement: MPartition, step: tuple[bool, int]) -> Redivision:
    """Add a slice, or remove one, by any number."""
    adds, number = step[0] or placement.slices == 1, step[1] % placement.slices
    return placement.with_slice_added(number) if adds else placement.with_slice_removed(number)


@functools.cache
def table_of(name: str) -> ClauseTable:
    return ClauseTable.joined(scene(name).portions)


@functools.cache
def learnt(kind: str, name: str, slices: int) -> MPartition:
    return KINDS[kind].learnt(table_of(name), slices)


def check(placement: MPartition, held: NDArray[np.bool_], table: ClauseTable, played: Scene) -> None:
    holders = Holders(len(placement.homes))
    holders.add(table, held)
    for sets in as_chosen(placement.route(played.batch)):
        assert not len(holders.wrong(sets, played))


@pytest.mark.parametrize("name", ["several applications", "W1", "W2", "family 16"])
@pytest.mark.parametrize("kind", KINDS.values())
@settings(max_examples=10, deadline=None, derandomize=True)
@given(slices=st.integers(1, 5), steps=STEPS)
def test_moved_registrations_are_where_assigning_anew_would_put_them(
    kind: type[MPartition], name: str, slices: int, steps: Steps
) -> None:
    table = table_of(name)
    placement = learnt(kind.name, name, slices)
    held = placement.assign(table)
    for step in steps:
        redivided = next_division(placement, step)
        placement = redivided.placement
        anew = placement.assign(table)
        moved = np.zeros_like(anew)
        kept = np.flatnonzero(redivided.kept >= 0)
        moved[:, redivided.kept[kept]] = held[:, kept]
        among: NDArray[np.bool_] = np.logical_or.reduce(held[:, redivided.sources], axis=1)
        filled = placement.assign(table.select_registrations(among))
        moved[np.ix_(among, redivided.changed)] = filled[:, redivided.changed]
        assert np.array_equal(moved, anew)
        assert not set(redivided.kept[kept].tolist()) & set(redivided.changed.tolist())
        state = json.loads(json.dumps(placement.state()))
        assert np.array_equal(kind.from_state(placement.slices, state).assign(table), anew)
        held = anew
    check(placement, held, table, scene(name))


def test_a_new_slice_takes_half_of_each_segment_of_the_loaded_one_and_leaves_the_others_alone() -> None:
    table = table_of("W1")
    before = MPartition.learnt(table, 4)
    redivided = before.with_slice_added(2)
    after, sizes = redivided.placement, redivided.placement.assign(table).sum(axis=0)
    assert after.slices == 5
    dimensions = len(before.layers[0].divisions)
    assert dimensions == 4
    new, loaded = (sizes[1 + 5 * np.arange(dimensions) + own] for own in (4, 2))
    old = before.assign(table).sum(axis=0)[1 + 4 * np.arange(dimensions) + 2]
    assert (0.3 * old < new).all()
    assert (new < 0.95 * old).all()
    assert (0.3 * old < loaded).all()
    assert redivided.sources.tolist() == [3, 7, 11, 15]  # slice 2 in each dimension
    assert set(after.homes[redivided.changed].tolist()) == {0, 2, 3, 4}  # with the backups of slices 2 and 4


def test_a_second_slice_brings_backups_even_where_nothing_can_be_halved() -> None:
    one, none = np.zeros(1, np.int64), np.empty(0, np.int64)
    divisions = tuple(RangeDivision((name, KeyLine.NUMBERS), none, one, none) for name in "xy")
    alone = MPartition(1, [Layer(divisions, 1)])
    redivided = alone.with_slice_added(0)
    table = compile_entries([Entry(1, parse("x = 1 AND y = 1"))])
    assert np.flatnonzero(redivided.placement.assign(table)[0]).tolist() == [1, 3, 5]
    assert redivided.kept.tolist() == [0, 1, 3]
    assert 5 in redivided.changed
    assert alone.assign(table)[0][redivided.sources].any()


def test_buckets_are_halved_by_load() -> None:
    table = table_of("W2")
    redivided = EventSpace.learnt(table, 2).with_slice_added(0)
    sizes = redivided.placement.assign(table).sum(axis=0)[1:]
    assert sizes[[0, 2]].sum() == pytest.approx(sizes[1], rel=0.1)
    assert sizes[0] == pytest.approx(sizes[2], rel=0.1)
    assert redivided.kept.tolist() == [0, -1, 2]


def test_neighbours_take_over_what_a_removed_slice_had() -> None:
    table = table_of("bulk")
    before = EventSpace.learnt(table, 4)
    redivided = before.with_slice_removed(1)
    assert redivided.placement.slices == 3
    assert redivided.kept.tolist() == [0, -1, -1, -1, 3]
    assert redivided.sources.tolist() == [1, 2, 3]
    assert redivided.changed.tolist() == [1, 2]
    (dimension,) = redivided.placement.describe()[0]
    assert [each["slice"] for each in dimension["segments"]] == [0, 1, 2]


def test_a_slice_that_is_not_there_and_the_last_one_cannot_go() -> None:
    placement = MPartition(2)
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match="there is no slice"):
            placement.with_slice_removed(wrong)
        with pytest.raises(ValueError, match="there is no slice"):
            placement.with_slice_added(wrong)
    with pytest.raises(ValueError, match="the only slice"):
        MPartition(1).with_slice_removed(0)


NUMBERS = st.one_of(
    st.integers(-20, 1020),
    st.floats(-20, 1020, allow_nan=False).map(lambda value: round(value, 3)),
    st.sampled_from([0, -0.0, 2**53 + 1, -(2**62), 1e300, 5e-324]),
)
TERMS = st.one_of(
    st.tuples(st.sampled_from("xyz"), NUMBERS, NUMBERS).map(
        lambda t: f"{t[0]} BETWEEN {t[1]!r} AND {t[2]!r}"
    ),
    st.tuples(st.sampled_from("xyz"), NUMBERS, st.integers(0, 60)).map(
        lambda t: f"{t[0]} >= {t[1]!r} AND {t[0]} < {t[1] + t[2]!r}"
    ),
    st.tuples(st.sampled_from("xyz"), st.sampled_from(["<", ">", "=", "<>"]), NUMBERS).map(
        lambda t: f"{t[0]} {t[1]} {t[2]!r}"
    ),
    st.integers(0, 45).map(lambda n: f"symbol = 's{n}'"),
    st.lists(st.integers(0, 45), min_size=1, max_size=10).map(
        lambda ns: f"symbol IN ({', '.join(repr(f's{n}') for n in ns)})"
    ),
    st.sampled_from(
        ["symbol LIKE 's1%'", "flag = TRUE", "x IS NULL", "y IS NOT NULL", "NOT z > 500", "TRUE"]
    ),
)
CLAUSES = st.lists(TERMS, min_size=1, max_size=4).map(" AND ".join)
FILTERS = st.lists(CLAUSES, min_size=1, max_size=3).map(lambda each: " OR ".join(f"({one})" for one in each))
VALUES: st.SearchStrategy[Value] = st.one_of(NUMBERS, st.sampled_from(["s1", "s2", True]))
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "x": VALUES,
        "y": VALUES,
        "z": VALUES,
        "symbol": st.one_of(st.integers(0, 45).map(lambda n: f"s{n}"), VALUES),
        "flag": st.booleans(),
    },
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    texts=st.lists(FILTERS, min_size=1, max_size=12),
    data=st.lists(EVENTS, min_size=1, max_size=12),
    slices=st.integers(2, 5),
    steps=STEPS,
)
def test_whatever_comes_later_is_found_exactly_once(
    texts: list[str], data: list[dict[str, Value]], slices: int, steps: Steps
) -> None:
    placement = learnt(MPartition.name, "several applications", slices)
    assert len(placement.layers) > 1
    assert max(len(layer.divisions) for layer in placement.layers) > 1
    for step in steps:
        placement = next_division(placement, step).placement
    predicates = [parse(text) for text in texts]
    events = [Event({}, each, b"{}") for each in data]
    table = compile_entries(Entry(number, each) for number, each in enumerate(predicates))
    pairs = [
        (row, number)
        for row, event in enumerate(events)
        for number, predicate in enumerate(predicates)
        if evaluate(predicate.condition, event) is True
    ]
    batch = concat(encode(events, 0))
    check(
        placement,
        placement.assign(table),
        table,
        Scene((table,), batch, np.array(pairs, np.int64).reshape(-1, 2)),
    )
