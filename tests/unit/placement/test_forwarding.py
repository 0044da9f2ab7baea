"""Forwarding policies: which candidates get events, from what was told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from culver.placement.forwarding import (
    AdaptiveForwarding,
    Forwarding,
    RandomForwarding,
    ResponseTimeForwarding,
    SetLoad,
    SubscriptionCountForwarding,
    logarithm,
    seconds_each,
)
from culver.plugins import FORWARDINGS, forwarding_named

POLICIES: list[Forwarding] = [forwarding_named(name)() for name in FORWARDINGS]


def told(homes: list[int], slices: int, **values: list[float]) -> SetLoad:
    """Sets that are all alike but for what is given."""
    sets = len(homes)
    load = SetLoad(
        np.array(homes), slices, np.full(sets, 100), np.zeros(sets), np.zeros(sets), np.full(sets, 1000.0),
        np.full(sets, 0.01),
    )  # fmt: skip
    changed: dict[str, Any] = {name: np.array(value) for name, value in values.items()}
    return replace(load, **changed)


def rows(candidates: list[int], events: int) -> NDArray[np.int64]:
    return np.tile(np.array(candidates, np.int64), (events, 1))


def shares(
    policy: Forwarding, load: SetLoad, candidates: list[int], events: int, seconds: float = 0.0
) -> list[float]:
    """Of events that all have the same candidates and are spread over the seconds, the part that each set gets."""
    chosen = policy.choose(load, [rows(candidates, events)], np.linspace(0.0, seconds, events))
    counts = np.bincount(chosen.sets[0], minlength=len(load.homes))
    return [float(counts[each]) / events for each in candidates]


def test_policies_have_the_names_that_they_are_asked_for_by() -> None:
    assert [policy.name for policy in POLICIES] == list(FORWARDINGS)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[SetLoad, list[NDArray[np.int64]], NDArray[np.float64], int]:
    slices, sets = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    load = SetLoad(
        random.integers(-1, slices, sets),
        slices,
        random.integers(0, 1000, sets),
        random.choice([0.0, 3.0, 5000.0], sets),
        random.random(sets) * 1000,
        random.choice([0.0, 100.0, 1e6, np.inf], sets),
        random.random(sets),
    )
    events = draw(st.integers(0, 30))
    choices = []
    for _ in range(draw(st.integers(1, 4))):
        choice = random.integers(0, sets, (events, draw(st.integers(1, 5))))
        fillers = random.integers(0, choice.shape[1] + 1, events)
        choice[np.arange(choice.shape[1]) >= choice.shape[1] - fillers[:, None]] = -1
        choices.append(choice)
    return load, choices, np.sort(random.random(events)), draw(st.integers(0, 2**62))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=60, deadline=None)
@given(given_=decisions())
def test_each_choice_gives_a_candidate_and_a_slice_that_holds_it(
    policy: Forwarding, given_: tuple[SetLoad, list[NDArray[np.int64]], NDArray[np.float64], int]
) -> None:
    load, choices, seconds, first = given_
    chosen = policy.choose(load, choices, seconds, first)
    assert len(chosen.sets) == len(chosen.slices) == len(choices)
    for event in range(len(seconds)):
        placed = set()
        for choice, sets, slices in zip(choices, chosen.sets, chosen.slices, strict=True):
            taken, where = int(sets[event]), int(slices[event])
            candidates = choice[event][choice[event] >= 0].tolist()
            if not candidates:
                assert (taken, where) == (-1, -1)
                continue
            assert taken in candidates
            assert 0 <= where < load.slices
            if load.homes[taken] >= 0:
                assert where == load.homes[taken]
                placed.add(where)
        for sets, slices in zip(chosen.sets, chosen.slices, strict=True):
            if sets[event] >= 0 and load.homes[sets[event]] < 0 and placed:
                assert int(slices[event]) in placed
    again = policy.choose(load, choices, seconds, first)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(chosen.sets + chosen.slices, again.sets + again.slices, strict=True)
    )


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_equal_loads_are_spread_evenly(policy: Forwarding) -> None:
    load = told([0, 1, 2, 3], 4)
    assert shares(policy, load, [0, 1, 2, 3], 8000) == pytest.approx([0.25] * 4, abs=0.02)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_set_that_every_slice_holds_is_spread_over_all_of_them(policy: Forwarding) -> None:
    chosen = policy.choose(told([-1], 4), [rows([0], 8000)], np.linspace(0, 1, 8000))
    assert np.bincount(chosen.slices[0]) / 8000 == pytest.approx([0.25] * 4, abs=0.02)


def test_a_slower_slice_gets_fewer_events_and_none_while_it_is_behind() -> None:
    load = told([0, 1], 2, rate=[1000.0, 500.0])
    fast, slow = shares(AdaptiveForwarding(), load, [0, 1], 6000, seconds=2.0)
    assert [fast, slow] == pytest.approx([2 / 3, 1 / 3], abs=0.01)  # both are overloaded
    assert (
        shares(AdaptiveForwarding(), load, [0, 1], 900, seconds=1.0)[1] < 0.05
    )  # the fast one by itself is not
    behind = told([0, 1], 2, queue=[3000.0, 0.0])
    assert shares(AdaptiveForwarding(), behind, [0, 1], 900, seconds=1.0) == [0.0, 1.0]
    assert shares(AdaptiveForwarding(), behind, [0, 1], 6000, seconds=1.0)[0] == pytest.approx(0.25, abs=0.01)


def test_all_sets_of_a_slice_compete_for_it() -> None:
    load = told([0, 0, 1], 2, queue=[0.0, 2000.0, 500.0])  # set 0 is empty, but its slice is not
    assert shares(AdaptiveForwarding(), load, [0, 2], 100) == [0.0, 1.0]
    assert shares(ResponseTimeForwarding(), load, [0, 2], 100) == [0.5, 0.5]


def test_what_waits_is_worked_off_between_two_tellings_but_not_below_nothing() -> None:
    load = told([0, 1], 2, queue=[500.0, 0.0], rate=[1000.0, 900.0])
    late = AdaptiveForwarding().choose(load, [rows([0, 1], 2)], np.array([0.1, 0.6]))
    assert late.sets[0].tolist() == [1, 0]
    idle = told([0, 1], 2, queue=[1.0, 0.0], rate=[1000.0, 1000.0])
    assert shares(AdaptiveForwarding(), idle, [0, 1], 1000, seconds=60.0) == pytest.approx(
        [0.5, 0.5], abs=0.01
    )


def test_the_response_time_policy_follows_what_was_told_until_it_is_told_anew() -> None:
    load = told([0, 1], 2, response=[0.02, 0.01])
    assert shares(ResponseTimeForwarding(), load, [0, 1], 1000, seconds=10.0) == [0.0, 1.0]


def test_the_subscription_count_policy_takes_the_smallest_set() -> None:
    load = told([0, 1, 2], 3, registrations=[300.0, 20.0, 20.0], queue=[0.0, 1e6, 0.0])
    none, some, others = shares(SubscriptionCountForwarding(), load, [0, 1, 2], 1000)
    assert none == 0.0
    assert min(some, others) > 0.3


def test_dispatchers_that_share_the_events_count_what_the_others_send() -> None:
    load = told([0, 1], 2, queue=[100.0, 0.0])
    alone = AdaptiveForwarding().choose(load, [rows([0, 1], 90)], np.zeros(90)).sets[0]
    shared = AdaptiveForwarding(share=0.5).choose(load, [rows([0, 1], 90)], np.zeros(90)).sets[0]
    assert np.count_nonzero(alone == 0) == 0
    assert np.count_nonzero(shared == 0) == pytest.approx(20, abs=2)  # the other sends as many


def test_choices_of_the_same_events_depend_on_their_numbers_only() -> None:
    load, choice = told([0, 1, 2], 3), rows([0, 1, 2], 100)
    whole = RandomForwarding().choose(load, [choice], np.zeros(100), 7).sets[0]
    parts = [RandomForwarding().choose(load, [choice[:50]], np.zeros(50), first).sets[0] for first in (7, 57)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_a_set_that_was_never_measured_costs_what_its_size_lets_expect() -> None:
    load = told([0, 1, 2], 3, registrations=[100, 300, 200], rate=[100.0, 0.0, 200.0])
    assert seconds_each(load).tolist() == pytest.approx([0.01, 0.015, 0.005])
    assert (np.diff(seconds_each(replace(load, rate=np.zeros(3)))[[0, 2, 1]]) > 0).all()


def test_logarithms_are_right_and_rest_on_arithmetic_alone() -> None:
    """The last bits are fixed, because machines that differ in one would send an event to different slices."""
    random = np.random.default_rng(5)
    values = np.concatenate([10.0 ** random.uniform(-300, 300, 1000), [1.0, 0.5, 0.75, 1e-9, 5e-324]])
    assert logarithm(values) == pytest.approx(np.log(values), rel=1e-14, abs=1e-15)
    bits = ["0x0.0p+0", "-0x1.96f0d4a3a5f3fp+3", "-0x1.6d3c324e13f4fp-2", "0x1.588c2d913348fp-2"]
    assert [each.hex() for each in logarithm(np.array([1.0, 3e-6, 0.7, 1.4]))] == bits
