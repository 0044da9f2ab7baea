"""b-drp and clusters on the same few sites: both deliver the same, and their costs are counted alike."""

from dataclasses import replace

import pytest

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.overlay.overlay_plan import STRATEGY_SETTINGS, quick_plan
from culver.bench.overlay.routing_comparison.site_strategies import (
    StrategyRun,
    StrategyWorkload,
    compare_deliveries,
    made_workload,
    measure,
    run_strategy,
)
from culver.bench.overlay.routing_comparison.site_traffic import ANSWERS, PACKETS, TABLES
from culver.simulation import CLUSTER_POLICY, ROUTING_POLICIES

WIDE = STRATEGY_SETTINGS[0]
SITES = 6


@pytest.fixture(scope="module")
def workload() -> StrategyWorkload:
    return made_workload(WIDE, SITES, events_each=4, changes=2)


@pytest.fixture(scope="module")
def runs(workload: StrategyWorkload) -> dict[str, StrategyRun]:
    policies = (ROUTING_POLICIES["b-drp"], CLUSTER_POLICY)
    return {policy.name: run_strategy(policy, WIDE, workload) for policy in policies}


def test_both_strategies_deliver_what_is_due(
    runs: dict[str, StrategyRun], workload: StrategyWorkload
) -> None:
    assert workload.due()
    compare_deliveries(runs, workload)


def test_a_lost_a_doubled_and_a_further_event_are_found(
    runs: dict[str, StrategyRun], workload: StrategyWorkload
) -> None:
    clusters = runs["clusters"]
    one = min(workload.due())
    for change, message in ((-1, "miss 1 of"), (1, "have 1 twice")):
        received = clusters.received.copy()
        received[one] += change
        spoilt = replace(clusters, received=+received)
        with pytest.raises(BenchmarkFailed, match=message):
            compare_deliveries({**runs, "clusters": spoilt}, workload)
    received = clusters.received.copy()
    received[SITES, 0] = 1
    with pytest.raises(BenchmarkFailed, match="other events than with b-drp"):
        compare_deliveries({**runs, "clusters": replace(clusters, received=received)}, workload)


def test_sites_of_clusters_hold_fewer_predicates(runs: dict[str, StrategyRun]) -> None:
    assert 0 < runs["clusters"].known_bytes.max() < runs["b-drp"].known_bytes.min()


def test_events_cost_packets_and_answers_and_no_tables(runs: dict[str, StrategyRun]) -> None:
    for run in runs.values():
        assert run.event_bytes[PACKETS] > run.event_bytes[ANSWERS] > 0
        assert abs(run.event_bytes[TABLES]) < 0.01 * run.quiet_bytes  # the position in a link state has grown
        assert run.load_bytes.sum() / 2 == pytest.approx(run.event_bytes[PACKETS] + run.event_bytes[ANSWERS])


def test_a_packet_takes_the_delay_of_a_link_at_least(
    runs: dict[str, StrategyRun], workload: StrategyWorkload
) -> None:
    for run in runs.values():
        assert len(run.latencies) == len(workload.due())
        assert run.latencies.min() > WIDE.delay_seconds
        assert len(run.change_seconds) == 2
        assert min(run.change_seconds) > 2 * WIDE.delay_seconds


def test_findings_have_both_strategies_and_their_ratio() -> None:
    findings = measure(quick_plan((), True), lambda text: None).findings
    by_policy = {
        policy: {each.what: each for each in findings if each.policy == policy}
        for policy in ("b-drp", "clusters")
    }
    assert by_policy["b-drp"].keys() == by_policy["clusters"].keys()
    for what, each in by_policy["clusters"].items():
        assert each.note == f"{each.ours / by_policy['b-drp'][what].ours:.2f} times b-drp"
