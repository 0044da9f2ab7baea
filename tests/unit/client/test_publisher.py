"""Publications that share messages, through the client to a site in memory."""

import asyncio
from typing import Any

import culver
from culver.config import EventSettings, GatewaySettings, Settings
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.until import until


async def outcomes(works: list[Any]) -> list[Any]:
    return await asyncio.gather(*works, return_exceptions=True)


def test_single_publications_share_messages_and_keep_their_order() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        sizes: list[int] = []
        publish = site.publications.publish_once

        def noted(events: Any, numbers: Any) -> Any:
            sizes.append(len(events))
            return publish(events, numbers)

        site.publications.publish_once = noted  # type: ignore[method-assign]
        async with served(site) as server, culver.connect(server.url) as client:
            works: list[Any] = [client.publish(n=n) for n in range(500)]
            works.insert(250, client.publish([{"n": 1_000}, {"n": 1_001}]))
            receipts = await outcomes(works)
        assert len(sizes) < 20
        assert receipts[250] == culver.Receipt(250, 252)
        assert [receipt.first_offset for receipt in receipts] == [*range(251), *range(252, 502)]
        assert [event.data["n"] for event in site.events] == [*range(250), 1_000, 1_001, *range(250, 500)]

    run(scenario())


def test_event_that_the_site_cannot_read_fails_alone() -> None:
    async def scenario() -> None:
        deep: dict[str, Any] = {}
        for _ in range(400):
            deep = {"a": deep}
        events: list[Any] = [
            {"n": 0},
            deep,
            b'\xef\xbb\xbf{"n": 1}',
            {"at": {"$timestamp": "soon"}},
            {"n": "é"},
        ]
        site = FakeSite(gateway_settings())
        async with served(site) as server, culver.connect(server.url) as client:
            found = await outcomes([client.publish(event) for event in events])
            assert [isinstance(each, culver.RequestRefused) for each in found] == [
                False,
                True,
                False,
                True,
                False,
            ]
            assert found[3].field == "events[0].at"
        assert [event.data["n"] for event in site.events] == [0, 1, "é"]

    run(scenario())


def test_site_that_takes_fewer_events_at_once_gets_all_of_them() -> None:
    async def scenario() -> None:
        site = FakeSite(Settings(gateway=GatewaySettings(port=0), events=EventSettings(max_batch=10)))
        async with served(site) as server, culver.connect(server.url) as client:
            found = await outcomes([client.publish(n=n) for n in range(60)])
        assert {site.events[each.first_offset].data["n"]: n for n, each in enumerate(found)} == {
            n: n for n in range(60)
        }

    run(scenario())


def test_publication_over_http_counts_as_one_in_flight() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, culver.connect(server.url, max_in_flight=1) as client:
            large = [{"n": n, "text": "x" * 10_000} for n in range(100)]
            works: list[Any] = [client.publish(n=-1), client.publish(large), client.publish(n=-2)]
            assert await outcomes(works) == [
                culver.Receipt(0, 1),
                culver.Receipt(1, 101),
                culver.Receipt(101, 102),
            ]

    run(scenario())


def test_closing_fails_what_is_in_flight_and_what_waits() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        site.hold.clear()
        async with served(site) as server:
            async with culver.connect(server.url, max_in_flight=10) as client:
                await client.ready()
                tasks = [asyncio.create_task(client.publish(n=n)) for n in range(25)]
                large = [{"n": n, "text": "x" * 10_000} for n in range(100)]
                tasks.append(asyncio.create_task(client.publish(large)))
                await client.ready()
            found = await outcomes(tasks)
            assert all(isinstance(each, culver.ClientError) for each in found)
            assert len({id(each) for each in found}) == 26
            site.hold.set()

    run(scenario())


def test_caller_that_gives_up_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        site.hold.clear()
        async with served(site) as server, culver.connect(server.url, max_in_flight=4) as client:
            tasks = [asyncio.create_task(client.publish(n=n)) for n in range(8)]
            await client.ready()
            tasks[1].cancel()
            tasks[5].cancel()
            site.hold.set()
            found = await outcomes(tasks)
        assert [type(each) for each in found].count(asyncio.CancelledError) == 2
        assert [event.data["n"] for event in site.events] == [0, 1, 2, 3, 4, 6, 7]

    run(scenario())


def test_no_answer_in_time_fails_each_and_the_client_goes_on() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        site.hold.clear()
        async with (
            served(site) as server,
            culver.connect(server.url, timeout_seconds=0.3, retry_seconds=0) as client,
        ):
            found = await outcomes([client.publish(n=n) for n in range(3)])
            assert all(isinstance(each, culver.ConnectionFailed) for each in found)
            assert "did not answer within" in str(found[0])
            site.hold.set()
            await until(lambda: len(site.events) == 3)
            assert await client.publish(n=3) == culver.Receipt(3, 4)

    run(scenario())


def test_site_that_is_not_there_fails_each() -> None:
    async def scenario() -> None:
        async with culver.connect("http://127.0.0.1:1", max_in_flight=2) as client:
            found = await outcomes([client.publish(n=n) for n in range(9)])
            assert all(isinstance(each, culver.ConnectionFailed) for each in found)
            assert all("connection refused" in str(each) for each in found)
            assert len({id(each) for each in found}) == 9

    run(scenario())
