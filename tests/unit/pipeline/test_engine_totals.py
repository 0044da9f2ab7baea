"""How long events took in each set, in the last seconds."""

import pytest

from culver.pipeline.engine_totals import LoadMeter
from culver.pipeline.operator_work import SetWork, SliceWork


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
    meter = LoadMeter()
    meter.add([work(0, [SetWork(0, 100, 1.0)])], now=0.0)
    meter.add([work(0, [SetWork(0, 100, 3.0)])], now=10.0)
    assert meter.report(now=10.0).rates[0] == pytest.approx(150 / 3.5, rel=0.01)


def test_a_steady_flow_is_its_arrival_rate() -> None:
    meter = LoadMeter()
    for second in range(200):
        meter.add([work(0, [SetWork(0, 500, 0.1)])], now=float(second))
    assert meter.report(now=199.0).arrivals[0] == pytest.approx(500, rel=0.05)


def test_what_is_sent_no_more_fades_and_how_fast_it_was_stays() -> None:
    meter = LoadMeter()
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


def test_a_set_that_got_nothing_for_hours_counts_as_not_measured() -> None:
    meter = LoadMeter()
    meter.add([work(0, [SetWork(0, 100, 1.0), SetWork(1, 100, 1.0)])], now=0.0)
    for second in range(1, 12_000):
        if second % 60 == 0:
            meter.add([work(0, [SetWork(1, 100, 1.0)])], now=float(second))
        report = meter.report(now=float(second))
    assert report.rates == (0.0, 100.0)
