"""`culver bench streamhub`: what stands beside the paper's figures, and what the operators are given to do."""

import json
import multiprocessing
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from culver.bench.pipeline.backlog import fill_log
from culver.bench.streamhub import (
    delays,
    filter_costs,
    match_distributions,
    operator_rates,
    placement_costs,
    sliced_index,
    streamhub_bench,
    whole_pipeline,
)
from culver.bench.streamhub.operator_rates import Flow, Job
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import quick_plan
from culver.cli import main

MEMBERS = [
    "figure", "what", "part", "subscriptions", "placement", "slices", "unit", "paper", "paper_cores", "ours",
    "our_cores", "ratio", "note",
]  # fmt: skip
EVENTS = 8_192


@pytest.fixture(scope="module", autouse=True)
def shared_memory() -> None:
    """What `multiprocessing` keeps from its first use on is there before the first test."""
    multiprocessing.get_context("spawn").Barrier(1)


@pytest.mark.thorough
@pytest.mark.slow(seconds=4)
def test_a_quick_run_gives_records_and_plots_of_the_figures_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--figure", "6", "--figure", "7", "--figure", "10", "--plots", str(tmp_path / "plots")]
    assert main(["bench", "streamhub", "--quick", *arguments, "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert list(dict.fromkeys(record["figure"] for record in results)) == ["6", "7", "10"]
    assert all(list(record) == MEMBERS for record in results)
    assert all((record["ratio"] is None) == (record["paper"] is None) for record in results)
    names = ["6-publications", "6-subscriptions", "7", "10-storing", "10-matching"]
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {f"figure-{name}.svg" for name in names}


def test_a_record_has_the_ratio_to_the_paper_and_both_notes() -> None:
    finding = Finding(
        figure="11",
        what="events",
        unit="events/s",
        ours=100_000.0,
        cores=2,
        paper=Quoted(2_000, 384, "a"),
        note="ours: b",
    )
    record = finding.record()
    assert (record["paper_cores"], record["our_cores"], record["ratio"]) == (384, 2, 50.0)
    assert record["note"] == "a; ours: b"
    assert replace(finding, paper=None).record()["ratio"] is None


def test_both_distributions_count_the_same_pairs() -> None:
    found = match_distributions.distributions(20_000, 20_000)
    assert found.per_event.sum() == found.per_subscription.sum()
    assert np.mean(found.per_event) / 20_000 == pytest.approx(0.0018, rel=0.1)  # as W2 says of itself


def test_filtering_is_compared_with_the_search_and_its_growth_told() -> None:
    costs = {"counting": {100: 1.0, 10_000: 10.0}, "numpy-scan": {100: 5.0, 10_000: 400.0}}
    findings = filter_costs.findings_of(costs)
    faster = [each for each in findings if each.what.startswith("times faster")]
    assert [(each.subscriptions, each.ours, each.paper is None) for each in faster] == [
        (100, 5.0, True),
        (10_000, 40.0, False),
    ]
    assert [each.ours for each in findings if each.what.startswith("growth")] == [pytest.approx(0.5)]


def test_slices_of_matching_are_dealt_out_and_other_operators_cut_by_ranges() -> None:
    job = Job("M", Path("log"), Path("index"), 0, 100, (), 1.0)
    assert [each.own for each in operator_rates.jobs_of(job, 3, 2)] == [(0, 2), (1,)]
    assert {(each.start, each.end) for each in operator_rates.jobs_of(job, 3, 2)} == {(0, 100)}
    for cut in (
        operator_rates.jobs_of(job, 1, 2),
        operator_rates.jobs_of(replace(job, operator="EP"), 1, 2),
    ):
        assert [(each.start, each.end, each.own) for each in cut] == [(0, 50, (0,)), (50, 100, (0,))]


def test_the_busiest_slices_set_the_pace_and_ranges_add_up() -> None:
    flows = [Flow(100.0, 1_000.0, 50.0), Flow(200.0, 2_000.0, 60.0)]
    job = Job("M", Path("log"), Path("index"), 0, 100, (), 1.0)
    assert operator_rates.together(operator_rates.jobs_of(job, 2, 2), flows) == Flow(100.0, 1_000.0, 80.0)
    assert operator_rates.together(operator_rates.jobs_of(job, 1, 2), flows) == Flow(300.0, 3_000.0, 110.0)


def test_all_divisions_and_operators_make_the_same_notifications_of_an_event(tmp_path: Path) -> None:
    fill_log(tmp_path / "log", sliced_index.workload(), EVENTS, 1)
    table = sliced_index.table_of(2_000)
    per_event = set()
    for placement, slices in (("replicated", 1), ("hashed", 2), ("event-space", 3), ("kmeans", 2)):
        sliced_index.store(tmp_path / placement, sliced_index.placement_for(placement, slices, table), table)
        own = tuple(range(slices))
        jobs = [
            Job(operator, tmp_path / "log", tmp_path / placement, 0, EVENTS, own, 0.0)
            for operator in ("M", "EP", "all")
        ]
        for flow in operator_rates.work(threading.Barrier(1), jobs):
            per_event.add(round(flow.notifications_per_second / flow.events_per_second * EVENTS))
    assert len(per_event) == 1
    assert per_event.pop() > EVENTS


@pytest.mark.thorough
@pytest.mark.slow(seconds=4)
def test_two_processes_give_a_figure_for_every_operator(tmp_path: Path) -> None:
    plan = replace(quick_plan(("8",), (), tmp_path), slices=(1,))
    findings = operator_rates.measure(plan, lambda text: None)
    told = {
        (each.part, each.cores) for each in findings if each.what == operator_rates.RATE and each.ours > 0
    }
    assert told == {(operator, cores) for operator in operator_rates.OPERATORS for cores in (1, 2)}
    plots = list(streamhub_bench.plots_of(findings))
    assert [plot.name for plot in plots] == [f"figure-8-{name}-1000" for name in operator_rates.OPERATORS]
    assert all(set(plot.lines) == {"replicated, 1 core", "replicated, 2 cores"} for plot in plots), plots


def test_clustering_is_told_against_hashing_and_beside_the_paper_at_its_size() -> None:
    costs = {
        (placement_costs.MATCHED, placement, 150_000): placement_costs.Cost(1.0, matching)
        for placement, matching in (("hashed", 9.0), ("event-space", 4.0), ("replicated", 2.0))
    }
    against = [each for each in placement_costs.findings_of(costs) if each.what.endswith("against hashed")]
    assert [(each.placement, each.ours, each.paper is None) for each in against] == [
        ("event-space", 0.5, False),
        ("replicated", 0.3, True),
    ]


def test_the_whole_is_beside_the_paper_at_its_size_only() -> None:
    rates = {
        whole_pipeline.SparkSetting("replicated", 2): 300_000.0,
        whole_pipeline.SparkSetting("hashed", 2): 100_000.0,
        whole_pipeline.SparkSetting("event-space", 2): 150_000.0,
        whole_pipeline.SparkSetting("replicated", 1): 200_000.0,
    }
    findings = whole_pipeline.findings_of(rates, 100_000, 175.0)
    first = findings[0].record()
    assert (first["ours"], first["paper"], first["paper_cores"], first["ratio"]) == (300_000, 2_000, 384, 150)
    assert findings[1].ours == 300_000 * 175
    assert [each.ours for each in findings if each.unit == "times"] == [1.5, 0.75]
    assert all(each.paper is None for each in findings if each.cores == 1)
    assert all(
        each.paper is None
        for each in whole_pipeline.findings_of(rates, 1_000, 2.0)
        if each.unit == "events/s"
    )
    (plot,) = streamhub_bench.plots_of(findings)
    assert plot.lines["replicated"] == [(2, 300_000.0), (1, 200_000.0)]


def test_delays_are_in_seconds_beside_the_papers_column() -> None:
    milliseconds = np.array([100.0, 300.0])
    for batching in delays.BATCHINGS:
        rate, mean, deviation = delays.findings_of(batching, 100_000, 5_000, milliseconds)
        assert (rate.ours, mean.ours, deviation.ours) == (5_000, 0.2, 0.1)
        assert mean.paper is not None
        assert mean.paper.value == (0.98 if batching.name == "large" else 0.22)
