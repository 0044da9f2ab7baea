"""Hundreds of seeds of simulated sites: calm days, and trouble of every kind. A failing seed says how it replays."""

import os
import subprocess
import sys

import pytest

from culver.simulation import check_replay, run_seed, run_seeds
from culver.simulation.overlay_scenarios import calm_overlay, stormy_overlay
from support.seed_parts import seed_parts


@pytest.mark.slow(seconds=3)
@seed_parts(140)
def test_stormy_overlays_lose_nothing_in_silence(part: range) -> None:
    assert run_seeds(stormy_overlay, part)


@pytest.mark.slow(seconds=2)
@seed_parts(60)
def test_calm_overlays_take_the_shortest_ways_once(part: range) -> None:
    assert run_seeds(calm_overlay, part)


@pytest.mark.parametrize(
    "seed", [1053, 1056, 1551, 1827, 1990, 2007, 2174, 2244, 2268, 5084, 6800, 9562, 9583]
)
def test_seeds_that_once_found_a_silent_loss_or_a_false_alarm_stay_mended(seed: int) -> None:
    assert run_seeds(stormy_overlay, [seed])


def test_a_seed_replays_exactly() -> None:
    check_replay(stormy_overlay, 1053)


def test_a_seed_replays_in_another_process_whatever_the_order_of_its_sets() -> None:
    scenario = "culver.simulation.overlay_scenarios:stormy_overlay"
    command = [sys.executable, "-m", "culver.simulation", scenario, "--seed", "1053"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(f"digest {run_seed(stormy_overlay, 1053).digest}")
