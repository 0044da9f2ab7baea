"""Seeds of simulated sites in clusters: calm days, and trouble of every kind. A failing seed says how it replays."""

import os
import subprocess
import sys

import pytest

from culver.simulation import check_replay, run_seed, run_seeds
from culver.simulation.clusters.cluster_scenarios import calm_clusters, stormy_clusters
from support.seed_parts import seed_parts


@pytest.mark.slow(seconds=4)
@seed_parts(140)
def test_stormy_clusters_lose_nothing_in_silence(part: range) -> None:
    assert run_seeds(stormy_clusters, part)


@pytest.mark.slow(seconds=2)
@seed_parts(60)
def test_calm_clusters_deliver_everything_and_keep_predicates_to_themselves(part: range) -> None:
    assert run_seeds(calm_clusters, part)


@pytest.mark.parametrize("seed", [64, 75, 89])
def test_seeds_that_lose_events_where_older_terms_move_cursors_lose_none(seed: int) -> None:
    assert run_seeds(stormy_clusters, [seed])


def test_sites_in_a_storm_refuse_load_hand_it_over_and_hold_subscriptions_back() -> None:
    records = [record for seed in (1, 7) for record in run_seed(stormy_clusters, seed).trace]
    said = {record.values[1] for record in records if record.values[0] == "load"}
    assert said == {"refused", "insisted", "asked", "accepted", "handed over", "held back"}


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_seeds_that_lose_events_where_moves_forget_the_old_cluster_lose_none(seed: int) -> None:
    outcome = run_seed(stormy_clusters, seed)
    assert not outcome.violations
    assert ("whims", 0) not in [record.values for record in outcome.trace]


def test_a_seed_replays_exactly() -> None:
    check_replay(stormy_clusters, 1)


def test_a_seed_replays_in_another_process_whatever_the_order_of_its_sets() -> None:
    scenario = "culver.simulation.clusters.cluster_scenarios:stormy_clusters"
    command = [sys.executable, "-m", "culver.simulation", scenario, "--seed", "1"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(f"digest {run_seed(stormy_clusters, 1).digest}")
