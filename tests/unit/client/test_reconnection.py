"""What the client does when the connection goes away, and when its reader is too slow."""

import asyncio
import contextlib
import logging

import pytest

import culver
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.severable import severable
from support.until import until


def _site() -> FakeSite:
    return FakeSite(gateway_settings())


@pytest.fixture(autouse=True)
def _quick_reconnection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culver.client.receiving.feed.backoff", lambda _: iter([0.01] * 1000))


def test_a_durable_subscription_goes_on_after_a_lost_connection() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url) as client,
        ):
            received = []
            await client.create_subscription("n >= 0", id="alerts")
            await client.publish([{"n": n} for n in range(10)])
            async with client.subscribe("n >= 0", durable="alerts") as stream:
                async for message in stream:
                    received.append(message["n"])
                    if len(received) in (5, 15):
                        relay.sever()
                    if len(received) == 10:
                        await until(lambda: site.open_sessions)
                        await client.publish([{"n": n} for n in range(10, 20)])
                    if len(received) == 20:
                        await message.ack()
                        break
            assert received == list(range(20))
            assert client.gaps == 0
            assert (await client.subscription("alerts")).pending == 0

    run(scenario())


def test_what_was_not_acknowledged_comes_again_with_the_same_delivery_id() -> None:
    async def scenario() -> None:
        async with served(_site()) as server:
            async with culver.connect(server.url) as client:
                stream = client.subscribe("TRUE", durable="alerts", ack="manual")
                await stream.start()
                await client.publish([{"n": n} for n in range(3)])
                first = [await anext(stream) for _ in range(3)]
                await first[0].ack()
            async with culver.connect(server.url) as client:
                again = client.subscribe(durable="alerts", ack="manual")
                second = [await anext(again) for _ in range(2)]
            assert [m.delivery_id for m in first] == ["alerts:0", "alerts:1", "alerts:2"]
            assert [m.delivery_id for m in second] == ["alerts:1", "alerts:2"]

    run(scenario())


def test_automatic_acknowledgement_covers_all_but_the_message_in_hand() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            async with client.subscribe("TRUE", durable="alerts") as stream:
                await client.publish([{"n": n} for n in range(100)])
                async for message in stream:
                    if message["n"] == 41:
                        break
            assert site.acknowledged == {"alerts": 40}

    run(scenario())


def test_closing_the_client_sends_the_acknowledgements_under_way() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server:
            async with culver.connect(server.url) as client:
                stream = client.subscribe("TRUE", durable="alerts")
                await stream.start()
                await client.publish([{"n": n} for n in range(10)])
                for _ in range(10):
                    await anext(stream)
            assert site.acknowledged == {"alerts": 8}

    run(scenario())


def test_an_acknowledgement_gets_through_while_the_subscription_is_not_attached() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url, reconnect=False) as client,
        ):
            stream = client.subscribe("TRUE", durable="alerts", ack="manual")
            await stream.start()
            await client.publish(n=0)
            message = await anext(stream)
            relay.sever()
            with pytest.raises(culver.ConnectionFailed):
                await anext(stream)
            await message.ack()
        assert site.acknowledged == {"alerts": 0}

    run(scenario())


def test_a_live_subscription_goes_on_with_a_gap_from_where_it_was() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(server.url) as publisher,
            culver.connect(relay.url) as client,
            client.subscribe("TRUE", gaps=True) as stream,
        ):
            await publisher.publish([{"n": 0}, {"n": 1}])
            assert [getattr(await anext(stream), "offset", None) for _ in range(2)] == [0, 1]
            relay.refusing = True
            relay.sever()
            await until(lambda: not site.open_sessions)
            await publisher.publish([{"n": 2}, {"n": 3}, {"n": 4}])
            relay.refusing = False
            await until(lambda: site.open_sessions)
            await publisher.publish(n=5)
            gap = await anext(stream)
            assert isinstance(gap, culver.Gap)
            assert (gap.start, gap.end, gap.dropped, gap.reason) == (2, 5, None, "disconnected")
            message = await anext(stream)
            assert isinstance(message, culver.Message)
            assert message.offset == 5
            assert (stream.gaps, client.gaps) == (1, 1)

    run(scenario())


def test_a_live_subscription_that_had_seen_nothing_still_announces_the_gap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(server.url) as publisher,
            culver.connect(relay.url) as client,
            client.subscribe("TRUE") as stream,
        ):
            relay.refusing = True
            relay.sever()
            await until(lambda: not site.open_sessions)
            await publisher.publish([{"n": 0}, {"n": 1}])
            relay.refusing = False
            await until(lambda: site.open_sessions)
            await publisher.publish(n=2)
            assert (await anext(stream)).offset == 2
            assert stream.gaps == 1

    with caplog.at_level(logging.WARNING, "culver.client"):
        run(scenario())
    assert "events from 0 to 1 may be missing (number unknown, disconnected)" in caplog.text


def test_without_retries_a_publication_in_flight_fails_when_the_connection_drops() -> None:
    async def scenario() -> None:
        site = _site()
        site.hold.clear()
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url, retry_seconds=0) as client,
        ):
            publication = asyncio.create_task(client.publish(n=0))
            await until(lambda: relay.accepted)
            await client.ready()
            relay.sever()
            with pytest.raises(culver.ConnectionFailed) as caught:
                await publication
            assert caught.value.retryable
            assert caught.value.__cause__ is not None
            site.hold.set()
            await client.publish(n=1)
        # The first may or may not have been stored, but never twice.
        stored = [event.data["n"] for event in site.events]
        assert stored in ([1], [0, 1], [1, 0])

    run(scenario())


def test_no_answer_in_time_is_a_failed_connection() -> None:
    async def scenario() -> None:
        site = _site()
        site.hold.clear()
        async with (
            served(site) as server,
            culver.connect(server.url, timeout_seconds=0.1, retry_seconds=0) as client,
        ):
            with pytest.raises(culver.ConnectionFailed, match="did not answer within"):
                await client.publish(n=0)
            site.hold.set()

    run(scenario())


def test_a_site_that_stops_ends_what_is_under_way() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            culver.connect(server.url, reconnect=False) as client,
            client.subscribe("TRUE") as stream,
        ):
            reading = asyncio.ensure_future(anext(stream))
            await server.stop()
            with pytest.raises(culver.ConnectionFailed, match="the site is stopping"):
                await reading

    run(scenario())


def test_the_first_connection_must_succeed() -> None:
    async def scenario() -> None:
        async with culver.connect("http://127.0.0.1:1") as client:
            with pytest.raises(culver.ConnectionFailed, match="connection refused") as caught:
                await client.publish(n=1)
            assert isinstance(caught.value.__cause__, OSError)
            with pytest.raises(culver.ConnectionFailed, match="connection refused"):
                await anext(client.subscribe("TRUE"))
            with pytest.raises(culver.ConnectionFailed, match="connection refused"):
                await client.ready()
            with pytest.raises(culver.ConnectionFailed):
                await client.create_subscription("TRUE")

    run(scenario())


def test_a_server_that_is_no_site_is_named_as_such() -> None:
    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, culver.connect(url) as client:
            with pytest.raises(culver.ConnectionFailed, match="is it a Culver site"):
                await client.publish(n=1)
            with pytest.raises(culver.ConnectionFailed, match="is it a Culver site"):
                await client.explain_filter("TRUE")

    run(scenario())


def test_a_removed_subscription_ends_its_stream() -> None:
    async def scenario() -> None:
        async with served(_site()) as server, culver.connect(server.url) as client:
            stream = client.subscribe("TRUE", durable="alerts")
            await stream.start()
            await client.publish(n=1)
            assert (await anext(stream))["n"] == 1
            await client.delete_subscription("alerts")
            assert [message async for message in stream] == []

    run(scenario())


def test_a_durable_subscription_with_another_filter_is_a_conflict() -> None:
    async def scenario() -> None:
        async with served(_site()) as server, culver.connect(server.url) as client:
            await client.create_subscription("n > 1", id="alerts")
            with pytest.raises(culver.Conflict, match="exists with the filter 'n > 1'"):
                await client.subscribe("n > 2", durable="alerts").start()
            async with client.subscribe("n > 1", durable="alerts"):
                with pytest.raises(culver.ClientError, match="already being received"):
                    await client.subscribe("n > 1", durable="alerts").start()

    run(scenario())


def test_a_slow_reader_of_a_durable_subscription_loses_nothing_and_holds_little() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url, buffer_count=20) as client:
            async with client.subscribe("TRUE", durable="alerts", ack="manual") as stream:
                for start in range(0, 1000, 100):
                    await client.publish([{"n": n} for n in range(start, start + 100)])
                # Nobody reads: the site's session is given up instead of filling this process.
                await until(lambda: not site.open_sessions)
                assert await client.publish(n=1000) == culver.Receipt(1000, 1001)
                received = []
                async for message in stream:
                    received.append(message.offset)
                    assert len(stream._feed._buffer._items) <= 20
                    if message.offset == 1000:
                        break
            assert received == list(range(1001))
            assert client.gaps == 0

    run(scenario())


def test_a_slow_reader_of_a_live_subscription_is_told_what_it_missed() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            culver.connect(server.url, buffer_count=20) as client,
            client.subscribe("TRUE", gaps=True) as stream,
        ):
            for start in range(0, 1000, 100):
                await client.publish([{"n": n} for n in range(start, start + 100)])
            (session,) = site.open_sessions
            await until(lambda: session.received == 1000)
            await client.ready()
            await client.publish(last=True)
            await until(lambda: stream._feed._buffer.last_offset == 1000)
            messages, gaps = 0, 0
            while len(stream._feed._buffer._items):
                item = await anext(stream)
                if isinstance(item, culver.Gap):
                    assert item.reason == "overflow"
                    gaps += item.dropped or 0
                else:
                    messages += 1
            assert messages == 20
            assert messages + gaps == 1001
            await client.publish(after=True)
            item = await anext(stream)
            assert isinstance(item, culver.Message)
            assert item["after"] is True

    run(scenario())


def test_cancelling_a_wait_loses_no_message() -> None:
    async def scenario() -> None:
        async with (
            served(_site()) as server,
            culver.connect(server.url) as client,
            client.subscribe("TRUE") as stream,
        ):
            received: list[int] = []
            publishing = asyncio.create_task(_publish_one_by_one(client))
            while len(received) < 30:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        received.append((await anext(stream))["n"])
            await publishing
            assert received == list(range(30))

    run(scenario())


async def _publish_one_by_one(client: culver.Client) -> None:
    for n in range(30):
        await client.publish(n=n)


def test_only_refusals_that_may_pass_are_tried_again() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            severable(server.port) as relay,
            culver.connect(relay.url) as client,
            client.subscribe("TRUE", durable="alerts") as stream,
        ):
            site.failures["open"] = culver.Conflict("no")
            relay.sever()
            with pytest.raises(culver.RequestRefused, match="no"):
                await anext(stream)

    run(scenario())
