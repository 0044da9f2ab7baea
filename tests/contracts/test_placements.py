"""What every placement promises, run on all of them."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from culver.matching.index.compiler import compile_entries
from culver.matching.index.matcher import Part, match_parts
from culver.matching.index.segment import in_memory
from culver.matching.index.table import ClauseTable, concatenate, select_registrations
from culver.placement.placement import Placement
from culver.plugins import PLACEMENTS, placement_named
from support.placed import SCENES, Scene, scene

SLICES = (1, 2, 3, 4, 7)
EMPTY = compile_entries([])


@pytest.fixture(params=sorted(PLACEMENTS))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=sorted(SCENES), scope="module")
def played(request: pytest.FixtureRequest) -> Scene:
    return scene(request.param)


class Holders:
    """Which slices hold what has been assigned so far."""

    def __init__(self, slices: int) -> None:
        self._numbers = np.empty(0, np.int64)
        self._held = np.empty((0, slices), np.bool_)

    def add(self, table: ClauseTable, held: NDArray[np.bool_]) -> None:
        numbers = np.concatenate([self._numbers, table.numbers])
        order = np.argsort(numbers)
        self._numbers, self._held = numbers[order], np.concatenate([self._held, held])[order]

    def of(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The holders of these registrations, and which of them are assigned at all."""
        places = np.searchsorted(self._numbers, numbers).clip(max=len(self._numbers) - 1)
        return self._held[places], self._numbers[places] == numbers


def check(placement: Placement, holders: Holders, played: Scene) -> None:
    """Exactly one slice both holds the registration and gets the event, for each match."""
    route = placement.route(played.batch)
    for turn in (0, 3):
        sent = route.chosen(turn)
        assert sent.shape == (played.batch.num_rows, placement.slices)
        held, assigned = holders.of(played.pairs[:, 1])
        found = np.count_nonzero(sent[played.pairs[:, 0]] & held, axis=1)
        wrong = played.pairs[assigned & (found != 1)]
        assert not len(wrong), (placement.state(), wrong[:5], found[assigned & (found != 1)][:5])


def reborn(placement: Placement) -> Placement:
    state = json.loads(json.dumps(placement.state()))
    return placement_named(placement.name).from_state(placement.slices, state)


@pytest.mark.parametrize("slices", SLICES)
def test_each_match_is_found_in_exactly_one_slice_while_registrations_come(
    name: str, slices: int, played: Scene
) -> None:
    placement = placement_named(name)(slices)
    holders = Holders(slices)
    for table in played.portions:
        held = placement.assign(table)
        assert held.shape == (len(table.numbers), slices)
        assert held.any(axis=1).all()
        holders.add(table, held)
        check(placement, holders, played)


@pytest.mark.parametrize("slices", [2, 4])
def test_what_was_learnt_survives_as_json(name: str, slices: int, played: Scene) -> None:
    placement, other = placement_named(name)(slices), placement_named(name)(slices)
    holders = Holders(slices)
    for table in played.portions:
        other = reborn(other)
        held = placement.assign(table)
        assert np.array_equal(other.assign(table), held)
        holders.add(table, held)
        check(reborn(other), holders, played)
        assert len(json.dumps(other.state())) < 100_000


def test_slices_that_really_match_find_what_the_reference_finds(name: str) -> None:
    played = scene("random")
    placement = placement_named(name)(3)
    held = [placement.assign(table) for table in played.portions]
    sent = placement.route(played.batch).chosen()
    found: list[tuple[int, int]] = []
    for each in range(3):
        events = np.flatnonzero(sent[:, each])
        tables = [
            select_registrations(table, marks[:, each])
            for table, marks in zip(played.portions, held, strict=True)
        ]
        parts = [Part(in_memory(table)) for table in tables if len(table.numbers)]
        matches = match_parts(parts, played.batch.take(events), 0)
        rows = np.repeat(events, np.diff(matches.offsets))
        found += zip(rows.tolist(), matches.numbers.tolist(), strict=True)
    assert sorted(found) == sorted(map(tuple, played.pairs.tolist()))


@pytest.mark.parametrize("slices", SLICES)
def test_the_end_of_a_registration_reaches_its_holders(name: str, slices: int) -> None:
    placement = placement_named(name)(slices)
    for table in scene("W2").portions:
        held = placement.assign(table)
        assert (placement.holders(table.numbers) >= held).all()


def test_nothing_assigned_and_no_events_are_fine(name: str) -> None:
    batch = scene("W2").batch
    placement = placement_named(name)(3)
    assert placement.assign(EMPTY).shape == (0, 3)
    assert placement.holders(np.empty(0, np.int64)).shape == (0, 3)
    assert placement.route(batch).chosen().shape == (batch.num_rows, 3)
    placement.assign(scene("W2").portions[-1])
    assert placement.route(batch.slice(0, 0)).chosen().shape == (0, 3)


def test_a_slice_of_a_batch_is_routed_by_its_own_rows(name: str) -> None:
    for each in ("W2", "strings"):
        played = scene(each)
        placement = placement_named(name)(4)
        for table in played.portions:
            placement.assign(table)
        whole, part = placement.route(played.batch), placement.route(played.batch.slice(31, 50))
        if whole.marked is None:
            assert part.marked is None
        else:
            assert part.marked is not None
            assert np.array_equal(part.marked, whole.marked[31:81])


def test_slices_are_even_on_the_workloads(name: str) -> None:
    for each in ("W1", "W2", "W3"):
        table, _ = concatenate(scene(each).portions)
        sizes = placement_named(name)(4).assign(table).sum(axis=0)
        assert sizes.max() <= 1.35 * sizes.mean(), (each, sizes)


def test_a_state_of_another_kind_is_refused(name: str) -> None:
    placement = placement_named(name)(2)
    placement.assign(scene("W2").portions[-1])
    if not placement.state():
        return  # nothing learnt, nothing to refuse
    for wrong in ({"something": 1}, {"slices": 2}, placement.state() | {"slices": 3}):
        with pytest.raises(ValueError, match=f"not the state of an? {name} placement"):
            placement_named(name).from_state(2, wrong)
