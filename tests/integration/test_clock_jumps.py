"""A site whose system's clock is set ahead by days, while it runs and between two runs."""

import time
from pathlib import Path

import pytest

from culver.config import PipelineSettings, Settings
from culver.delivery import Delivery, DeliveryGap
from culver.errors import NotFound
from culver.model.language import parse
from culver.registry import Registration, SubscriptionSpec
from culver.site import RunningSite
from support.logs import event
from support.scenes import delivered, received, run

SECOND = 1_000_000
DAY = 24 * 3600 * SECOND


class SystemClock:
    """What the system shows, beside what really passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_us = 0
        really = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: really() + self.ahead_us * 1000)

    def now_us(self) -> int:
        return time.time_ns() // 1000


def spec(subscription: str, expires_at_us: int | None = None) -> SubscriptionSpec:
    return SubscriptionSpec(parse("TRUE"), subscription, True, expires_at_us, mailbox_age_seconds=24 * 3600)


async def subscription(site: RunningSite, name: str = "all") -> Registration:
    return await site.subscriptions.get(name)


def settings_for(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, pipeline=PipelineSettings(engine="inline"))


def test_a_jump_by_days_ends_no_subscription_and_empties_no_mailbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock(monkeypatch)

    async def jump(site: RunningSite) -> None:
        await site.subscriptions.add([spec("all", clock.now_us() + DAY)])
        await site.publications.publish([event(0)])
        clock.ahead_us = 30 * DAY
        await site.keep_house()
        await site.publications.publish([event(1)])
        clock.ahead_us = 0
        await site.keep_house()
        await site.publications.publish([event(2)])
        await delivered(site)
        await site.keep_house()
        assert await received(site, await subscription(site)) == [0, 1, 2]
        clock.ahead_us = 30 * DAY

    async def next_run(site: RunningSite) -> None:
        await site.keep_house()
        assert await received(site, await subscription(site)) == [0, 1, 2]

    run(settings_for(tmp_path), jump, next_run, next_run)


def test_a_lifetime_given_while_the_clocks_differ_counts_from_then_on_and_is_shown_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock(monkeypatch)

    async def scene(site: RunningSite) -> None:
        for clock.ahead_us, name in ((30 * DAY, "ahead"), (-30 * DAY, "behind")):
            await site.keep_house()
            wanted_us = clock.now_us() + 3600 * SECOND
            added = await site.subscriptions.add(
                [spec(name, wanted_us), spec(f"{name}-gone", clock.now_us())]
            )
            for shown in (added[0], await subscription(site, name)):
                assert shown.expires_at_us is not None
                assert abs(shown.expires_at_us - wanted_us) < 60 * SECOND
            await site.keep_house()
            assert (await subscription(site, name)).id == name
            with pytest.raises(NotFound):
                await subscription(site, f"{name}-gone")

    run(settings_for(tmp_path), scene)


def test_a_run_in_the_future_keeps_nothing_from_expiring_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run of a site believes the system's clock, which is years ahead. Its file is removed, as the docs
    say, so that the next run believes the right clock; mailboxes must empty by that again."""
    clock = SystemClock(monkeypatch)
    clock.ahead_us = 3_000 * DAY

    async def in_future(site: RunningSite) -> None:
        await site.subscriptions.add([spec("all")])
        await site.publications.publish([event(0)])
        await delivered(site)

    run(settings_for(tmp_path), in_future)
    (tmp_path / "clock").unlink()
    clock.ahead_us = 0

    async def right(site: RunningSite) -> None:
        await site.publications.publish([event(1)])
        await delivered(site)
        await site.keep_house()

    run(settings_for(tmp_path), right)
    (tmp_path / "clock").unlink()
    clock.ahead_us = 2 * DAY

    async def two_days_later(site: RunningSite) -> None:
        await site.publications.publish([event(2)])
        await delivered(site)
        await site.keep_house()
        session = await site.sessions.open(await subscription(site))
        gap, delivery = await session.receive(10, 0)
        await session.close()
        assert isinstance(gap, DeliveryGap)
        assert (gap.start, gap.end, gap.reason) == (0, 2, "expired")
        assert isinstance(delivery, Delivery)
        assert delivery.offset == 2

    run(settings_for(tmp_path), two_days_later)
