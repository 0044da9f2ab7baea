"""Seeds of simulated gossip: calm days, trouble of every kind, lost messages. A failing seed says how it replays."""

import pytest

from culver.overlay.gossip.gossip_settings import GossipSettings, quick_gossip
from culver.simulation import SeededRun, check_replay, run_seeds
from culver.simulation.gossip_simulation import calm_gossip, lossy_hour, measure_spread, stormy_gossip


@pytest.mark.slow(seconds=3)
def test_after_a_storm_all_agree_on_who_lives() -> None:
    assert run_seeds(stormy_gossip, range(40))


def test_members_that_join_and_leave_in_peace_are_never_declared_dead() -> None:
    assert run_seeds(calm_gossip, range(10))


@pytest.mark.parametrize("seed", [5, 28, 34, 274])
def test_seeds_that_once_left_members_apart_stay_mended(seed: int) -> None:
    assert run_seeds(stormy_gossip, [seed])


def test_a_seed_replays_exactly() -> None:
    check_replay(stormy_gossip, 7)


@pytest.mark.slow(seconds=3)
def test_changes_reach_200_members_soon_though_a_fifth_of_all_messages_is_lost() -> None:
    run = SeededRun(1)
    spread = measure_spread(run, 200, GossipSettings(), loss=0.2)
    assert run.violations == []
    assert max(spread.join, spread.facts, spread.death) <= 15


def test_a_small_cluster_notices_a_death_within_3_seconds() -> None:
    settings = quick_gossip()
    for seed in range(10):
        spread = measure_spread(SeededRun(seed), 8, settings)
        assert spread.detection + spread.death * settings.period_seconds < 3.0


def test_lost_messages_kill_nobody() -> None:
    run = SeededRun(2)
    assert lossy_hour(run, count=20, seconds=300.0).false_deaths == 0
    assert run.violations == []
