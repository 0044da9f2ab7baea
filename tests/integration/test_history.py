"""The history of a real site: what trimming leaves of it, and reading it while the site works."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from culver.client import Client
from culver.config import LogSettings, PipelineSettings, Settings
from culver.errors import RequestRefused
from culver.model import Event
from culver.model.language import parse
from culver.registry import SubscriptionSpec
from culver.site import RunningSite
from support.gateway import gateway_settings, served
from support.scenes import delivered, run

_EVENTS = 400


def settings_for(data_dir: Path, retention_seconds: int = 0) -> Settings:
    log = LogSettings(segment_bytes=8_192, retention_seconds=retention_seconds, reserve_bytes=0)
    return gateway_settings(
        Settings(data_dir=data_dir, pipeline=PipelineSettings(engine="inline"), log=log), host="127.0.0.1"
    )


async def fill(site: RunningSite) -> None:
    for start in range(0, _EVENTS, 20):
        events = [Event({}, {"n": n}, b'{"n": %d}' % n + b" " * 200) for n in range(start, start + 20)]
        await site.publications.publish(events)
    await delivered(site)
    await site.keep_house()
    await site.keep_house()


def test_what_no_mailbox_needs_is_trimmed_and_named(tmp_path: Path) -> None:
    async def scene(site: RunningSite) -> None:
        await fill(site)
        async with served(site) as server, Client(server.url) as client:
            first = (await client.log()).first_offset
            assert 0 < first < _EVENTS
            assert [each.offset async for each in client.history()] == list(range(first, _EVENTS))
            with pytest.raises(RequestRefused) as caught:
                await anext(client.history(0))
            assert (caught.value.details["code"], caught.value.details["first_offset"]) == ("gone", first)

    run(settings_for(tmp_path), scene)


def test_a_mailbox_keeps_its_events_and_so_does_retention(tmp_path: Path) -> None:
    async def needed(site: RunningSite) -> None:
        await site.subscriptions.add([SubscriptionSpec(parse("n = 3"), "s", True)])
        await fill(site)
        assert (await site.history.bounds()).first_offset == 0
        page = await site.history.pick(site.sessions.waiting(await site.subscriptions.get("s"), 0, 9).offsets)
        assert page.offsets.tolist() == [3]

    run(settings_for(tmp_path / "needed"), needed)

    async def retained(site: RunningSite) -> None:
        await fill(site)
        assert (await site.history.bounds()).first_offset == 0

    run(settings_for(tmp_path / "retained", retention_seconds=3600), retained)


def test_history_goes_by_time_and_by_filter(tmp_path: Path) -> None:
    async def scene(site: RunningSite) -> None:
        await fill(site)
        async with served(site) as server, Client(server.url) as client:
            everything = [each async for each in client.history(filter_text="n >= 100 AND n < 1000")]
            assert [each["n"] for each in everything] == list(range(100, _EVENTS))
            middle = everything[150].received
            since = [each.offset async for each in client.history(since=middle)]
            until = [each.offset async for each in client.history(until=middle)]
            assert [*until, *since] == list(range(_EVENTS))
            assert abs(middle.timestamp() - time.time()) < 600

    run(settings_for(tmp_path, retention_seconds=3600), scene)


def test_a_mailbox_is_read_by_range_while_a_session_is_open(tmp_path: Path) -> None:
    async def scene(site: RunningSite) -> None:
        [registration] = await site.subscriptions.add([SubscriptionSpec(parse("n >= 10"), "s", True)])
        await fill(site)
        session = await site.sessions.open(registration)
        async with served(site) as server, Client(server.url) as client:
            part = await client.mailbox("s", limit=100, part=40)
            assert (part.start, part.end, part.bounds) == (0, 110, [0, 50, 90, 110])
            read: list[int] = []
            at = part.start
            while at < part.end:
                page = await client.mailbox_table(
                    "s", at, part.end, 30, attributes=["n"], include="attributes"
                )
                read += page.events.column("i:n").to_pylist()
                at = page.next
            assert read == list(range(10, 110))
            assert len(await session.receive(1000, 5)) > 0
            await client.acknowledge("s", 109)
            assert (await client.subscription("s")).pending == _EVENTS - 110
            waiting = asyncio.create_task(client.mailbox("s", _EVENTS, wait_seconds=20))
            await asyncio.sleep(0)
            await site.publications.publish([Event({}, {"n": 77}, b'{"n": 77}')])
            assert (await waiting).count == 1
        await session.close()

    run(replace(settings_for(tmp_path)), scene)
