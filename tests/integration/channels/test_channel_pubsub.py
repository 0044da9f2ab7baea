"""The client against real servers, on the ground that redis-py's own asyncio pub/sub tests cover.

Some of those tests cannot hold here, for these reasons:

- Sharded pub/sub (``ssubscribe``, ``spublish``) and everything of clusters: the plan takes their place.
- ``pubsub_numsub`` and ``publish`` count processes: ``PubSub`` objects of a process share their connections.
- A lost connection raises no ``ConnectionError`` in ``get_message``: the client connects again by itself, confirms
  its subscriptions anew, and reports what was lost as a gap.
- ``health_check_response``, ``connection._parser``, ``connection.socket_timeout``, ``record_pubsub_message``, the
  pool and the encoder are parts of redis-py; ``PubSub`` has no ``connection``.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import uvloop

from culver.channels import Channels, ChannelSubscription, LostMessages, PubSub, QueueLimits
from culver.channels.channel_pubsub import Message
from support.channel_directory import ListedServers, listed_servers
from support.until import settled, until

UNICODE = "uni" + chr(4456) + "code"
BINARY = b"\x80\x81\x82"
NAMES = ("foo", "bar", UNICODE)


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def event_loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uvloop":
        monkeypatch.setattr(asyncio, "run", uvloop.run)


Scene = Callable[[ListedServers, Channels], Awaitable[None]]


def play(folder: Path, scene: Scene, servers: int = 1, **options: Any) -> None:
    async def run() -> None:
        async with listed_servers(folder, servers) as service, Channels(service.url, **options) as channels:
            async with asyncio.timeout(20):
                await scene(service, channels)

    asyncio.run(run())


async def take(pubsub: PubSub, count: int = 1) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        message = await pubsub.get_message(timeout=5)
        assert message is not None, f"only {messages}"
        messages.append(message)
    return messages


async def nothing_comes(pubsub: PubSub) -> bool:
    await settled()
    return await pubsub.get_message(timeout=0) is None


def message(
    kind: str, channel: bytes | str | None, data: object, pattern: bytes | str | None = None
) -> Message:
    return {"type": kind, "pattern": pattern, "channel": channel, "data": data}


@asynccontextmanager
async def subscribed(channels: Channels, *names: object, **options: Any) -> AsyncIterator[PubSub]:
    async with channels.pubsub(**options) as pubsub:
        await pubsub.subscribe(*names)
        if not options.get("ignore_subscribe_messages"):
            await take(pubsub, len(names))
        yield pubsub


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("pattern", [False, True])
def test_subscriptions_are_confirmed_and_counted(tmp_path: Path, servers: int, pattern: bool) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        begin, end = ("psubscribe", "punsubscribe") if pattern else ("subscribe", "unsubscribe")
        async with channels.pubsub() as pubsub:
            for count, name in enumerate(NAMES, 1):
                assert await getattr(pubsub, begin)(name) is None
                assert await take(pubsub) == [message(begin, name.encode(), count)]
            for count, name in zip((2, 1, 0), NAMES, strict=True):
                await getattr(pubsub, end)(name)
                assert await take(pubsub) == [message(end, name.encode(), count)]
            assert not pubsub.subscribed

    play(tmp_path, scene, servers)


def test_a_subscription_ends_for_the_reader_when_it_reads_so(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with channels.pubsub() as pubsub:
            assert pubsub.subscribed is False
            await pubsub.subscribe("a")
            assert pubsub.subscribed is True
            await take(pubsub)
            await pubsub.unsubscribe()
            assert pubsub.subscribed is True
            await pubsub.subscribe("b")
            assert await take(pubsub, 2) == [message("unsubscribe", b"a", 0), message("subscribe", b"b", 1)]
            assert pubsub.subscribed is True
            await pubsub.unsubscribe()
            assert await take(pubsub) == [message("unsubscribe", b"b", 0)]
            assert pubsub.subscribed is False
            await pubsub.unsubscribe()
            assert await take(pubsub) == [message("unsubscribe", None, 0)]

    play(tmp_path, scene)


def test_commands_in_a_row_are_confirmed_in_their_order(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with channels.pubsub() as pubsub:
            await pubsub.subscribe("a")
            await pubsub.unsubscribe("a")
            await pubsub.subscribe("a")
            assert [(each["type"], each["data"]) for each in await take(pubsub, 3)] == [
                ("subscribe", 1),
                ("unsubscribe", 0),
                ("subscribe", 1),
            ]
            assert pubsub.subscribed
            assert await channels.publish("a", "x") == 1
            assert await take(pubsub) == [message("message", b"a", b"x")]

    play(tmp_path, scene)


@pytest.mark.parametrize("kind", ["subscribe", "psubscribe"])
def test_after_a_lost_connection_subscriptions_are_confirmed_anew(tmp_path: Path, kind: str) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with channels.pubsub() as pubsub:
            await getattr(pubsub, kind)(*NAMES, BINARY)
            await take(pubsub, 4)
            await service.cut(1, "subscribe")
            again = await take(pubsub, 4)
            assert [each["data"] for each in again] == [1, 2, 3, 4]
            assert {each["channel"] for each in again} == {*(name.encode() for name in NAMES), BINARY}
            await channels.publish("foo", "after")
            assert (await take(pubsub))[0]["data"] == b"after"

    play(tmp_path, scene)


def test_a_lost_connection_does_not_lose_a_handler(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        got: list[Message] = []
        async with channels.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe(ChannelSubscription(BINARY, got.append))
            await service.cut(1, "subscribe")
            reader = asyncio.create_task(pubsub.run())

            async def arrives() -> bool:
                return await channels.publish(BINARY, "x") == 1

            await until(arrives)
            await until(lambda: got)
            assert got[0] == message("message", BINARY, b"x")
            reader.cancel()
            await asyncio.wait([reader])

    play(tmp_path, scene)


@pytest.mark.parametrize("servers", [1, 3])
def test_a_message_arrives_by_channel_and_by_pattern(tmp_path: Path, servers: int) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with channels.pubsub() as pubsub:
            await pubsub.subscribe("foo")
            await pubsub.psubscribe("f*")
            await take(pubsub, 2)
            assert await channels.publish("foo", "hello") == 2
            messages = await take(pubsub, 2)
            assert message("message", b"foo", b"hello") in messages
            assert message("pmessage", b"foo", b"hello", b"f*") in messages

    play(tmp_path, scene, servers)


def test_handlers_take_messages_of_their_channels_and_patterns(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        got: list[Message] = []

        async def slow(each: Message) -> None:
            await asyncio.sleep(0)
            got.append(each)

        async with channels.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe("plain", foo=got.append, **{UNICODE: slow})
            await pubsub.subscribe(redis.asyncio.Subscription(BINARY, got.append))
            await pubsub.psubscribe(ChannelSubscription(b"\xff*", slow), **{"b*": got.append})
            for name in ("foo", UNICODE, BINARY, b"\xffx", "bar", "plain"):
                await channels.publish(name, "data")
            plain = None
            while plain is None:
                plain = await pubsub.get_message(timeout=5)
            assert plain == message("message", b"plain", b"data")
            assert got == [
                message("message", b"foo", b"data"),
                message("message", UNICODE.encode(), b"data"),
                message("message", BINARY, b"data"),
                message("pmessage", b"\xffx", b"data", b"\xff*"),
                message("pmessage", b"bar", b"data", b"b*"),
            ]

    play(tmp_path, scene)


def test_confirmations_can_be_ignored_always_or_once(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with (
            channels.pubsub(ignore_subscribe_messages=True) as always,
            channels.pubsub() as once,
        ):
            for pubsub, ignore in ((always, False), (once, True)):
                await pubsub.subscribe("foo")
                assert await pubsub.get_message(ignore_subscribe_messages=ignore, timeout=5) is None
                await pubsub.unsubscribe("foo")
                assert pubsub.subscribed
                assert await pubsub.get_message(ignore_subscribe_messages=ignore, timeout=5) is None
                assert not pubsub.subscribed

    play(tmp_path, scene)


def test_a_client_that_decodes_hands_out_strings(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with channels.pubsub() as pubsub:
            await pubsub.subscribe(UNICODE)
            await pubsub.psubscribe("uni*")
            assert await take(pubsub, 2) == [
                message("subscribe", UNICODE, 1),
                message("psubscribe", "uni*", 2),
            ]
            assert UNICODE in pubsub.channels
            await channels.publish(UNICODE, "grün")
            messages = await take(pubsub, 2)
            assert message("message", UNICODE, "grün") in messages
            assert message("pmessage", UNICODE, "grün", "uni*") in messages
            assert await channels.pubsub_channels() == [UNICODE]
            assert await channels.pubsub_numsub(UNICODE) == [(UNICODE, 1)]
            await pubsub.ping("ö")
            assert await take(pubsub) == [message("pong", None, "ö")]

    play(tmp_path, scene, decode_responses=True)


def test_data_that_cannot_be_decoded_is_an_error_of_its_reader_only(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with (
            Channels(service.url) as plain,
            subscribed(plain, "a") as bytes_reader,
            subscribed(channels, "a") as text_reader,
        ):
            await plain.publish("a", BINARY)
            await plain.publish("a", "text")
            assert [each["data"] for each in await take(bytes_reader, 2)] == [BINARY, b"text"]
            with pytest.raises(UnicodeDecodeError):
                await text_reader.get_message(timeout=5)
            assert (await take(text_reader))[0]["data"] == "text"

    play(tmp_path, scene, decode_responses=True)


def test_numbers_and_buffers_are_messages_too(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with subscribed(channels, "a") as pubsub:
            for value in (1, 2.5, bytearray(b"b"), memoryview(b"m"), "", b"\x00cv"):
                await channels.publish("a", value)
            got = [each["data"] for each in await take(pubsub, 6)]
            assert got == [b"1", b"2.5", b"b", b"m", b"", b"\x00cv"]

    play(tmp_path, scene)


def test_get_message_keeps_to_its_time(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        loop = asyncio.get_running_loop()
        async with subscribed(channels, "a") as pubsub:
            assert await pubsub.get_message() is None
            assert await pubsub.get_message(timeout=0.01) is None
            waiting = loop.create_task(pubsub.get_message(timeout=None))
            await settled()
            assert not waiting.done()
            await channels.publish("a", "late")
            assert await waiting == message("message", b"a", b"late")
            response = loop.create_task(pubsub.parse_response(block=True))
            await channels.publish("a", "raw")
            assert await response == [b"message", b"a", b"raw"]
            assert await pubsub.parse_response(block=False, timeout=0.01) is None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await pubsub.get_message(timeout=None)
            await channels.publish("a", "still there")
            assert (await take(pubsub))[0]["data"] == b"still there"

    play(tmp_path, scene)


def test_reading_without_a_subscription_is_an_error(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        pubsub = channels.pubsub()
        with pytest.raises(RuntimeError, match="did you forget to call subscribe"):
            await pubsub.get_message()
        await pubsub.connect()
        assert await pubsub.get_message(timeout=0.01) is None
        await pubsub.aclose()

    play(tmp_path, scene)


def test_listen_ends_with_the_last_subscription(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with channels.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.subscribe("a")
            await until(lambda: channels.publish("a", "1"))
            got = []
            async for each in pubsub:
                got.append(each["data"])
                await pubsub.unsubscribe()
            assert got == [b"1"]

    play(tmp_path, scene)


def test_closing_wakes_whoever_listens(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        pubsub = channels.pubsub()
        await pubsub.subscribe("a")
        got: list[Message] = []

        async def read() -> None:
            async for each in pubsub:
                got[:] = [*got, each]

        reader = asyncio.create_task(read())
        await until(lambda: got)
        await settled()
        await pubsub.aclose()
        await reader
        assert (pubsub.channels, pubsub.patterns, pubsub.subscribed) == ({}, {}, False)
        await pubsub.subscribe("a")
        assert await take(pubsub) == [message("subscribe", b"a", 1)]
        async with aclosing(pubsub):
            assert pubsub.subscribed
        assert not pubsub.subscribed

    play(tmp_path, scene)


@pytest.mark.parametrize("name", ["close", "reset"])
def test_the_old_names_of_aclose_work_and_warn(tmp_path: Path, name: str) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with subscribed(channels, "a") as pubsub:
            with pytest.deprecated_call():
                await getattr(pubsub, name)()
            assert not pubsub.subscribed

    play(tmp_path, scene)


def test_run_calls_handlers_also_of_later_subscriptions(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        got: list[Message] = []
        async with channels.pubsub() as pubsub:
            task = asyncio.create_task(pubsub.run())
            await settled()
            await pubsub.subscribe(foo=got.append)

            async def arrives() -> bool:
                return await channels.publish("foo", "bar") == 1

            await until(arrives)
            await until(lambda: got)
            assert got[0] == message("message", b"foo", b"bar")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    play(tmp_path, scene)


def test_run_wants_handlers_and_tells_of_exceptions(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        def broken(each: Message) -> None:
            raise ValueError("broken")

        errors: list[tuple[BaseException, PubSub]] = []
        async with channels.pubsub() as pubsub:
            await pubsub.subscribe("a")
            with pytest.raises(RuntimeError, match="has no handler"):
                await pubsub.run()
            await pubsub.subscribe(a=broken)
            task = asyncio.create_task(pubsub.run(exception_handler=lambda *what: errors.append(what)))
            await until(lambda: channels.publish("a", "x"))
            await until(lambda: errors)
            assert (str(errors[0][0]), errors[0][1]) == ("broken", pubsub)
            task.cancel()
            await asyncio.wait([task])
            await channels.publish("a", "x")
            with pytest.raises(ValueError, match="broken"):
                await pubsub.run()

    play(tmp_path, scene)


def test_a_push_handler_gets_everything_as_lists(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        got: list[object] = []

        async def handle(response: object) -> None:
            got.append(response)

        async with channels.pubsub(push_handler_func=handle) as pubsub:
            await pubsub.subscribe("foo")
            assert await pubsub.get_message(timeout=5) is None
            await channels.publish("foo", "x")
            assert await pubsub.get_message(timeout=5) is None
            assert got == [[b"subscribe", b"foo", 1], [b"message", b"foo", b"x"]]

    play(tmp_path, scene)


@pytest.mark.parametrize("servers", [1, 3])
def test_questions_are_answered_for_all_servers(tmp_path: Path, servers: int) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with (
            Channels(service.url, own_connections=True) as other,
            subscribed(channels, "foo", "bar", "baz", "quux") as pubsub,
            subscribed(other, "bar", "baz"),
        ):
            await pubsub.psubscribe("*oo", "*ar", "b*z")
            await take(pubsub, 3)
            assert await channels.ping()
            assert await channels.pubsub_channels() == [b"bar", b"baz", b"foo", b"quux"]
            assert await channels.pubsub_channels("ba*") == [b"bar", b"baz"]
            numbers = await channels.pubsub_numsub("foo", "bar", "none")
            assert numbers == [(b"foo", 1), (b"bar", 2), (b"none", 0)]
            assert await channels.pubsub_numsub() == []
            assert await channels.pubsub_numpat() == 3

    play(tmp_path, scene, servers)


def test_a_pong_comes_behind_what_has_arrived(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with subscribed(channels, "a") as pubsub:
            await channels.publish("a", "1")
            assert await pubsub.ping() is True
            await pubsub.ping(message="hello")
            assert await take(pubsub, 3) == [
                message("message", b"a", b"1"),
                message("pong", None, b""),
                message("pong", None, b"hello"),
            ]

    play(tmp_path, scene)


def test_messages_that_redis_clients_publish_arrive_as_they_are(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with subscribed(channels, "a") as pubsub:
            await service.links[1].request((b"PUBLISH", b"a", b"plain"))
            assert await take(pubsub) == [message("message", b"a", b"plain")]
            assert await nothing_comes(pubsub)

    play(tmp_path, scene)


def test_a_slow_reader_gets_a_gap_in_its_place_and_others_get_all(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        async with (
            subscribed(channels, "a", limits=QueueLimits(messages=10)) as slow,
            subscribed(channels, "a") as quick,
        ):
            for number in range(1, 31):
                await channels.publish("a", number)
            assert [int(each["data"]) for each in await take(quick, 30)] == [*range(1, 31)]
            first = await take(slow, 6)
            await channels.publish("a", 31)
            rest = await take(slow, 6)
            assert [int(each["data"]) for each in first + rest[:4]] == [*range(1, 11)]
            gap = rest[4]
            assert (gap["type"], gap["channel"], rest[5]["data"]) == ("gap", b"a", b"31")
            lost = gap["data"]
            assert isinstance(lost, LostMessages)
            assert (lost.first, lost.last, lost.reason) == (11, 30, "slow reader")
            assert (await take(quick))[0]["data"] == b"31"

    play(tmp_path, scene)


def test_what_a_broken_connection_loses_is_reported_to_reader_and_handler(tmp_path: Path) -> None:
    async def scene(service: ListedServers, channels: Channels) -> None:
        gaps: list[Message] = []
        async with (
            Channels(service.url, own_connections=True) as publisher,
            subscribed(channels, "a") as pubsub,
            subscribed(channels, "a", gap_handler=gaps.append) as handling,
        ):
            await publisher.publish("a", 1)
            await take(pubsub)
            await take(handling)
            # The server forgets the subscription while the connection lives: what is published now is lost.
            link = channels._connections.runner._links[1, "subscribe"]  # type: ignore[union-attr,index]
            await link.request((b"UNSUBSCRIBE", b"a"))
            await publisher.publish("a", 2)
            await link.request((b"SUBSCRIBE", b"a"))
            await publisher.publish("a", 3)
            gap, late = await take(pubsub, 2)
            assert (gap["type"], gap["data"].first, gap["data"].last) == ("gap", 2, 2)
            assert (gap["data"].reason, late["data"]) == ("network", b"3")
            assert await handling.get_message(timeout=5) is None
            assert [each["data"] for each in gaps] == [gap["data"]]
            assert (await take(handling))[0]["data"] == b"3"

    play(tmp_path, scene)
