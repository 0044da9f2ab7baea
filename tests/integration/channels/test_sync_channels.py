"""The synchronous client against a real server, on the ground of redis-py's synchronous pub/sub."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from culver.channels import SyncChannels
from culver.channels.channel_pubsub import Message
from culver.channels.sync_channels import PubSubThread, SyncPubSub
from culver.errors import ConnectionFailed, InvalidRequest
from support.channel_directory import listed_servers


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A service in a thread of its own."""
    ready, ending = threading.Event(), threading.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with listed_servers(tmp_path) as service:
            urls.append(service.url)
            ready.set()
            await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(20)
    yield urls[0]
    ending.set()
    thread.join()


def message(kind: str, channel: bytes, data: object) -> Message:
    return {"type": kind, "pattern": None, "channel": channel, "data": data}


def test_it_publishes_subscribes_and_reads(url: str) -> None:
    with SyncChannels(url) as channels, channels.pubsub() as pubsub:
        with pytest.raises(RuntimeError, match="did you forget"):
            pubsub.get_message()
        assert not pubsub.subscribed
        pubsub.subscribe("a", "b")
        assert pubsub.subscribed
        assert [pubsub.get_message(timeout=5) for _ in range(2)] == [
            message("subscribe", b"a", 1),
            message("subscribe", b"b", 2),
        ]
        assert pubsub.get_message() is None
        assert channels.publish("a", "x") == 1
        assert channels.publish_soon("b", "y").result(5) == 1
        assert pubsub.get_message(timeout=5) == message("message", b"a", b"x")
        assert pubsub.get_message(timeout=None) == message("message", b"b", b"y")
        assert channels.pubsub_channels() == [b"a", b"b"]
        assert channels.pubsub_numsub("a") == [(b"a", 1)]
        pubsub.psubscribe("p*")
        assert pubsub.get_message(timeout=5) == message("psubscribe", b"p*", 3)
        assert channels.pubsub_numpat() == 1
        assert channels.ping()
        assert pubsub.ping("hello")
        assert pubsub.get_message(timeout=5) == {**message("pong", b"", b"hello"), "channel": None}
        assert (set(pubsub.channels), set(pubsub.patterns)) == ({b"a", b"b"}, {b"p*"})


def test_listen_ends_with_the_last_subscription(url: str) -> None:
    with SyncChannels(url, decode_responses=True) as channels:
        pubsub = channels.pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe("a")
        pubsub.get_message(timeout=5)
        futures = [channels.publish_soon("a", number) for number in range(2_500)]
        got = []
        for each in pubsub:
            got.append(int(each["data"]))
            if len(got) == len(futures):
                pubsub.unsubscribe()
        assert got == [*range(2_500)]
        assert {future.result(5) for future in futures} == {1}


def test_handlers_run_in_a_thread_until_it_is_stopped(url: str) -> None:
    arrived = threading.Event()
    got: list[tuple[str, object]] = []

    def handle(each: Message) -> None:
        got.append((threading.current_thread().name, each["data"]))
        arrived.set()

    with SyncChannels(url) as channels:
        pubsub = channels.pubsub()
        pubsub.subscribe("bare")
        with pytest.raises(RuntimeError, match="has no handler"):
            pubsub.run_in_thread()
        pubsub.subscribe(bare=handle)
        thread = pubsub.run_in_thread(sleep_time=0.01)
        channels.publish("bare", "x")
        assert arrived.wait(5)
        thread.stop()
        thread.join()
        assert got == [("culver-pubsub", b"x")]
        assert not pubsub.subscribed


def test_an_exception_of_a_handler_goes_to_the_exception_handler(url: str) -> None:
    told: list[str] = []

    def broken(each: Message) -> None:
        raise ValueError("broken")

    def handle(error: BaseException, pubsub: SyncPubSub, thread: PubSubThread) -> None:
        told.append(str(error))
        thread.stop()

    with SyncChannels(url) as channels:
        pubsub = channels.pubsub()
        pubsub.subscribe(a=broken)
        thread = pubsub.run_in_thread(exception_handler=handle)
        channels.publish("a", "x")
        thread.join(10)
        assert told == ["broken"]


def test_a_closed_client_says_so_and_ends_whoever_waits(url: str) -> None:
    channels = SyncChannels.from_url(url)
    pubsub = channels.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe("a")
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while True:
                pubsub.get_message(timeout=None)
        except ConnectionFailed as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    channels.close()
    reader.join(10)
    assert ["closed" in str(error) for error in errors] == [True]
    channels.close()
    pubsub.close()
    with pytest.raises(ConnectionFailed, match="closed"):
        channels.publish("a", "x")
    unused = SyncChannels(url)
    unused.close()


def test_errors_are_those_of_the_asynchronous_client() -> None:
    with pytest.raises(InvalidRequest):
        SyncChannels("redis://127.0.0.1")
    with pytest.raises(ConnectionFailed, match="culver channels serve"), SyncChannels("http://127.0.0.1:1"):
        raise AssertionError("it must not open")
