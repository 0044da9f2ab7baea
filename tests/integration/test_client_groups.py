"""The client's group streams against a site that runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import culver
from culver.assembly import open_site
from culver.client.websocket_connection import Connection
from culver.config import GatewaySettings, PipelineSettings, Settings
from culver.gateway.server.gateway_server import GatewayServer
from culver.messages import Ack, ClientMessage, Detach
from support.gateway import run, served
from support.scenes import ready
from support.severable import severable
from support.until import until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _quick_reconnection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culver.client.receiving.group_part.backoff", lambda _: iter([0.01] * 1000))


@asynccontextmanager
async def running_site(directory: Path) -> AsyncIterator[GatewayServer]:
    settings = Settings(
        data_dir=directory / "data",
        pipeline=PipelineSettings(engine="inline"),
        gateway=GatewaySettings(port=0),
    )
    async with open_site(settings) as site:
        await ready(site)
        async with served(site) as server:
            yield server


async def make_set(client: culver.Client, *rows: int, name: str = "quotes") -> None:
    await client.subscribe_many("n >= ?", [[row] for row in rows], name=name)


async def publish(client: culver.Client, numbers: range) -> None:
    await client.publish([{"n": n} for n in numbers])


async def pending(client: culver.Client) -> dict[str, int]:
    return {each.id: each.pending async for each in client.subscriptions()}


def watch(monkeypatch: pytest.MonkeyPatch, kind: type) -> list[Any]:
    """All requests of a kind that are made from now on."""
    made: list[Any] = []
    request = Connection.request

    async def watched(self: Connection, message: ClientMessage) -> Any:
        if isinstance(message, kind):
            made.append(message)
        return await request(self, message)

    monkeypatch.setattr(Connection, "request", watched)
    return made


def test_an_event_comes_once_with_all_subscriptions_that_it_is_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_site(tmp_path) as server, culver.connect(server.url) as client:
            await make_set(client, 0, 2, 5)
            await client.create_subscription("n = 1", id="alerts-a")
            await client.create_subscription("n >= 1", id="alerts-b")
            async with (
                client.subscribe_set("quotes") as quotes,
                client.subscribe_prefix("alerts-") as alerts,
                client.subscribe_group(["quotes.1", "alerts-a"]) as some,
            ):
                assert (quotes.count, alerts.count, some.count) == (3, 2, 2)
                await publish(client, range(3))
                received = [await anext(quotes) for _ in range(3)]
                assert [(m.offset, m["n"], m.subscriptions) for m in received] == [
                    (0, 0, ("quotes.0",)),
                    (1, 1, ("quotes.0",)),
                    (2, 2, ("quotes.0", "quotes.1")),
                ]
                assert received[2].delivery_ids == ("quotes.0:2", "quotes.1:2")
                assert [(await anext(alerts)).subscriptions for _ in range(2)] == [
                    ("alerts-a", "alerts-b"),
                    ("alerts-b",),
                ]
                assert [(await anext(some)).subscriptions for _ in range(2)] == [("alerts-a",), ("quotes.1",)]
                await received[2].ack()
            assert (await pending(client))["quotes.0"] == 0
            assert client.gaps == 0

    run(scenario())


def test_a_group_goes_on_after_a_lost_connection_and_nothing_comes_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_site(tmp_path) as server,
            severable(server.port) as relay,
            culver.connect(server.url) as publisher,
            culver.connect(relay.url) as client,
        ):
            await make_set(publisher, 0, 10)
            received: list[culver.GroupMessage] = []
            async with client.subscribe_set("quotes", ack="manual") as stream:
                await publish(publisher, range(20))
                async for message in stream:
                    received.append(message)
                    if len(received) in (5, 25):
                        relay.sever()
                    if len(received) == 20:
                        await publish(publisher, range(20, 40))
                    if len(received) == 40:
                        break
                assert [message.offset for message in received] == list(range(40))
                ids = [each for message in received for each in message.delivery_ids]
                assert len(ids) == len(set(ids)) == 40 + 30
                await received[29].ack()
                assert await pending(publisher) == {"quotes.0": 10, "quotes.1": 10}
                await received[39].ack()
                assert await pending(publisher) == {"quotes.0": 0, "quotes.1": 0}
            async with culver.connect(server.url) as another, another.subscribe_set("quotes") as rest:
                await publish(publisher, range(40, 41))
                assert (await anext(rest)).offset == 40

    run(scenario())


def test_what_was_not_acknowledged_comes_again_in_the_next_stream(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_site(tmp_path) as server:
            async with culver.connect(server.url) as client:
                await make_set(client, 0, 1)
                stream = client.subscribe_set("quotes")
                await stream.start()
                await publish(client, range(5))
                first = [await anext(stream) for _ in range(3)]  # the last one is in hand
            async with culver.connect(server.url) as client:
                again = client.subscribe_group(["quotes.1", "quotes.0"])
                second = [await anext(again) for _ in range(3)]
            assert first[2].delivery_ids == second[0].delivery_ids == ("quotes.0:2", "quotes.1:2")
            assert [message.offset for message in second] == [2, 3, 4]

    run(scenario())


def test_acknowledgements_of_many_tasks_share_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_site(tmp_path) as server, culver.connect(server.url) as client:
            await make_set(client, 0, 0)
            await client.create_subscription("TRUE", id="alone")
            async with (
                client.subscribe_set("quotes", ack="manual") as group,
                client.subscribe(durable="alone", ack="manual") as single,
            ):
                await publish(client, range(100))
                messages = [await anext(group) for _ in range(100)]
                singles = [await anext(single) for _ in range(100)]
                acks = watch(monkeypatch, Ack)
                await asyncio.gather(messages[0].ack(), messages[1].ack())
                assert await pending(client) == {"alone": 100, "quotes.0": 98, "quotes.1": 98}
                before = len(acks)
                await asyncio.gather(*(message.ack() for message in reversed(messages)))
                await asyncio.gather(*(message.ack() for message in singles))
                assert await pending(client) == {"alone": 0, "quotes.0": 0, "quotes.1": 0}
                assert before <= 2
                assert len(acks) <= before + 4
                await messages[50].ack()  # is covered
                assert len(acks) <= before + 4

    run(scenario())


def test_a_set_may_grow_while_it_is_followed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_site(tmp_path) as server, culver.connect(server.url) as client:
            await make_set(client, 0)
            expected: dict[int, set[str]] = {}
            received: dict[int, list[str]] = {}
            async with client.subscribe_set("quotes", ack="manual") as stream:
                busy = asyncio.Event()

                async def keep_publishing() -> None:
                    for _ in range(60):
                        await publish(client, range(5))
                        busy.set()

                publishing = asyncio.create_task(keep_publishing())
                await busy.wait()
                since = {"quotes.0": 0}
                for number in range(1, 9):
                    rows = await client.subscribe_many("n >= ?", [[0]], name="quotes")
                    since[f"quotes.{number}"] = rows.since
                await publishing
                for offset in range(300):
                    expected[offset] = {name for name, start in since.items() if start <= offset}
                wanted = sum(map(len, expected.values()))
                while sum(map(len, received.values())) < wanted:
                    message = await anext(stream)
                    received.setdefault(message.offset, []).extend(message.subscriptions)
                    await message.ack()
            assert {offset: set(names) for offset, names in received.items()} == expected
            assert all(len(names) == len(set(names)) for names in received.values())
            assert set((await pending(client)).values()) == {0}

    run(scenario())


def test_a_group_that_does_not_exist_is_refused_and_one_that_is_removed_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_site(tmp_path) as server,
            severable(server.port) as relay,
            culver.connect(server.url) as client,
            culver.connect(relay.url) as other,
        ):
            for stream in (client.subscribe_set("quotes"), client.subscribe_group(["alerts"])):
                with pytest.raises(culver.RequestRefused, match="there is no") as refused:
                    await stream.start()
                assert refused.value.details["code"] == "not_found"
            await make_set(client, 0, 0)
            await client.create_subscription("TRUE", id="alerts")
            async with (
                client.subscribe_set("quotes") as quotes,
                client.subscribe_group(["quotes.0", "alerts"]) as some,
                other.subscribe_group(["quotes.0", "alerts"]) as others,
                client.subscribe_prefix("q") as prefix,
            ):
                await publish(client, range(1))
                await client.delete_set("quotes")
                received = [message.subscriptions async for message in quotes]
                assert received in ([], [("quotes.0", "quotes.1")])
                # One of its two subscriptions is gone, and that is no reason to end, even where it connects again.
                relay.sever()
                await publish(client, range(1, 2))
                for stream in (some, others):
                    while (message := await anext(stream)).offset < 1:
                        pass
                    assert message.subscriptions == ("alerts",)
                await client.delete_subscription("alerts")
                assert [message async for message in some] == []
                assert [message async for message in others] == []
                # Others may begin with the prefix at any time.
                await make_set(client, 0, name="quotes2")
                await publish(client, range(1))
                while (message := await anext(prefix)).subscriptions != ("quotes2.0",):
                    pass

    run(scenario())


def test_a_list_that_vanishes_while_the_connection_is_lost_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_site(tmp_path) as server,
            severable(server.port) as relay,
            culver.connect(server.url) as client,
            culver.connect(relay.url) as other,
        ):
            await make_set(client, 0, 0)
            async with (
                other.subscribe_group(["quotes.0", "quotes.1"]) as some,
                other.subscribe_set("quotes") as quotes,
            ):
                relay.refusing = True
                relay.sever()
                await client.delete_set("quotes")
                relay.refusing = False
                assert [message async for message in some] == []
                with pytest.raises(culver.RequestRefused, match="there is no set 'quotes'"):
                    await anext(quotes)

    run(scenario())


def test_a_slow_reader_detaches_the_group_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        detached = watch(monkeypatch, Detach)
        async with (
            running_site(tmp_path) as server,
            culver.connect(server.url, buffer_count=20) as client,
            culver.connect(server.url) as publisher,
        ):
            await make_set(client, 0, 100)
            async with client.subscribe_set("quotes", ack="manual") as stream:
                for start in range(0, 300, 100):
                    await publish(publisher, range(start, start + 100))
                await until(lambda: detached)
                received = [await anext(stream)]
                # Nobody follows the group now, and an acknowledgement gets through.
                await received[0].ack()
                assert await pending(publisher) == {"quotes.0": 299, "quotes.1": 200}
                while len(received) < 300:
                    received.append(await anext(stream))
                    if len(received) % 7 == 0:
                        await received[-1].ack()
                assert [message.offset for message in received] == list(range(300))
                assert sum(len(message.subscriptions) for message in received) == 500
                await received[-1].ack()
                assert await pending(publisher) == {"quotes.0": 0, "quotes.1": 0}
            assert len(detached) > 3
            assert client.gaps == 0

    run(scenario())


def test_gaps_name_the_subscriptions_that_they_concern(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_site(tmp_path) as server,
            severable(server.port) as relay,
            culver.connect(server.url) as publisher,
            culver.connect(relay.url) as client,
        ):
            small = culver.Mailbox(max_count=5)
            await publisher.create_subscription("TRUE", id="alerts-small", mailbox=small)
            await publisher.create_subscription("TRUE", id="alerts-large")
            await publish(publisher, range(30))

            async def dropped() -> bool:
                return (await pending(publisher)) == {"alerts-small": 5, "alerts-large": 30}

            await until(dropped)
            async with client.subscribe_prefix("alerts-", gaps=True, ack="manual") as stream:
                gap = await anext(stream)
                assert isinstance(gap, culver.GroupGap)
                assert gap == culver.GroupGap(("alerts-small",), 0, 25, 25, "overflow")
                relay.sever()
                received = [await anext(stream) for _ in range(30)]
                # The gap is not announced again, and those that it does not concern have everything.
                assert all(isinstance(item, culver.GroupMessage) for item in received)
                assert (stream.gaps, client.gaps) == (1, 1)
            assert sum(len(m.subscriptions) for m in received if isinstance(m, culver.GroupMessage)) == 35

    run(scenario())


def test_a_group_without_reconnection_ends_with_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running_site(tmp_path) as server,
            severable(server.port) as relay,
            culver.connect(relay.url, reconnect=False) as client,
        ):
            await make_set(client, 0)
            stream = client.subscribe_set("quotes", ack="manual")
            await stream.start()
            await publish(client, range(1))
            message = await anext(stream)
            relay.sever()
            with pytest.raises(culver.ConnectionFailed):
                await anext(stream)
            await message.ack()
            assert await pending(client) == {"quotes.0": 0}

    run(scenario())


async def receive_over_many_streams(server: GatewayServer, durable_count: int, live_count: int) -> None:
    """All of them get everything, on connections that the client opens by itself."""
    async with (
        severable(server.port) as relay,
        culver.connect(server.url) as publisher,
        culver.connect(relay.url) as client,
    ):
        await publisher.subscribe_many("n >= ?", [[0]] * durable_count, name="rows")
        durable = [client.subscribe(durable=f"rows.{n}") for n in range(durable_count)]
        live = [client.subscribe("n >= 0") for _ in range(live_count)]
        await asyncio.gather(*(stream.start() for stream in durable + live))
        assert relay.accepted == -(-(durable_count + live_count) // 1000)
        await publish(publisher, range(1))
        assert {(await anext(stream))["n"] for stream in durable + live} == {0}
        relay.sever()
        await publish(publisher, range(1, 2))
        assert {(await anext(stream))["n"] for stream in durable} == {1}


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("durable", "live"), [(1000, 1), (2400, 100)])
def test_many_streams_spread_over_connections(tmp_path: Path, durable: int, live: int) -> None:
    async def scenario() -> None:
        async with running_site(tmp_path) as server:
            await receive_over_many_streams(server, durable, live)

    run(scenario())


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_ten_thousand_streams_spread_over_connections(tmp_path: Path, full_length: bool) -> None:
    if not full_length:
        pytest.skip("takes up to four minutes: run with --full")

    async def scenario() -> None:
        async with running_site(tmp_path) as server:
            await receive_over_many_streams(server, 8000, 2000)

    run(scenario())


def test_two_streams_of_one_subscription_do_not_share_it_over_two_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("culver.client.connection_pool.MOST_STREAMS", 1)

    async def scenario() -> None:
        async with running_site(tmp_path) as server, culver.connect(server.url) as client:
            first = client.subscribe("TRUE", durable="alerts")
            await first.start()
            second = client.subscribe("TRUE", durable="alerts")
            with pytest.raises(culver.ClientError, match="already being received by this client"):
                await second.start()
            await first.close()
            third = client.subscribe("TRUE", durable="alerts")
            await third.start()
            with contextlib.suppress(culver.ClientError):
                await publish(client, range(1))
            assert (await anext(third))["n"] == 0

    run(scenario())
