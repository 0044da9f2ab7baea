"""What is measured of slices, and the view of those that stay as they are."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from culver.control.elasticity import SliceLoad
from culver.control.site_observation import IndexSlice, PlacementInfo, SiteObservation
from culver.control.slices import FixedSlices, SliceMeter, check_add, check_remove
from culver.errors import Conflict, NotFound
from culver.pipeline.engine_totals import EngineObservation, SliceTotals
from support.fake_site import FakeSite
from support.memory_slices import MemorySlices


def totals(rounds: int) -> list[SliceTotals]:
    """Slice 0 gets half of the events, slice 1 all of them."""
    return [
        SliceTotals(0, 100 * rounds, 50 * rounds, 0, 0.01 * rounds, 0.05 * rounds, 0.04 * rounds),
        SliceTotals(1, 100 * rounds, 100 * rounds, 0, 0.0, 0.5 * rounds, 0.0),
    ]


def seen(log_end: int, position: int, rounds: int) -> SiteObservation:
    pipeline = EngineObservation(position, slices=tuple(totals(rounds)))
    return replace(FakeSite().observation.observe(), log_next_offset=log_end, pipeline=pipeline)


def meter(seconds: int) -> SliceMeter:
    measured = SliceMeter(window_seconds=10.0)
    for second in range(seconds):
        measured.observe(float(second), seen(1_000 + 200 * second, 100 * second, second))
    return measured


def test_rates_are_those_of_the_window() -> None:
    rates = meter(31).rates()
    assert rates[0].sent_per_second == pytest.approx(50)
    assert rates[0].matched_per_second == pytest.approx(1_000)
    assert rates[0].busy == pytest.approx(0.1)
    assert (rates[0].sent_share, rates[1].sent_share) == (0.5, 1.0)
    assert meter(31).arrived_per_second() == pytest.approx(200)


def test_what_happened_before_the_window_is_forgotten() -> None:
    measured = meter(5)
    for second in range(5, 40):
        measured.observe(float(second), seen(1_800, 400, 4))
    assert measured.arrived_per_second() == 0
    assert measured.rates()[1].busy == 0
    assert measured.rates()[1].matched_per_second is None
    assert measured.rates()[1].sent_share == 0


def test_controller_gets_what_happened_since_the_last_observation() -> None:
    measured = meter(5)
    measured.observe(4.0, seen(10**9, 10**9, 1_000))  # not later than the last
    measured.observe(6.0, seen(1_800, 400, 4))
    assert measured.loads({0: 7, 1: 8, 2: 9}) == [SliceLoad(0, 0, 7), SliceLoad(1, 0, 8), SliceLoad(2, 0, 9)]


def test_nothing_is_known_after_one_observation_or_none() -> None:
    measured = meter(5)
    measured.forget()
    assert (measured.rates(), measured.arrived_per_second()) == ({}, 0)
    measured.observe(5.0, seen(2_000, 500, 5))
    assert measured.loads({0: 7}) == [SliceLoad(0, 0.0, 7)]


def fixed(placement: str) -> FixedSlices:
    """Slices of a site that has worked for half a minute."""
    now = 0

    def observe() -> SiteObservation:
        return replace(
            seen(1_000 + 200 * now, 100 * now, now),
            placement=PlacementInfo(placement, 2, f"{placement}: because"),
            index=(IndexSlice(0, 40, 400), IndexSlice(1, 60, 600)),
        )

    own = FixedSlices(observe)

    async def work() -> None:
        nonlocal now
        while now < 31:
            await own.tick()
            now += 1

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("culver.control.slices.time", SimpleNamespace(monotonic=lambda: float(now)))
        asyncio.run(work())
    return own


def test_fixed_slices_have_a_set_each_and_wait_for_what_goes_to_them() -> None:
    view = fixed("hashed").view()
    assert [(each.slice, each.sets, each.registrations) for each in view.slices] == [
        (0, (0,), 40),
        (1, (1,), 60),
    ]
    assert [each.queue for each in view.slices] == [2.0, 4.0]
    assert view.slices[1].busy == pytest.approx(0.5)
    assert view.layers == ()


@pytest.mark.parametrize("placement", ["hashed", "event-space"])
def test_fixed_slices_refuse_every_change(placement: str) -> None:
    own = fixed(placement)
    with pytest.raises(Conflict):
        asyncio.run(own.add())
    with pytest.raises(Conflict):
        asyncio.run(own.remove(1))
    with pytest.raises(NotFound):
        asyncio.run(own.remove(2))


def test_what_can_be_changed_is_not_refused() -> None:
    view = MemorySlices("one-dimension").view()
    check_add(view, None)
    check_add(view, 1)
    check_remove(view, 0)
