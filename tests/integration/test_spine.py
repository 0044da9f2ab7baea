"""The measuring code, against a stand-in for a site whose behaviour is known."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.bulk_registration import mean_pending, register
from culver.bench.latency import Latency, LatencyPlan, measure_floor, measure_latency
from culver.bench.site_process import SiteProcess, site_status
from culver.bench.spine import SpinePlan, run_engine
from culver.bench.throughput import measure_throughput
from culver.bench.workloads import named

COMMAND = (sys.executable, str(Path(__file__).parents[1] / "support" / "standin_site.py"))
EVENTS: list[dict[str, Any]] = [{"a": float(i)} for i in range(2_000)]


@pytest.fixture
def prompt_site(tmp_path: Path) -> Iterator[SiteProcess]:
    with SiteProcess("prompt", tmp_path, command=COMMAND) as site:
        yield site


def test_a_site_is_ready_inside_its_context_and_gone_with_its_children_after_it(tmp_path: Path) -> None:
    with SiteProcess("prompt", tmp_path, command=COMMAND) as site:
        assert site.ready_seconds > 0
        assert httpx.get(site.url + "/readyz", trust_env=False).status_code == 200
        assert psutil.pid_exists(_child(tmp_path))
    with pytest.raises(httpx.ConnectError):
        httpx.get(site.url + "/readyz", trust_env=False)
    assert _is_gone(_child(tmp_path))


def test_a_site_that_does_not_stop_is_ended_by_force_with_its_children(tmp_path: Path) -> None:
    with SiteProcess("deaf", tmp_path, command=COMMAND, stop_limit_seconds=0.1) as site:
        pass
    with pytest.raises(httpx.ConnectError):
        httpx.get(site.url + "/readyz", trust_env=False)
    assert _is_gone(_child(tmp_path))


def test_a_site_that_ends_at_once_fails_with_its_output(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchmarkFailed, match=r"(?s)ended with code 1 .*crashes on purpose"),
        SiteProcess("crashing", tmp_path, command=COMMAND),
    ):
        pass


def test_a_site_that_is_never_ready_fails_at_the_limit_and_is_stopped(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchmarkFailed, match="not ready within"),
        SiteProcess("starting", tmp_path, command=COMMAND, ready_limit_seconds=3.0),
    ):
        pass
    assert _is_gone(_child(tmp_path))


def test_subscriptions_are_registered_in_order_and_all_of_them(prompt_site: SiteProcess) -> None:
    progress: list[int] = []
    with httpx.Client(base_url=prompt_site.url, trust_env=False) as http:
        rate = register(http, [f"a > {i}" for i in range(2_500)], progress.append)
        assert site_status(http)["subscriptions"] == 2_500
        assert mean_pending(http, 150) == 3.0
    assert rate > 0
    assert progress == [1_000, 2_000, 2_500]


def test_a_delay_of_the_site_is_in_the_latency(tmp_path: Path) -> None:
    latency = _latency("delaying", tmp_path, LatencyPlan(rate=200, seconds=0.5, warm_up_seconds=0.1))
    assert len(latency.delivered) == 100
    assert latency.delivered.min() >= 50
    assert latency.record()["p50_ms"] < 1_000


def test_a_stall_counts_for_every_event_that_it_delayed(tmp_path: Path) -> None:
    latency = _latency("stalling", tmp_path, LatencyPlan(rate=200, seconds=1, warm_up_seconds=0))
    # 60 events fall due in the 300 ms of the stall; half of them wait for 150 ms or more.
    assert latency.delivered.max() >= 290
    assert sum(latency.delivered >= 150) >= 28


def test_the_warm_up_is_not_counted(tmp_path: Path) -> None:
    latency = _latency("stalling", tmp_path, LatencyPlan(rate=200, seconds=0.5, warm_up_seconds=0.6))
    assert len(latency.delivered) == 100
    assert sum(latency.delivered >= 150) < 28


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("losing", "1 of 50 events had not arrived"),
        ("gapping", "announced a gap"),
        ("refusing", "storage_full: the disk is full"),
        ("closing", "closed the connection"),
    ],
)
def test_no_figure_is_given_where_events_are_lost(behaviour: str, message: str, tmp_path: Path) -> None:
    plan = LatencyPlan(rate=500, seconds=0.1, warm_up_seconds=0, drain_limit_seconds=0.5)
    with pytest.raises(BenchmarkFailed, match=message):
        _latency(behaviour, tmp_path, plan)


def test_the_floor_is_a_file_on_the_same_schedule(tmp_path: Path) -> None:
    plan = LatencyPlan(rate=500, seconds=0.1, warm_up_seconds=0)
    floor = measure_floor(tmp_path, plan)
    assert len(floor) == 50
    assert (floor > 0).all()
    assert list(tmp_path.iterdir()) == []


def test_throughput_lasts_until_everything_is_delivered(prompt_site: SiteProcess) -> None:
    measured = measure_throughput(prompt_site, EVENTS)
    assert measured.events == len(EVENTS)
    # The stand-in delivers 200 events with every look at its status.
    assert measured.deliver_seconds - measured.publish_seconds > 9 * 0.02
    record = measured.record()
    assert record["events_per_second"] < record["publish_events_per_second"]


def test_one_record_holds_all_figures_of_an_engine(tmp_path: Path) -> None:
    told: list[str] = []
    plan = SpinePlan(
        workload=named("W1"),
        subscriptions=1_200,
        seconds=0.2,
        warm_up_seconds=0.1,
        events=1_100,
        rate=100,
        data_dir=tmp_path,
        command=COMMAND,
    )
    record = run_engine("prompt", plan, told.append)
    assert [record[key] for key in ("workload", "subscriptions", "engine", "rate", "events")] == [
        "W1",
        1_200,
        "prompt",
        100,
        1_100,
    ]
    for name in (
        "events_per_second",
        "publish_events_per_second",
        "p50_ms",
        "p99_ms",
        "max_ms",
        "floor_p99_ms",
    ):
        assert isinstance(record[name], float)
    # 3 deliveries in each of 1,200 mailboxes, made by 30 + 1,100 events.
    assert record["notifications_per_event"] == round(3 * 1_200 / 1_130, 2)
    assert any("ready after" in line for line in told)
    assert list(tmp_path.iterdir()) == []


def _latency(behaviour: str, directory: Path, plan: LatencyPlan) -> Latency:
    with SiteProcess(behaviour, directory, command=COMMAND) as site:
        return measure_latency(site.websocket_url, EVENTS, plan)


def _child(directory: Path) -> int:
    return int((directory / "child.pid").read_text())


def _is_gone(process: int) -> bool:
    """Not there, or dead and waiting for its parent to notice; given a moment to get there."""
    try:
        handle = psutil.Process(process)
        handle.wait(5)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return bool(handle.status() == psutil.STATUS_ZOMBIE)
    return True
