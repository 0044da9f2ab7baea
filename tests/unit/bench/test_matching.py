"""`culver bench matching`: what it compares, when it refuses, and what it draws."""

import importlib.util
import itertools
import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.matching import change_rates, matching_bench as runs
from culver.bench.matching.contestants import KINDS, Contestant, ContestantKind, PluggedFilter
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.matching.first_match import first_match_seconds
from culver.bench.matching.rounds import Rounds, run_rounds
from culver.bench.workloads import named
from culver.cli import main

SEED = 3
SHORT = Rounds(1, 0.005)
MEMBERS = {
    "workload",
    "subscriptions",
    "filter",
    "events_per_second",
    "pairs_per_second",
    "matches_per_event",
    "batch_events",
    "compiled_per_second",
    "bytes_per_subscription",
    "first_match_seconds",
    "changed_per_second",
}


class Forgetful(PluggedFilter):
    """Leaves out the last pair of every answer."""

    def __init__(self) -> None:
        super().__init__("columnar")

    def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        return super().match(batch)[:-1]


class Confused(Forgetful):
    """As many pairs as it should give, but not those."""

    def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        return PluggedFilter.match(self, batch) + 1


@pytest.fixture
def no_first_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares what is measured apart from the rounds, for tests of other things."""
    monkeypatch.setattr(runs, "first_match_seconds", lambda *_: 0.5)
    monkeypatch.setattr(runs, "changed_per_second", lambda *_: 2.5)


@pytest.mark.thorough
@pytest.mark.slow(seconds=3)
@pytest.mark.usefixtures("no_first_match")
@pytest.mark.parametrize(
    ("workload", "filters"),
    [
        ("W1", ["columnar", "counting", "numpy-scan", "duckdb"]),
        ("W2", ["columnar", "counting", "numpy-scan", "duckdb"]),
        ("W3", ["columnar", "counting"]),
    ],
)
def test_a_quick_run_gives_a_whole_record_for_each_filter(
    workload: str, filters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workload", workload, "--subscriptions", "300", "--quick", "--json", "-"]
    assert main(["bench", "matching", *arguments]) == 0
    output = capsys.readouterr()
    results = json.loads(output.out)["results"]
    assert [record["filter"] for record in results] == filters
    for record in results:
        assert set(record) == MEMBERS
        assert (record["workload"], record["subscriptions"]) == (workload, 300)
        for name in ("events_per_second", "pairs_per_second", "matches_per_event", "compiled_per_second"):
            assert record[name] > 0
        assert (record["first_match_seconds"] == 0.5) is (record["filter"] in ("columnar", "counting"))
        assert record["changed_per_second"] == (2.5 if record["filter"] == "columnar" else None)
    assert results[0]["bytes_per_subscription"] > 0
    assert "round 2 of 2, events/s: columnar" in output.err
    left_out = [line for line in output.err.splitlines() if "is left out" in line]
    assert len(left_out) == 4 - len(filters)


def test_changes_are_counted_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_rates, "_MOST_PRESENT", 500)
    moments = itertools.count(0.0, 0.004)
    changed = change_rates.changed_per_second(named("W1"), SEED, 0.1, clock=lambda: next(moments))
    # The clock is looked at after every 20 changes, and after each match: twice in three looks.
    assert 20 / 0.012 < changed < 20 / 0.004


def test_the_first_match_in_a_new_process_is_timed_from_its_imports_on() -> None:
    seconds = first_match_seconds("reference", named("W1"), SEED, attempts=1)
    assert 0.01 < seconds < 30


def test_a_filter_that_cannot_start_in_a_new_process_fails_with_the_reason() -> None:
    with pytest.raises(BenchmarkFailed, match="unknown filter 'slow'"):
        first_match_seconds("slow", named("W1"), SEED, attempts=1)


@pytest.mark.parametrize("wrong", [Forgetful, Confused])
def test_a_filter_with_wrong_pairs_makes_the_run_fail(wrong: type[Forgetful]) -> None:
    plan = runs.MatchingPlan(
        [(named("W1"), 500)],
        ["columnar", "wrong"],
        SHORT,
        pool_events=256,
        kinds={"columnar": KINDS["columnar"], "wrong": ContestantKind(wrong)},
    )
    with pytest.raises(BenchmarkFailed, match="wrong and columnar do not agree"):
        runs.run(plan, lambda _: None)


@pytest.mark.parametrize("name", ["columnar", "numpy-scan", "duckdb"])
@pytest.mark.parametrize("workload", ["W1", "W2"])
def test_what_takes_columns_gives_the_pairs_of_predicates(name: str, workload: str) -> None:
    batch = named(workload).event_batch(300, SEED)
    expected = _loaded(PluggedFilter("columnar"), workload).match(batch)
    contestant = _loaded(KINDS[name].make(), workload)
    found = contestant.match(batch)
    contestant.close()
    assert len(expected) > 100
    assert sorted(found.tolist()) == sorted(expected.tolist())


def test_a_scan_knows_no_symbol_that_nobody_asks_for() -> None:
    contestant = _loaded(KINDS["numpy-scan"].make(), "W2")
    batch = named("W2").event_batch(50, SEED)
    column = batch.schema.get_field_index("d:s:symbol")
    strange = batch.set_column(column, "d:s:symbol", pa.array(["?"] * 50))
    assert len(contestant.match(strange)) < len(contestant.match(batch))


def test_an_unknown_filter_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "matching", "--filter", "slow"]) == 2
    errors = capsys.readouterr().err
    assert "'slow'" in errors
    assert all(name in errors for name in KINDS)


def test_the_names_that_the_command_line_takes_are_those_that_there_are() -> None:
    from culver.bench.bench_command import matching

    (option,) = [parameter for parameter in matching.params if parameter.name == "filters"]
    assert list(getattr(option.type, "choices")) == list(KINDS)  # noqa: B009 (of click.Choice only)


def test_a_missing_library_leaves_its_baseline_out_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    told: list[str] = []
    plan = runs.MatchingPlan([(named("W1"), 100)], ["numpy-scan", "duckdb"], SHORT, pool_events=64)
    assert [record["filter"] for record in runs.run(plan, told.append)] == ["numpy-scan"]
    assert any("duckdb is left out: duckdb is not installed" in line for line in told)


def test_slow_filters_are_left_out_where_they_would_take_minutes() -> None:
    assert KINDS["counting"].hindrance(100_000, has_forms=True) is None
    assert "would take minutes" in str(KINDS["counting"].hindrance(10_000_000, has_forms=True))
    assert "would take minutes" in str(KINDS["numpy-scan"].hindrance(1_000_001, has_forms=True))


def test_where_no_filter_can_take_part_there_is_no_figure() -> None:
    plan = runs.MatchingPlan([(named("W3"), 10)], ["numpy-scan"], SHORT, pool_events=64)
    with pytest.raises(BenchmarkFailed, match="no filter of those that were asked for"):
        runs.run(plan, lambda _: None)


def test_the_cores_that_may_be_used_are_the_same_after_a_run() -> None:
    before = os.sched_getaffinity(0)
    plan = runs.MatchingPlan([(named("W1"), 50)], ["numpy-scan"], SHORT, pool_events=64)
    assert len(runs.run(plan, lambda _: None)) == 1
    assert os.sched_getaffinity(0) == before


def test_slow_contestants_get_fewer_events_and_all_rounds_are_interleaved() -> None:
    order: list[str] = []

    class Counting(PluggedFilter):
        def __init__(self, name: str) -> None:
            super().__init__("columnar")
            self.name = name

        def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
            order.append(self.name)
            return super().match(batch)

    contestants = {name: _loaded(Counting(name), "W1") for name in ("a", "b")}
    pool = named("W1").event_batch(64, SEED)
    results = run_rounds(contestants, pool, Rounds(3, 10.0), lambda _: None)
    assert order[-6:] == ["a", "b"] * 3
    assert [result.share.events for result in results.values()] == [64, 64]
    slow = run_rounds({"scan": _loaded(KINDS["numpy-scan"].make(), "W1")}, pool, SHORT, lambda _: None)
    assert slow["scan"].share.events <= 64


@pytest.mark.thorough
@pytest.mark.slow(seconds=3)
@pytest.mark.usefixtures("no_first_match")
def test_scale_draws_a_line_for_each_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scale.svg"
    arguments = ["--scale", "--filter", "columnar", "--filter", "numpy-scan", "--quick", "--plot", str(path)]
    assert main(["bench", "matching", *arguments]) == 0
    drawing = ElementTree.parse(path).getroot()
    texts = {text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Cost of an event on one core, W1", "columnar", "numpy-scan"} <= texts
    assert f"drawn to {path}" in capsys.readouterr().err


def test_scale_takes_no_number_of_subscriptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "matching", "--scale", "--subscriptions", "10"]) == 2
    assert "--scale" in capsys.readouterr().err


def test_the_scale_goes_from_a_thousand_to_ten_million_by_decades_and_their_halves() -> None:
    assert runs.SCALE[:4] == (1_000, 5_000, 10_000, 50_000)
    assert runs.SCALE[-2:] == (5_000_000, 10_000_000)


def _loaded(contestant: Contestant, workload: str) -> Contestant:
    assert contestant.load(draw(named(workload), 400, SEED)) > 0
    return contestant
