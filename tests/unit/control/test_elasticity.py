"""The elasticity controller against a pipeline of which only the figures exist."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from culver.config import PipelineSettings
from culver.control.elasticity import (
    Decision,
    ElasticityController,
    ElasticitySettings,
    SliceLoad,
    elasticity_settings,
)
from culver.errors import InvalidConfiguration

RATE = 1_000.0  # events a second that a slice works off while it is busy
SETTINGS = ElasticitySettings(least=1, most=8)

Curve = Callable[[float], float]


@dataclass
class Pipeline:
    """Slices with a part of the events each; the one with the largest part says how many all of them can take. At
    saturation that one is busy for `efficiency` seconds a second."""

    parts: list[float]
    efficiency: float = 1.0
    stalls: list[tuple[float, float]] = field(default_factory=list)
    backlog: float = 0.0
    seed: int = 5
    noise: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def capacity(self) -> float:
        return self.efficiency * RATE / max(self.parts)

    def step(self, at: float, rate: float) -> tuple[int, float, list[SliceLoad]]:
        """A second passes."""
        arrived = rate * (1 + self.noise * self._random.uniform(-1, 1))
        stands = any(start <= at < end for start, end in self.stalls)
        served = 0.0 if stands else min(self.capacity, self.backlog + arrived)
        self.backlog += arrived - served
        loads = [
            SliceLoad(number, part * served / RATE, round(1e6 * part))
            for number, part in enumerate(self.parts)
        ]
        return int(self.backlog), arrived, loads

    def change(self, decision: Decision) -> None:
        number = decision.slice
        assert number is not None
        if decision.action == "add":
            half = self.parts[number] / 2
            self.parts[number] = half
            self.parts.insert(number + 1, half)
        else:
            part = self.parts.pop(number)
            for neighbour in {(number - 1) % len(self.parts), number % len(self.parts)}:
                self.parts[neighbour] += part / min(2, len(self.parts))


@dataclass
class Run:
    changes: list[tuple[float, Decision]]
    sizes: list[int]


def drive(pipeline: Pipeline, curve: Curve, seconds: int, own: ElasticitySettings = SETTINGS) -> Run:
    controller = ElasticityController(own)
    run = Run([], [])
    for second in range(seconds):
        decision = controller.observe(float(second), *pipeline.step(float(second), curve(float(second))))
        if decision.action != "nothing":
            pipeline.change(decision)
            run.changes.append((float(second), decision))
        run.sizes.append(len(pipeline.parts))
    return run


def reversals(run: Run) -> int:
    kinds = [decision.action for _, decision in run.changes]
    return sum(before != after for before, after in pairwise(kinds))


def check_bounds_and_pauses(run: Run, own: ElasticitySettings = SETTINGS) -> None:
    assert all(own.least <= size <= own.most for size in run.sizes)
    assert all(later - earlier >= own.pause_seconds for (earlier, _), (later, _) in pairwise(run.changes))
    assert all(decision.reason for _, decision in run.changes)


def even(slices: int) -> list[float]:
    return [1 / slices] * slices


def test_growing_backlog_splits_the_most_loaded_slice() -> None:
    pipeline = Pipeline([0.2, 0.5, 0.3])
    run = drive(pipeline, lambda at: 2_500.0 if at >= 60 else 1_500.0, 100)
    (when, decision), *rest = run.changes
    assert decision.action == "add"
    assert decision.slice == 1
    assert 60 < when <= 60 + SETTINGS.window_seconds
    assert "slice 1 is the most loaded of 3" in decision.reason
    assert not rest


def test_idle_slices_are_removed_one_after_the_other_down_to_the_least() -> None:
    own = ElasticitySettings(least=2, most=8)
    run = drive(Pipeline(even(5)), lambda at: 100.0, 600, own)
    assert [decision.action for _, decision in run.changes] == ["remove"] * 3
    assert run.sizes[-1] == 2
    check_bounds_and_pauses(run, own)


def test_least_loaded_slice_is_the_one_that_goes() -> None:
    run = drive(Pipeline([0.3, 0.1, 0.3, 0.3]), lambda at: 400.0, 70)
    assert [decision.slice for _, decision in run.changes if decision.action == "remove"] == [1]


def test_slices_that_one_fewer_could_hardly_replace_stay() -> None:
    assert drive(Pipeline(even(4)), lambda at: 2_000.0, 600).changes == []


def test_single_bump_is_not_saturation() -> None:
    run = drive(Pipeline(even(3)), lambda at: 20_000.0 if at == 100 else 1_500.0, 300)
    assert run.changes == []


def test_large_backlog_that_is_worked_off_is_not_saturation() -> None:
    pipeline = Pipeline(even(3), backlog=100_000)
    assert not any(each.action == "add" for _, each in drive(pipeline, lambda at: 2_000.0, 200).changes)


def test_backlog_of_a_standing_engine_is_not_saturation() -> None:
    pipeline = Pipeline(even(3), stalls=[(100.0, 160.0), (200.0, 204.0)])
    controller = ElasticityController(SETTINGS)
    said = [controller.observe(float(at), *pipeline.step(float(at), 1_500.0)) for at in range(400)]
    assert all(each.action == "nothing" for each in said)
    assert "the engine stands" in said[150].reason
    assert "the engine stands" not in said[165].reason


def test_engine_that_never_began_to_work_is_left_alone() -> None:
    pipeline = Pipeline(even(2), stalls=[(0.0, 1e9)])
    assert drive(pipeline, lambda at: 1_500.0, 300).changes == []


def test_work_that_is_told_in_jumps_is_no_stall_and_no_saturation() -> None:
    """As of an engine that works in batches: for some seconds nothing is told, then all of it."""
    controller = ElasticityController(SETTINGS)
    for at in range(300):
        done = at % 4 == 3
        loads = [SliceLoad(number, 2.4 if done else 0.0, 10) for number in range(2)]
        decision = controller.observe(float(at), 1_000 * (at % 4), 1_000.0, loads)
        assert decision.action == "nothing"
        assert "stands" not in decision.reason


def test_saturated_pipeline_with_the_most_slices_says_so_and_stays() -> None:
    own = ElasticitySettings(most=2)
    pipeline = Pipeline(even(2))
    controller = ElasticityController(own)
    said = [controller.observe(float(at), *pipeline.step(float(at), 9_000.0)) for at in range(60)]
    assert all(each.action == "nothing" for each in said)
    assert said[-1].reason.endswith("but there are to be at most 2 slices")


def test_bounds_are_reached_from_outside_of_them() -> None:
    few = drive(Pipeline(even(1)), lambda at: 10.0, 200, ElasticitySettings(least=3, most=8))
    many = drive(Pipeline(even(6)), lambda at: 3_000.0, 200, ElasticitySettings(least=1, most=4))
    assert few.sizes[-1] == 3
    assert many.sizes[-1] == 4


def test_change_by_hand_is_followed_by_a_pause_too() -> None:
    pipeline = Pipeline(even(2))
    controller = ElasticityController(SETTINGS)
    for at in range(100):
        if at == 40:
            pipeline.change(Decision("add", 0, "by hand"))
        decision = controller.observe(float(at), *pipeline.step(float(at), 9_000.0 if at > 35 else 1_000.0))
        if 40 <= at < 70:
            assert decision.action == "nothing"
            assert "pause" in decision.reason
    assert decision.action == "nothing"


def test_observation_from_the_past_changes_nothing() -> None:
    controller = ElasticityController(SETTINGS)
    pipeline = Pipeline(even(2))
    for at in range(14):
        controller.observe(float(at), *pipeline.step(float(at), 9_000.0))
    assert controller.observe(3.0, 10**9, 9_000.0, [SliceLoad(0, 1.0, 1)]).action == "nothing"
    added = controller.observe(14.0, *pipeline.step(14.0, 9_000.0))
    assert added.action == "add"
    controller.observe(15.0, *pipeline.step(15.0, 9_000.0))
    assert controller.last_change == (14.0, added)
    assert controller.last == (
        15.0,
        Decision("nothing", None, "29 seconds are left of the pause after the last change"),
    )


def test_load_that_falls_lets_slices_go_that_it_had_made_necessary() -> None:
    pipeline = Pipeline(even(1), efficiency=0.5)
    run = drive(pipeline, lambda at: 1_800.0 if at < 600 else 100.0, 1_500)
    check_bounds_and_pauses(run)
    assert run.sizes[599] >= 4
    assert run.sizes[-1] == 1
    assert reversals(run) == 1


@pytest.mark.slow(seconds=3)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    slices=st.integers(1, 8),
    load=st.floats(0.02, 7.0),
    efficiency=st.floats(0.3, 1.0),
    noise=st.floats(0.0, 0.2),
    seed=st.integers(0, 2**20),
)
def test_constant_load_comes_to_rest_without_adding_and_removing_in_turn(
    slices: int, load: float, efficiency: float, noise: float, seed: int
) -> None:
    pipeline = Pipeline(even(slices), efficiency, noise=noise, seed=seed)
    rate = load * RATE
    run = drive(pipeline, lambda at: rate, 900)
    check_bounds_and_pauses(run)
    # Where an engine is saturated long before its slices are busy all the time, that has to be seen once.
    assert reversals(run) <= (0 if efficiency > SETTINGS.comfortable else 1)
    if run.sizes[-1] < SETTINGS.most:
        assert pipeline.capacity > 0.98 * rate
    assert len(run.changes) < SETTINGS.most + reversals(run)


CURVE_PARTS = st.lists(
    st.tuples(st.integers(20, 200), st.floats(0, 8.0), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    parts=CURVE_PARTS,
    slices=st.integers(2, 6),
    stalls=st.lists(st.tuples(st.floats(0, 800), st.floats(1, 60)), max_size=3),
    noise=st.floats(0.0, 0.5),
    seed=st.integers(0, 2**20),
)
def test_whatever_the_load_the_bounds_and_pauses_are_kept(
    parts: list[tuple[int, float, bool]],
    slices: int,
    stalls: list[tuple[float, float]],
    noise: float,
    seed: int,
) -> None:
    rates: list[float] = [0.0]
    for seconds, level, is_ramp in parts:
        before = rates[-1]
        rates += [
            before + (level * RATE - before) * (second / seconds if is_ramp else 1.0)
            for second in range(1, seconds + 1)
        ]
    own = ElasticitySettings(least=2, most=6)
    windows = [(start, start + length) for start, length in stalls]
    pipeline = Pipeline(even(slices), stalls=windows, noise=noise, seed=seed)
    run = drive(pipeline, lambda at: rates[min(int(at), len(rates) - 1)], len(rates), own)
    check_bounds_and_pauses(run, own)
    for when, decision in run.changes:
        for start, end in windows:
            assert not (decision.action == "add" and start + own.stall_seconds + 2 <= when < end)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"slices_min": 5, "slices_max": 4}, "pipeline.slices_max"),
        ({"elastic": True, "slices": 9, "slices_max": 8}, "pipeline.slices"),
        ({"elastic": True, "slices": 1, "slices_min": 2}, "pipeline.slices"),
        ({"elastic": True, "placement": "hashed"}, "pipeline.placement"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_by_name(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        elasticity_settings(PipelineSettings(**changes))
    assert caught.value.field == setting


def test_bounds_come_from_the_settings() -> None:
    own = elasticity_settings(PipelineSettings(elastic=True, slices=3, slices_min=2, slices_max=5))
    assert (own.least, own.most) == (2, 5)
    assert elasticity_settings(PipelineSettings(slices=99)).most == 32
