"""How long events take in each set, lately."""

from pathlib import Path

import pytest

from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.operator_work import SetWork, SliceWork
from culver.pipeline.set_loads import LoadFile, LoadMeter, LoadReport


def work(
    own: int, sets: list[SetWork], *, events: int = 100, pairs: int = 0, division: str = "a"
) -> SliceWork:
    seconds = sum(each.seconds for each in sets)
    sent = sum(each.sent for each in sets)
    return SliceWork(
        own, events, sent, pairs, 0.0, seconds, 0.0, "host:1", division=division, sets=tuple(sets)
    )


def test_a_rate_is_what_was_sent_over_the_time_it_took() -> None:
    meter = LoadMeter()
    meter.add([work(0, [SetWork(0, 60, 0.5)], pairs=300), work(1, [SetWork(2, 40, 0.1)], pairs=100)], now=0.0)
    report = meter.report(now=0.0)
    assert report.rates == (120.0, 0.0, 400.0)
    assert report.pairs_per_event == 4.0
    assert report.division == "a"


def test_what_is_older_counts_less() -> None:
    meter = LoadMeter(half_life_seconds=10.0)
    meter.add([work(0, [SetWork(0, 100, 1.0)])], now=0.0)
    meter.add([work(0, [SetWork(0, 100, 3.0)])], now=10.0)
    assert meter.report(now=10.0).rates[0] == pytest.approx(150 / 3.5, rel=0.01)


def test_a_steady_flow_is_its_arrival_rate() -> None:
    meter = LoadMeter(half_life_seconds=10.0)
    for second in range(200):
        meter.add([work(0, [SetWork(0, 500, 0.1)])], now=float(second))
    assert meter.report(now=199.0).arrivals[0] == pytest.approx(500, rel=0.05)


def test_what_is_sent_no_more_fades_and_how_fast_it_was_stays() -> None:
    meter = LoadMeter(half_life_seconds=10.0)
    meter.add([work(0, [SetWork(0, 500, 0.1)], pairs=200)], now=0.0)
    busy, idle, long_idle = (meter.report(now) for now in (0.0, 30.0, 30_000.0))
    assert idle.arrivals[0] == pytest.approx(busy.arrivals[0] / 8, rel=0.01)
    assert idle.rates == busy.rates == (5000.0,)
    assert long_idle.pairs_per_event == busy.pairs_per_event == 2.0


def test_an_answer_takes_as_long_as_all_that_its_slice_did() -> None:
    meter = LoadMeter()
    meter.add([work(0, [SetWork(0, 10, 0.1), SetWork(1, 10, 0.9)])], now=0.0)
    assert meter.report(now=0.0).responses == pytest.approx((1.01, 1.09))


def test_sets_that_are_numbered_otherwise_are_measured_anew() -> None:
    meter = LoadMeter()
    meter.add([work(0, [SetWork(7, 10, 0.1)], pairs=100)], now=0.0)
    meter.add([work(0, [SetWork(0, 10, 0.2)], pairs=100, division="b")], now=1.0)
    report = meter.report(now=1.0)
    assert (report.division, report.rates) == ("b", (50.0,))
    assert report.pairs_per_event == 1.0, "that does not depend on the sets"


def test_a_block_is_as_long_as_its_matches_allow() -> None:
    assert LoadReport(registrations=40_000).block_events() == 65_536
    assert LoadReport(registrations=10_000_000).block_events() == 1_024, (
        "a guess, before anything is measured"
    )
    assert LoadReport(registrations=10_000_000, pairs_per_event=130.0).block_events() == 65_536
    assert LoadReport(registrations=10_000_000, pairs_per_event=33_000.0).block_events() == 1_024
    assert LoadReport(registrations=1_000_000, pairs_per_event=3_300.0).block_events() == 16_384


def test_what_was_known_before_a_restart_holds_until_something_is_measured() -> None:
    before = LoadReport("a", 5, 130.0, (1.0,), (2.0,), (0.1,), cores=2)
    unmeasured = LoadReport(registrations=10_000_000)
    assert unmeasured.or_as_before(LoadReport()).block_events() == 1_024
    known = unmeasured.or_as_before(before)
    assert (known.block_events(), known.registrations, known.rates, known.cores) == (
        65_536,
        10_000_000,
        (1.0,),
        2,
    )
    measured = LoadReport("b", 7, 3.0, (9.0,), (9.0,), (9.0,), cores=4)
    assert measured.or_as_before(before) == measured


def test_a_report_goes_through_its_file(tmp_path: Path) -> None:
    file = LoadFile(tmp_path / "load.json")
    assert file.read() == LoadReport()
    report = LoadReport("a", 5, 1.5, (1.0, 0.0), (2.0, 0.0), (0.1, 0.0), cores=3)
    file.write(report)
    assert LoadFile(tmp_path / "load.json").read() == report
    members = report.to_json()
    del members["cores"]
    assert LoadReport.from_json(members).cores == 0, "as of before they were told"
    (tmp_path / "load.json").write_text('{"division": 1')
    assert file.read() == LoadReport(), "what cannot be read is not known"


def test_tasks_share_the_slices_and_only_alike_plans_are_joined() -> None:
    plan = BatchPlan(7, slices=5, tasks=2)
    assert [list(plan.share(task)) for task in range(2)] == [[0, 2, 4], [1, 3]]
    assert plan.mark == BatchPlan(7, slices=5, tasks=2).mark
    assert plan.mark != BatchPlan(8, slices=5, tasks=2).mark
    assert plan.mark != BatchPlan(7, slices=5, tasks=2, load=LoadReport("a")).mark


def test_a_set_that_got_nothing_for_hours_counts_as_not_measured() -> None:
    meter = LoadMeter(half_life_seconds=10.0)
    meter.add([work(0, [SetWork(0, 100, 1.0), SetWork(1, 100, 1.0)])], now=0.0)
    for second in range(1, 12_000):
        if second % 60 == 0:
            meter.add([work(0, [SetWork(1, 100, 1.0)])], now=float(second))
        report = meter.report(now=float(second))
    assert report.rates == (0.0, 100.0)


def test_blocks_have_a_lower_bound_however_much_an_event_matches() -> None:
    assert LoadReport(pairs_per_event=1e12).block_events() == 1 << 10
