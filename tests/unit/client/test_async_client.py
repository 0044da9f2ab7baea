import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest

import culver
from culver.client.async_client import Client
from culver.errors import StorageFull
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.until import until


def _site(**changes: Any) -> FakeSite:
    return FakeSite(gateway_settings(**changes))


def test_publications_get_their_place_in_the_log() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            assert await client.publish({"a": 1}) == culver.Receipt(0, 1)
            assert await client.publish([{"a": 2}, b'{"a": 3}']) == culver.Receipt(1, 3)
            assert await client.publish(symbol="XYZ", price=21.5) == culver.Receipt(3, 4)
        assert site.events[2].data == {"a": 3}
        assert site.events[3].data == {"symbol": "XYZ", "price": 21.5}

    run(scenario())


def test_publications_are_pipelined_over_one_connection() -> None:
    async def scenario() -> None:
        site = _site()
        site.hold.clear()
        async with served(site) as server, culver.connect(server.url) as client:
            tasks = [asyncio.create_task(client.publish(n=n)) for n in range(50)]
            await client.ready()
            assert not any(task.done() for task in tasks)
            site.hold.set()
            receipts = await asyncio.gather(*tasks)
        assert sorted(receipt.first_offset for receipt in receipts) == list(range(50))
        assert all(site.events[r.first_offset].data == {"n": n} for n, r in enumerate(receipts))

    run(scenario())


def test_no_more_publications_are_in_flight_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        site = _site()
        site.hold.clear()
        most = 0
        waiting = 0
        publish = site.publications.publish_once

        async def counted(events: Any, numbers: Any) -> Any:
            nonlocal most, waiting
            waiting += len(events)
            most = max(most, waiting)
            try:
                return await publish(events, numbers)
            finally:
                waiting -= len(events)

        monkeypatch.setattr(
            site.publications, "publish_once", lambda *given: asyncio.create_task(counted(*given))
        )
        async with served(site) as server, culver.connect(server.url, max_in_flight=3) as client:
            tasks = [asyncio.create_task(client.publish(n=n)) for n in range(20)]
            await until(lambda: waiting == 3)
            site.hold.set()
            await asyncio.gather(*tasks)
        assert most == 3

    run(scenario())


def test_a_publication_too_large_for_a_message_goes_by_http_as_a_whole() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            receipt = await client.publish([{"n": n, "text": "x" * 10_000} for n in range(200)])
        assert receipt == culver.Receipt(0, 200)
        assert [event.data["n"] for event in site.events] == list(range(200))

    run(scenario())


def test_a_refusal_carries_the_problem_and_the_connection_goes_on() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            with pytest.raises(culver.RequestRefused) as caught:
                await client.publish([{"a": 1}, {"a": {"$timestamp": "soon"}}])
            assert caught.value.details["code"] == "invalid_event"
            assert caught.value.field == "events[1].a"
            site.failures["publish"] = StorageFull("the disk is full")
            with pytest.raises(culver.RequestRefused, match="the disk is full") as caught:
                await client.publish(a=1)
            assert (caught.value.details["status"], caught.value.details["retryable"]) == (507, True)
            del site.failures["publish"]
            assert await client.publish(a=1) == culver.Receipt(0, 1)

    run(scenario())


def test_a_refusal_that_names_no_request_does_not_leave_one_waiting() -> None:
    async def scenario() -> None:
        site = _site()
        deep: dict[str, Any] = {}
        for _ in range(40):
            deep = {"a": deep}
        async with served(site) as server, culver.connect(server.url, timeout_seconds=20) as client:
            with pytest.raises(culver.CulverError, match=r"deep|level|nest"):
                await client.publish(deep)
            site.hold.clear()
            waiting = asyncio.create_task(client.publish(n=1))
            await client.ready()
            with pytest.raises(culver.CulverError, match=r"deep|level|nest"):
                await client.publish(deep)
            site.hold.set()
            with contextlib.suppress(culver.ConnectionFailed):
                await waiting

    run(scenario())


def test_a_live_subscription_yields_what_matches_and_nothing_else() -> None:
    async def scenario() -> None:
        site = _site()
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        async with served(site) as server, culver.connect(server.url) as client:
            async with client.subscribe("price > 20") as stream:
                assert stream.since == 0
                await client.publish([{"price": 10}, {"price": 30, "at": moment}, {"price": 40}])
                message = await anext(stream)
                assert (message["price"], message["at"], message.offset) == (30, moment, 1)
                assert message.event["at"] == {"$timestamp": "2026-01-01T00:00:00Z"}
                assert message.delivery_id == f"{message.subscription}:1"
                assert dict(message) == {"price": 30, "at": moment}
                await message.ack()  # nothing to do, and no error
                assert (await anext(stream))["price"] == 40
            await until(lambda: not site.registrations)

    run(scenario())


def test_a_loop_may_publish_for_each_event_it_receives() -> None:
    async def scenario() -> None:
        site = _site()
        async with (
            served(site) as server,
            culver.connect(server.url, buffer_count=8) as client,
            client.subscribe("n < 200") as stream,
        ):
            await client.publish([{"n": n} for n in range(5)])
            async for message in stream:
                await client.publish([{"n": message["n"] + 5}, {"n": 1000}])
                if message["n"] == 100:
                    break
            assert stream.gaps == 0

    run(scenario())


def test_a_stream_that_is_left_behind_is_ended() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:

            async def read_one() -> None:
                async for _ in client.subscribe("TRUE"):
                    return

            reading = asyncio.create_task(read_one())
            await until(lambda: site.open_sessions)
            await client.publish(a=1)
            await reading
            await until(lambda: not site.open_sessions)
            assert await client.publish(a=2) == culver.Receipt(1, 2)

    run(scenario())


def test_giving_up_while_a_subscription_is_being_made_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            await client.publish(a=1)  # the connection is open
            for pauses in range(12):
                attempt = asyncio.ensure_future(anext(client.subscribe("TRUE")))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                attempt.cancel()
                await asyncio.gather(attempt, return_exceptions=True)
            del attempt  # its traceback holds the last stream
            await client.publish(a=2)
            await until(lambda: not site.open_sessions and not site.registrations)

    run(scenario())


def test_a_refused_filter_is_raised_with_its_position() -> None:
    async def scenario() -> None:
        async with served(_site()) as server, culver.connect(server.url) as client:
            with pytest.raises(culver.RequestRefused) as caught:
                await anext(client.subscribe("price >"))
            assert caught.value.details["code"] == "invalid_filter"
            assert caught.value.details["position"] == 7
            with pytest.raises(culver.RequestRefused):
                await client.subscribe("price >", durable="alerts").start()

    run(scenario())


def test_durable_subscriptions_are_managed() -> None:
    async def scenario() -> None:
        async with served(_site()) as server, culver.connect(server.url) as client:
            limits = culver.Mailbox(max_count=10)
            made = await client.create_subscription(
                "a > 1", id="one", mailbox=limits, expires_in_seconds=3600
            )
            assert (made.id, made.filter, made.since, made.durable) == ("one", "a > 1", 0, True)
            assert made.mailbox is not None
            assert made.mailbox.max_count == 10
            assert made.expires_at is not None
            assert made.expires_at > made.created_at
            unnamed = await client.create_subscription("a > 2")
            await client.publish([{"a": 2}, {"a": 3}])
            assert (await client.subscription("one")).pending == 2
            replaced = await client.replace_subscription("one", "a > 5")
            assert (replaced.filter, replaced.since, replaced.expires_at) == ("a > 5", 2, None)
            assert (made.scheme, replaced.scheme) == ("columnar", "columnar")
            replaced = await client.replace_subscription("one", "a > 5", scheme="counting")
            assert replaced.scheme == "counting"
            names = [each.id async for each in client.subscriptions(page_size=1)]
            assert names == sorted(["one", unnamed.id])
            await client.delete_subscription("one")
            with pytest.raises(culver.RequestRefused) as caught:
                await client.subscription("one")
            assert caught.value.details["code"] == "not_found"

    run(scenario())


def test_subscribers_choose_the_scheme_that_they_are_matched_by() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            await client.create_subscription("TRUE", id="made", scheme="reference")
            async with (
                client.subscribe("TRUE", scheme="counting") as live,
                client.subscribe("TRUE", durable="kept", scheme="counting") as kept,
                client.subscribe("TRUE", durable="made", scheme="counting") as made,
            ):
                schemes = [site.registrations[each.subscription].scheme for each in (live, kept, made)]
            assert schemes == ["counting", "counting", "reference"]
            with pytest.raises(culver.RequestRefused) as caught:
                await client.subscribe("TRUE", scheme="magic").__aenter__()
            assert caught.value.field == "scheme"
            assert caught.value.details["known"] == ["columnar", "counting", "reference"]

    run(scenario())


def test_filters_are_tried_out_on_the_site() -> None:
    async def scenario() -> None:
        async with served(_site()) as server, culver.connect(server.url) as client:
            result = await client.test_filter("a > 5 OR b = 'x'", {"b": "x"})
            assert (result.matches, result.result, result.clause) == (True, True, 1)
            assert result.clauses == ("a > 5", "b = 'x'")
            assert (await client.test_filter("a > 5", {"b": "x"})).result is None
            assert await client.explain_filter("a > 5 OR b = 'x'") == ["a > 5", "b = 'x'"]

    run(scenario())


def test_readiness_is_told_not_raised() -> None:
    async def scenario() -> None:
        site = _site()
        async with served(site) as server, culver.connect(server.url) as client:
            assert await client.ready()
            site.ready = False
            assert not await client.ready()
            assert (await client.status())["state"] == "starting"

    run(scenario())


def test_a_client_is_unopened_then_open_then_closed() -> None:
    async def scenario() -> None:
        async with served(_site()) as server:
            client = Client(server.url)
            assert client.state.value == "unopened"
            with pytest.raises(culver.ClientError, match="not open yet"):
                await client.publish(a=1)
            async with client:
                assert client.state.value == "open"
                with pytest.raises(culver.ClientError, match="opened once"):
                    await client.__aenter__()
                stream = client.subscribe("TRUE")
                await stream.start()
            with pytest.raises(culver.ClientError, match="closed"):
                await client.publish(a=1)
            with pytest.raises(culver.ClientError, match="closed"):
                client.subscribe("TRUE")
            assert [message async for message in stream] == []
            with pytest.raises(culver.ClientError, match="opened once"):
                await client.__aenter__()

    run(scenario())


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    async def scenario() -> None:
        async with culver.connect("http://127.0.0.1:1") as client:
            with pytest.raises(culver.InvalidRequest, match="needs a filter"):
                client.subscribe()
            with pytest.raises(culver.InvalidRequest, match="ack"):
                client.subscribe("TRUE", ack="later")  # type: ignore[call-overload]
            with pytest.raises(culver.InvalidEvent):
                await client.publish(at=datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(culver.InvalidRequest):
            culver.connect("http://127.0.0.1:1", buffer_count=0)

    run(scenario())


def test_a_connected_live_subscriber_is_listed_and_harms_nobody() -> None:
    async def scenario() -> None:
        async with (
            served(_site()) as server,
            culver.connect(server.url) as client,
            client.subscribe("a > 1") as stream,
        ):
            await stream.start()
            listed = [subscription async for subscription in client.subscriptions()]
            assert [(one.filter, one.durable, one.mailbox) for one in listed] == [("a > 1", False, None)]

    run(scenario())
