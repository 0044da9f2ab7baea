"""What every placement promises, run on all of them, through every candidate."""

import json

import numpy as np
import pyarrow as pa
import pytest

from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import compile_entries
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.search.columnar_matcher import ColumnarMatcher
from culver.matching.index.segments.columnar_segment import segment_in_memory
from culver.matching.index.segments.segment_file import SegmentView
from culver.matching.index.storage.partitioner import ANYWHERE
from culver.placement.forwarding import SetLoad
from culver.placement.placement import NOWHERE, ChosenSets, Placement
from culver.plugins import PLACEMENTS, forwarding_named, placement_named
from support.placed import SCENES, Holders, Scene, as_chosen, scene

SLICES = (1, 2, 3, 4, 7)
EMPTY = compile_entries([])


@pytest.fixture(params=sorted(PLACEMENTS))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=sorted(SCENES), scope="module")
def played(request: pytest.FixtureRequest) -> Scene:
    return scene(request.param)


def made(name: str, slices: int, played: Scene) -> Placement:
    """Learnt from all that is to come."""
    return placement_named(name).learnt(ClauseTable.joined(played.portions), slices)


def check(placement: Placement, holders: Holders, played: Scene) -> None:
    """Exactly one set both holds the registration and gets the event, for each match, whichever candidates get it."""
    route = placement.route(played.batch)
    assert all(len(choice) == played.batch.num_rows for choice in route.choices)
    for sets in as_chosen(route):
        wrong = holders.wrong(sets, played)
        assert not len(wrong), (placement.state(), wrong[:5])


def chosen_by(policy: str, placement: Placement, batch: pa.RecordBatch) -> ChosenSets:
    """What a forwarding policy makes of the route, before anything is measured."""
    unknown = np.zeros(len(placement.homes))
    sizes = np.ones(len(placement.homes), np.int64)
    load = SetLoad(placement.homes, placement.slices, sizes, unknown, unknown, unknown, unknown)
    choices = placement.route(batch).choices
    return forwarding_named(policy)().choose(load, choices, np.zeros(batch.num_rows), first=5)


def reborn(placement: Placement) -> Placement:
    state = json.loads(json.dumps(placement.state()))
    return placement_named(placement.name).from_state(placement.slices, state)


@pytest.mark.slow(seconds=0.1)
@pytest.mark.parametrize(("slices", "is_learnt"), [(1, True), (2, True), (4, True), (7, True), (3, False)])
def test_each_match_is_found_in_exactly_one_set_while_registrations_come(
    name: str, slices: int, is_learnt: bool, played: Scene
) -> None:
    placement = made(name, slices, played) if is_learnt else placement_named(name)(slices)
    assert placement.slices == slices
    assert set(placement.homes.tolist()) <= {ANYWHERE, *range(slices)}
    holders = Holders(len(placement.homes))
    for table in played.portions:
        held = placement.assign(table)
        assert held.shape == (len(table.numbers), len(placement.homes))
        assert held.any(axis=1).all()
        holders.add(table, held)
        check(placement, holders, played)


@pytest.mark.parametrize("slices", [3])
def test_what_was_learnt_survives_as_json(name: str, slices: int, played: Scene) -> None:
    placement, other = made(name, slices, played), made(name, slices, played)
    holders = Holders(len(placement.homes))
    for table in played.portions:
        other = reborn(other)
        assert np.array_equal(other.homes, placement.homes)
        held = placement.assign(table)
        assert np.array_equal(other.assign(table), held)
        holders.add(table, held)
        check(reborn(other), holders, played)
        assert len(json.dumps(other.state())) < 100_000


@pytest.mark.slow(seconds=0.5)
def test_sets_that_really_match_find_what_the_reference_finds(name: str) -> None:
    for played in (scene("random"), scene("several applications")):
        placement = made(name, 3, played)
        held = [placement.assign(table) for table in played.portions]
        for policy in ("adaptive", "random"):
            sets = chosen_by(policy, placement, played.batch).sets
            found: list[tuple[int, int]] = []
            for number in range(len(placement.homes)):
                events = np.flatnonzero(np.logical_or.reduce([each == number for each in sets]))
                tables = [
                    table.select_registrations(marks[:, number])
                    for table, marks in zip(played.portions, held, strict=True)
                ]
                parts = [SegmentView(segment_in_memory(table)) for table in tables if len(table.numbers)]
                matches = ColumnarMatcher(parts).match(BatchColumns(played.batch.take(events)), 0)
                rows = np.repeat(events, np.diff(matches.offsets))
                found += zip(rows.tolist(), matches.numbers.tolist(), strict=True)
            assert sorted(found) == sorted(map(tuple, played.pairs.tolist()))


@pytest.mark.parametrize("slices", SLICES)
def test_the_end_of_a_registration_reaches_its_holders(name: str, slices: int) -> None:
    placement = made(name, slices, scene("W2"))
    for table in scene("W2").portions:
        held = placement.assign(table)
        assert (placement.holders(table.numbers) >= held).all()


def test_nothing_assigned_and_no_events_are_fine(name: str) -> None:
    batch = scene("W2").batch
    for placement in (
        placement_named(name)(3),
        placement_named(name).learnt(EMPTY, 3),
        made(name, 3, scene("W2")),
    ):
        sets = len(placement.homes)
        assert placement.assign(EMPTY).shape == (0, sets)
        assert placement.holders(np.empty(0, np.int64)).shape == (0, sets)
        assert all(len(choice) == batch.num_rows for choice in placement.route(batch).choices)
        placement.assign(scene("W2").portions[-1])
        assert all(len(choice) == 0 for choice in placement.route(batch.slice(0, 0)).choices)


def test_candidates_are_sets_and_stand_in_front(name: str, played: Scene) -> None:
    placement = made(name, 4, played)
    for table in played.portions:
        placement.assign(table)
    seen: set[int] = set()
    for choice in placement.route(played.batch).choices:
        there = choice != NOWHERE
        assert choice.min() >= NOWHERE
        assert choice.max() < len(placement.homes)
        assert (there[:, :-1] >= there[:, 1:]).all()
        sets = set(choice[there].tolist())
        assert not sets & seen, "a set in two choices"
        seen |= sets


def test_a_set_at_home_anywhere_goes_where_the_event_goes_anyway(name: str, played: Scene) -> None:
    placement = made(name, 4, played)
    chosen = chosen_by("adaptive", placement, played.batch)
    pairs = list(zip(chosen.sets, chosen.slices, strict=True))
    fixed = [np.where(placement.homes[sets] == ANYWHERE, -1, slices) for sets, slices in pairs]
    for sets, slices in pairs:
        there = sets != NOWHERE
        assert ((slices >= 0) == there).all()
        assert slices.max(initial=-1) < 4
        at_home = there & (placement.homes[sets] != ANYWHERE)
        assert (slices[at_home] == placement.homes[sets[at_home]]).all()
        for row in np.flatnonzero(there & ~at_home).tolist():
            others = {int(each[row]) for each in fixed} - {-1}
            assert int(slices[row]) in (others or range(4))


def test_a_slice_of_a_batch_is_routed_by_its_own_rows(name: str) -> None:
    for each in ("W2", "strings"):
        played = scene(each)
        placement = made(name, 4, played)
        for table in played.portions:
            placement.assign(table)
        whole, part = placement.route(played.batch), placement.route(played.batch.slice(31, 29))
        for one, other in zip(whole.choices, part.choices, strict=True):
            assert np.array_equal(one[31:60], other)


def test_slices_are_even_on_the_workloads(name: str) -> None:
    for each in ("W1", "W2", "W3"):
        table = ClauseTable.joined(scene(each).portions)
        placement = placement_named(name).learnt(table, 4)
        sizes = placement.assign(table).sum(axis=0)
        held = np.array(
            [sizes[(placement.homes == own) | (placement.homes == ANYWHERE)].sum() for own in range(4)]
        )
        assert held.max() <= (1.35 if name != "one-dimension" else 2.0) * held.mean(), (each, held)


def test_a_state_of_another_kind_is_refused(name: str) -> None:
    placement = made(name, 2, scene("W2"))
    placement.assign(scene("W2").portions[-1])
    if not placement.state():
        return  # nothing learnt, nothing to refuse
    for wrong in ({"something": 1}, {"slices": 2}, placement.state() | {"slices": 3}):
        with pytest.raises(ValueError, match=f"not the state of an? {name} placement"):
            placement_named(name).from_state(2, wrong)
