"""Brokers in three clusters, as separate processes under traffic that are killed.

Six brokers: a carrier and the origin are killed, and a member for good. With `--full` there are nine, killed
at random for ten minutes at 500 events a second; `-s` shows the figures.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.broker_clusters import CLUSTERS, BrokerClusters, publishing_brokers, running_brokers

pytestmark = pytest.mark.system

MOST_STALL_SECONDS = 3.0


def kill_under_traffic(
    brokers: BrokerClusters, events_per_second: float, kill: Callable[[], None]
) -> dict[str, float]:
    """Kill brokers, check that nothing is lost or doubled, and return the figures."""
    clusters = brokers.clusters()
    assert len(clusters) == CLUSTERS
    assert {len(members) for members in clusters.values()} == {len(brokers.services) // CLUSTERS}
    with publishing_brokers(brokers, events_per_second):
        kill()
    brokers.check()
    stalls = sorted(map(brokers.stall_seconds, brokers.kills))
    latencies = brokers.latencies()
    return {
        "kills": len(brokers.kills),
        "acknowledged": sum(len(each.acknowledged) for each in brokers.publishers),
        "median_stall_seconds": stalls[len(stalls) // 2],
        "longest_stall_seconds": stalls[-1],
        "p50_seconds": latencies[len(latencies) // 2],
        "p99_seconds": latencies[int(0.99 * (len(latencies) - 1))],
    }


@pytest.mark.thorough
@pytest.mark.slow(seconds=25)
@pytest.mark.timeout(1200)
def test_brokers_in_three_clusters_lose_and_double_nothing(tmp_path: Path, full_length: bool) -> None:
    with running_brokers(tmp_path, 9 if full_length else 6) as brokers:
        if full_length:
            figures = kill_under_traffic(brokers, 500.0, lambda: brokers.kill_at_random(600.0, 6.0))
        else:
            figures = kill_under_traffic(brokers, 100.0, lambda: brokers.kill_by_role(1.5))
    print("\n" + "  ".join(f"{name} {value:.4g}" for name, value in figures.items()))  # noqa: T201
    assert figures["longest_stall_seconds"] <= MOST_STALL_SECONDS
