"""A running site, real Redis servers, and a channel service that comes and goes."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from culver.assembly import open_site
from culver.config import ChannelSettings, PipelineSettings, Settings
from culver.errors import InvalidConfiguration, Unavailable
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.registry import Registration, SubscriptionSpec
from culver.roles import ChannelLoss, ChannelSession, Site
from culver.site import RunningSite
from support.channel_thread import ChannelThread, channel_thread
from support.gateway import run
from support.until import until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[ChannelThread]:
    with channel_thread(tmp_path / "servers", servers=1) as thread:
        yield thread


def settings(folder: Path, url: str) -> Settings:
    return Settings(
        data_dir=folder / "data",
        pipeline=PipelineSettings(engine="inline"),
        channels=ChannelSettings(url=url),
    )


def event(number: int) -> Event:
    return Event({}, {"n": number}, b"%d" % number)


async def subscribe(site: RunningSite, channel: str) -> Registration:
    spec = replace(SubscriptionSpec(parse("n >= 0"), "s"), channel=channel)
    (registration,) = await site.subscriptions.add([spec])
    return registration


async def pending(site: Site, registration: Registration) -> int:
    return (await site.sessions.pending([registration]))[0]


async def receive(session: ChannelSession, count: int) -> list[bytes | ChannelLoss]:
    items: list[bytes | ChannelLoss] = []
    async with asyncio.timeout(60):
        while len(items) < count:
            items += await session.receive(count - len(items), None)
    return items


def test_site_runs_without_its_service_and_delivers_once_it_is_there(
    tmp_path: Path, channels: ChannelThread
) -> None:
    channels.run(channels.hide())

    async def scenario() -> None:
        async with open_site(settings(tmp_path, channels.url)) as site:
            await until(lambda: site.observation.ready, 120)
            registration = await subscribe(site, "c")
            await site.publications.publish([event(0), event(1)])
            await until(lambda: site.channels.status().failing == 1)
            status = site.channels.status()
            assert (status.subscriptions, status.published) == (1, 0)
            assert "no channel service answers" in status.state
            assert site.observation.ready
            assert await pending(site, registration) == 2
            with pytest.raises(Unavailable):
                await site.channels.publish("c", b"a")
            with pytest.raises(Unavailable):
                await site.channels.subscribe("c")
            await asyncio.to_thread(channels.run, channels.show())
            session = await site.channels.subscribe("c")
            # What was owed may have been published before this subscription.
            await until(lambda: site.channels.status().published == 2, 60)
            await site.publications.publish([event(2)])
            items = await receive(session, 1)
            while items[-1] != b"2":
                items += await receive(session, 1)
            assert items in ([b"2"], [b"0", b"1", b"2"])
            well = replace(status, state="running", failing=0, published=3)
            await until(lambda: site.channels.status() == well)
            await session.close()

    run(scenario())


def test_deliveries_go_on_after_the_servers_were_away(tmp_path: Path, channels: ChannelThread) -> None:
    async def scenario() -> None:
        async with open_site(settings(tmp_path, channels.url)) as site:
            await until(lambda: site.observation.ready, 120)
            registration = await subscribe(site, "c")
            session = await site.channels.subscribe("c")
            await site.publications.publish([event(0)])
            assert await receive(session, 1) == [b"0"]
            await asyncio.to_thread(channels.run, channels.restart_servers())
            numbers = range(1, 200)
            for number in numbers:
                await site.publications.publish([event(number)])

            async def acknowledged() -> bool:
                return await pending(site, registration) == 0

            await until(acknowledged, 60)
            # Each event arrives once or is told as lost: it may be published before the subscriber is back.
            expected = 1
            while expected < len(numbers) + 1:
                (item,) = await receive(session, 1)
                if isinstance(item, ChannelLoss):
                    assert item.first <= expected + 1 <= item.last + 1
                    expected = item.last
                else:
                    assert item == b"%d" % expected
                    expected += 1
            await session.close()

    run(scenario())


def test_address_that_no_service_can_have_is_refused_at_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidConfiguration) as caught:
            async with open_site(settings(tmp_path, "redis://127.0.0.1:6379")):
                pass
        assert caught.value.field == "channels.url"

    run(scenario())


def test_certificate_file_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        with_file = replace(
            settings(tmp_path, "http://127.0.0.1:1"),
            channels=ChannelSettings(url="http://127.0.0.1:1", tls_ca=str(tmp_path / "nowhere.pem")),
        )
        with pytest.raises(
            InvalidConfiguration, match=r"^channels\.tls_ca .*nowhere\.pem cannot be read"
        ) as caught:
            async with open_site(with_file):
                pass
        assert caught.value.field == "channels.tls_ca"

    run(scenario())
