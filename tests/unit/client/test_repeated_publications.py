"""A publication whose outcome is unknown is sent again, and stored once."""

import asyncio
import random
from typing import Any

import pytest

import culver
from culver.errors import Conflict, StorageFull, Unavailable
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.severable import Severable, severable
from support.until import settled, until

either_way = pytest.mark.parametrize("count", [1, 4], ids=["websocket", "http"])


def publication(n: int, count: int) -> list[dict[str, Any]]:
    """So many events, which go by HTTP together, but not one alone."""
    return [{"n": count * n + at, "text": "x" * 200_000} for at in range(count)]


class StoppingSite(FakeSite):
    attempts = 0

    def fail(self, method: str) -> None:
        self.attempts += 1
        super().fail(method)


def stored(site: FakeSite) -> list[Any]:
    return [event.data["n"] for event in site.events]


@either_way
def test_publication_whose_answer_is_lost_gets_its_receipt_from_the_repeat(count: int) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url) as client,
        ):
            await client.ready()
            await client.publish(n=-1)
            relay.flowing.clear()
            works = [asyncio.create_task(client.publish(publication(n, count))) for n in range(3)]
            await until(lambda: len(site.events) == 1 + 3 * count)
            relay.sever()
            relay.flowing.set()
            receipts = await asyncio.gather(*works)
            assert [stored(site)[receipt.first_offset] for receipt in receipts] == [0, count, 2 * count]
        assert sorted(stored(site)) == [-1, *range(3 * count)]

    run(scenario())


def test_publications_keep_their_order_through_lost_connections() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        rng = random.Random(7)

        async def more_stored(events: int) -> None:
            end = len(site.events) + events
            await until(lambda: len(site.events) >= end)

        async def cut(relay: Severable) -> None:
            for _ in range(12):
                await more_stored(rng.randint(50, 250))
                if rng.random() < 0.5:
                    relay.flowing.clear()
                    await settled(lambda: len(site.events))
                relay.sever()
                relay.flowing.set()

        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url, max_in_flight=200) as client,
        ):
            await client.publish(n=-1)
            cutting = asyncio.create_task(cut(relay))
            receipts: list[Any] = []
            number = 0
            while not cutting.done() or number < 2_000:
                works = [client.publish(n=n) for n in range(number, number + 99)]
                works.append(client.publish([{"n": number + 99}, {"n": number + 99.5}]))
                receipts += await asyncio.gather(*works)
                number += 100
            await cutting
        numbers = stored(site)
        assert len(set(numbers)) == len(numbers) == 1 + number + number // 100
        assert all(numbers[receipt.first_offset] == n for n, receipt in enumerate(receipts))

    run(scenario())


def test_publications_that_were_refused_meanwhile_stay_refused() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url) as client,
        ):
            await client.publish(n=-1)
            relay.flowing.clear()
            events: list[dict[str, Any]] = [{"n": n} for n in range(6)]
            events[2]["at"] = {"$timestamp": "soon"}
            works = [asyncio.create_task(client.publish(event)) for event in events]
            await until(lambda: len(site.events) == 6)
            relay.sever()
            relay.flowing.set()
            found = await asyncio.gather(*works, return_exceptions=True)
        assert [isinstance(each, culver.RequestRefused) for each in found] == [n == 2 for n in range(6)]
        assert stored(site) == [-1, 0, 1, 3, 4, 5]

    run(scenario())


@either_way
def test_site_that_does_not_come_back_fails_publications_in_the_end(count: int) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url, retry_seconds=0.3) as client,
        ):
            await client.ready()
            await client.publish(n=0)
            relay.refusing = True
            relay.sever()
            works = [asyncio.create_task(client.publish(publication(n, count))) for n in range(4)]
            found = await asyncio.gather(*works, return_exceptions=True)
            assert all(isinstance(each, culver.ConnectionFailed) for each in found)
            relay.refusing = False
            assert await client.publish(n=5) == culver.Receipt(1, 2)

    run(scenario())


@either_way
def test_site_that_is_stopping_is_asked_again_and_one_that_is_full_is_not(count: int) -> None:
    async def scenario() -> None:
        site = StoppingSite(gateway_settings())
        async with served(site) as server, culver.connect(server.url) as client:
            site.failures["publish"] = Unavailable("the site is stopping")
            work = asyncio.create_task(client.publish(publication(0, count)))
            await until(lambda: site.attempts == 3)
            assert not work.done()
            del site.failures["publish"]
            assert await work == culver.Receipt(0, count)
            site.failures["publish"] = StorageFull("the disk is full")
            with pytest.raises(culver.RequestRefused, match="the disk is full"):
                await client.publish(publication(1, count))

    run(scenario())


@either_way
def test_repeat_that_comes_too_late_has_an_unknown_outcome(count: int) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        forgotten = Conflict("sequence 0 is too old", field="sequence", sequence=0, floor=7)
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url) as client,
        ):
            await client.ready()
            await client.publish(n=-1)
            relay.flowing.clear()
            work = asyncio.create_task(client.publish(publication(0, count)))
            await until(lambda: len(site.events) == 1 + count)
            site.failures["publish"] = forgotten
            relay.sever()
            relay.flowing.set()
            with pytest.raises(culver.ConnectionFailed, match="unknown whether the site stored") as caught:
                await work
            assert isinstance(caught.value.__cause__, culver.RequestRefused)
            with pytest.raises(culver.RequestRefused, match="too old") as refused:
                await client.publish_once(publication(0, count), publisher="loader", sequence=0)
            assert (refused.value.details["status"], refused.value.details["floor"]) == (409, 7)
            site.failures["publish"] = Conflict("another event", field="sequence")
            with pytest.raises(culver.RequestRefused, match="another event"):
                await client.publish(publication(1, count))

    run(scenario())


@either_way
def test_every_outage_is_logged_once(count: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        site = StoppingSite(gateway_settings())
        async with served(site) as server, culver.connect(server.url) as client:
            for outage in range(3):
                site.failures["publish"] = Unavailable("the site is stopping")
                site.attempts = 0
                work = asyncio.create_task(client.publish(publication(outage, count)))
                await until(lambda: site.attempts == 2)
                del site.failures["publish"]
                await work
                assert caplog.text.count("publications are sent again") == outage + 1

    run(scenario())


def test_callers_own_numbers_hold_for_every_client() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            async with culver.connect(server.url) as client:
                first = await client.publish_once([{"n": 0}, {"n": 1}], publisher="loader", sequence=0)
                assert (first.first_offset, first.accepted, first.repeated) == (0, 2, 0)
                await client.publish(n=9)
            async with culver.connect(server.url, retry_seconds=0) as client:
                again = await client.publish_once([{"n": 1}, {"n": 2}], publisher="loader", sequence=1)
                assert (again.first_offset, again.next_offset) == (1, 4)
                assert (again.accepted, again.repeated) == (2, 1)
                assert again.ranges == [culver.Receipt(1, 2), culver.Receipt(3, 4)]
                with pytest.raises(culver.RequestRefused, match="another event") as caught:
                    await client.publish_once({"n": 3}, publisher="loader", sequence=1)
                assert (caught.value.field, caught.value.details["status"]) == ("sequence", 409)
                with pytest.raises(culver.RequestRefused) as caught:
                    await client.publish_once({"n": 3}, publisher="a b", sequence=1)
                assert caught.value.field == "publisher"
        assert stored(site) == [0, 1, 9, 2]

    run(scenario())
