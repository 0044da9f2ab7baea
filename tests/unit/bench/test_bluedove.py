"""`culver bench bluedove`: the simulation against what theory says, and the records of a run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from culver.bench.bluedove import bluedove_paper
from culver.bench.bluedove.bluedove_findings import Value, records
from culver.bench.bluedove.bluedove_plan import BluedovePlan, quick_plan
from culver.bench.bluedove.service_times import Measured, Proportional
from culver.bench.bluedove.simulated_world import EQUAL, ONE_DIMENSION, REPLICATED, World, WorldSetting
from culver.bench.bluedove.simulation import (
    Simulation,
    System,
    dispatchers,
    highest,
    is_saturated,
    saturation,
)
from culver.bench.workloads import named
from culver.bench.workloads.uniform_ranges import RangesWorkload
from culver.cli import main
from culver.matching.index.storage.partitioner import ANYWHERE
from culver.placement.forwarding import AdaptiveForwarding, RandomForwarding

# Compiling the kernels of the simulation takes half a minute, the first time.
pytestmark = [pytest.mark.slow(seconds=4), pytest.mark.thorough]

PLAN = replace(quick_plan(()), events_per_slice=60_000, tolerance=0.02)
PRECISE = 0.05  # a slice that gets 2 % more than it can do counts as saturated, a search ends within 2 %
MEMBERS = [
    "figure", "what", "system", "policy", "matchers", "unit", "paper", "proportional", "measured", "ratio",
    "measured_ratio", "note",
]  # fmt: skip


def system(
    each: list[float],
    homes: list[int],
    slices: int,
    candidates: list[list[int]],
    *,
    fixed: float = 0.0,
    most: int = 1,
) -> System:
    sets = len(homes)
    return System(
        slices,
        np.array(homes),
        np.full(sets, 100),
        np.full(sets, fixed),
        np.array(each),
        most,
        np.array(candidates),
    )


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_matcher_by_itself_answers_as_the_theory_of_queues_says(load: float) -> None:
    """Poisson arrivals and a constant time of service (M/D/1, Pollaczek and Khinchine)."""
    alone = system([0.001], [0], 1, [[0]])
    simulation = Simulation(alone, [RandomForwarding(), RandomForwarding()])
    periods = [simulation.advance(load / 0.001) for _ in range(200)]
    answered = sum(each.answered for each in periods)
    response = sum(each.response * each.answered for each in periods) / answered
    assert response == pytest.approx(0.001 * (1 + load / (2 * (1 - load))), rel=0.05)
    assert np.mean([each.busy[0] for each in periods]) == pytest.approx(load, rel=0.02)


def test_batches_share_what_is_fixed() -> None:
    batched = system([0.001], [0], 1, [[0]], fixed=0.01, most=100)
    assert saturation(batched, RandomForwarding.name, PLAN) == pytest.approx(100 / 0.11, rel=PRECISE)
    assert saturation(replace(batched, most=1), RandomForwarding.name, PLAN) == pytest.approx(
        1 / 0.011, rel=PRECISE
    )


def test_an_overloaded_matcher_serves_its_queues_in_the_order_of_arrival() -> None:
    two = system([0.001, 0.001], [0, 0], 1, [[0], [0], [0], [1]])
    simulation = Simulation(two, [RandomForwarding()])
    periods = [simulation.advance(4_000.0) for _ in range(4)]  # three times as many for set 0
    load = simulation.load
    assert [each.busy[0] for each in periods] == pytest.approx([1.0] * 4, abs=0.01)
    assert load.queue.sum() == pytest.approx(12_000, rel=0.05)
    assert load.queue[0] / load.queue[1] == pytest.approx(3.0, rel=0.1)
    assert load.response[0] == pytest.approx(load.response[1], rel=0.05)


@pytest.mark.parametrize("slices", [5, 20])
def test_replication_is_saturated_where_its_matchers_are_all_busy(slices: int) -> None:
    costs = system([0.01], [ANYWHERE], slices, [[0]])
    plan = replace(PLAN, events_per_slice=200_000 // slices)
    for policy in (RandomForwarding.name, AdaptiveForwarding.name):
        assert saturation(costs, policy, plan) == pytest.approx(slices / 0.01, rel=PRECISE)


def test_one_dimension_is_saturated_where_its_fullest_matcher_is_busy() -> None:
    each = [0.001, 0.002, 0.004, 0.001]
    divided = system(each, [0, 1, 2, 3], 4, [[0], [1], [2], [3]])
    assert saturation(divided, AdaptiveForwarding.name, PLAN) == pytest.approx(4 / 0.004, rel=PRECISE)


def test_adaptive_forwarding_reaches_what_any_policy_can() -> None:
    """Half of the events cost ten times as much on slice 1, and the others nothing more on either."""
    choice = system([0.001, 0.001, 0.01], [0, 1, 1], 2, [[0, 2], [0, 2], [0, 2], [0, 1], [0, 1], [1, 0]])
    found = saturation(choice, AdaptiveForwarding.name, PLAN)
    assert found == pytest.approx(2 / 0.001, rel=PRECISE)
    assert found < 1.05 * highest(choice)
    assert is_saturated(choice, RandomForwarding.name, 0.5 * found, PLAN)


def test_a_dead_matcher_keeps_its_events_until_they_are_sent_anew() -> None:
    both = system([0.001, 0.001], [0, 1], 2, [[0, 1]])
    simulation = Simulation(both, dispatchers(AdaptiveForwarding.name))
    periods = [simulation.advance(1_000.0) for _ in range(3)]
    simulation.stop(1)
    periods += [simulation.advance(1_000.0) for _ in range(5)]
    kept = simulation.waiting(1)
    assert kept == pytest.approx(2_500, rel=0.1)
    simulation.change(system([0.0001], [0], 1, [[0]]))
    periods.append(simulation.advance(0.0))
    assert periods[-1].answered == kept
    assert periods[-1].response == pytest.approx(2.6, rel=0.1)  # they came in the course of 5 s
    assert sum(each.arrived for each in periods) == sum(each.answered for each in periods)


def test_the_same_seed_gives_the_same_course() -> None:
    both = system([0.001, 0.002], [0, 1], 2, [[0, 1]])
    courses = [Simulation(both, dispatchers(AdaptiveForwarding.name), seed=seed) for seed in (1, 1, 2)]
    first, again, other = ([course.advance(1_000.0).response for _ in range(5)] for course in courses)
    assert first == again
    assert first != other


@pytest.fixture(scope="module")
def world() -> World:
    plan = BluedovePlan(subscriptions=4_000, pool=8_192, events_per_slice=20_000, tolerance=0.02)
    return World(plan, Proportional(4_000), lambda text: None)


def test_the_papers_workload_is_divided_by_the_real_placements(world: World) -> None:
    divided = world.system(WorldSetting(EQUAL, 5))
    assert divided.candidates.shape[1] >= 4
    held = [world.system(WorldSetting(name, 5)).registrations for name in (REPLICATED, ONE_DIMENSION)]
    assert held[0].tolist() == [4_000]
    assert held[1].sum() > 4_000
    assert divided.registrations.max() < 4_000


def test_in_proportion_replication_has_the_papers_rate_and_is_the_slowest(world: World) -> None:
    replicated, one, several = (
        world.saturation(WorldSetting(name, 20)) for name in (REPLICATED, ONE_DIMENSION, EQUAL)
    )
    assert replicated == pytest.approx(bluedove_paper.SATURATION / 67, rel=PRECISE)
    assert several > 4.2 * one
    assert one > 1.2 * replicated


def test_our_matcher_is_measured_once_for_each_set_and_given_slowed() -> None:
    plan = quick_plan(())
    service = Measured(rounds=1, slowed=1000.0, batch=64)
    slow = World(plan, service, lambda text: None)
    divided = slow.system(WorldSetting(EQUAL, 5))
    used = np.unique(divided.candidates[divided.candidates >= 0])
    used = used[divided.registrations[used] > 0]
    assert (divided.cost[used] > 1000 * 1e-8).all()
    assert (divided.cost[divided.registrations == 0] == 0).all()
    again = World(plan, service, lambda text: None).system(WorldSetting(EQUAL, 5))
    assert np.array_equal(again.each, divided.each)


def test_the_varied_workloads_are_w1_but_for_what_is_varied() -> None:
    w1, flat, skewed = RangesWorkload(), RangesWorkload(deviation=1000.0), RangesWorkload(skewed=2)
    assert [each.name for each in (w1, flat, skewed)] == ["W1", "W1, sd 1000", "W1, 2 skewed"]
    assert named("W1").filters(10, 3) == w1.filters(10, 3)
    assert np.std(flat.boxes(4_000, 1)[0], axis=0).min() > np.std(w1.boxes(4_000, 1)[0], axis=0).max()
    assert np.array_equal(flat.points(100, 1), w1.points(100, 1))
    even, points = w1.points(4_000, 1), skewed.points(4_000, 1)
    assert np.array_equal(points[:, 2:], even[:, 2:])
    assert points[:, 0].mean() < 350
    assert even[:, 0].mean() == pytest.approx(500, abs=20)


def test_a_record_has_the_paper_both_models_and_their_ratios() -> None:
    one = Value(figure="7", what="gain", unit="times", ours=2.2, system=EQUAL, paper=1.1, note="a")
    (record,) = records([one], [replace(one, ours=1.32, note="b")])
    assert list(record) == MEMBERS
    assert (record["proportional"], record["measured"]) == (2.2, 1.32)
    assert (record["ratio"], record["measured_ratio"], record["note"]) == (2.0, 1.2, "a; b")


def test_a_quick_run_gives_records_and_plots_of_the_figures_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--figure", "5", "--figure", "9", "--figure", "10", "--plots", str(tmp_path / "plots")]
    assert main(["bench", "bluedove", "--quick", *arguments, "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert list(dict.fromkeys(record["figure"] for record in results)) == ["5", "9", "10"]
    assert all(list(record) == MEMBERS for record in results)
    (lost,) = (record for record in results if record["what"] == "events lost")
    assert (lost["proportional"], lost["measured"]) == (0.0, 0.0)
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {
        f"figure-{name}-{model}.svg" for name in (5, 9, 10) for model in ("proportional", "measured")
    }
