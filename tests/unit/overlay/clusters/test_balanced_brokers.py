"""Balanced brokers among one another, over simulated minutes."""

from collections import Counter

import numpy as np

from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.simulation.clusters.cluster_world import ClusterWorld, zipf_weights

BROKERS, CLUSTERS, PUBLICATIONS, RATIO = 30, 5, 40, 0.3


def skewed_world(capacity: float | None) -> tuple[ClusterWorld, list[float]]:
    settings = LoadSettings(first_capacity=capacity or 1.0)
    world = ClusterWorld(BROKERS, CLUSTERS, seed=3, balanced_capacity=capacity, settings=settings)
    weights = [0.0] * BROKERS
    for broker, weight in zip(world.by_ring(), zipf_weights(BROKERS, 1.0), strict=True):
        weights[broker] = weight
    return world, weights


def test_a_skewed_load_is_spread() -> None:
    plain, weights = skewed_world(None)
    before = plain.run(30, PUBLICATIONS, RATIO, weights, 10).with_clients
    world, weights = skewed_world(80.0)
    after = world.run(90, PUBLICATIONS, RATIO, weights, 60).with_clients
    assert before.max() > 0.9 * 80 > after.max()
    assert after.std() < before.std() / 2
    assert after.sum() < 1.05 * before.sum()


def test_nothing_swings_over_minutes() -> None:
    world, weights = skewed_world(80.0)
    changes: Counter[str] = Counter()
    states = [False] * BROKERS
    loads = []
    for second in range(150):
        world.run(1, PUBLICATIONS, RATIO, weights)
        for number, balance in enumerate(world.balances):
            assert not (balance.is_relieved and balance.helped)
            if balance.is_relieved != states[number]:
                states[number] = balance.is_relieved
                changes[balance.own] += 1
        if second >= 80:
            loads.append([balance.loads(world.now).total for balance in world.balances])
    assert max(changes.values()) <= 3
    # Each broker's smoothed load stays where it is, but for the noise of the workload.
    assert np.array(loads).std(axis=0).max() < 12


def test_two_runs_of_a_seed_are_the_same() -> None:
    totals = []
    for _ in range(2):
        world, weights = skewed_world(80.0)
        totals.append(world.run(25, PUBLICATIONS, RATIO, weights).with_clients.tolist())
    assert totals[0] == totals[1]


def test_everybody_who_wants_a_publication_gets_it_once() -> None:
    for capacity in (None, 80.0):
        world, weights = skewed_world(capacity)
        world.run(30, PUBLICATIONS, RATIO, weights)
        for publisher in range(BROKERS):
            before = world.loads.received.copy()
            wanted = frozenset(range(0, BROKERS, 3))
            world.publish(publisher, wanted)
            got = world.loads.received - before
            assert all(got[broker] >= 1 for broker in wanted - {publisher})
            assert got.max() <= 2  # a broker that helps has the publication before its cluster's turn
