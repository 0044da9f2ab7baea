"""Backpressure on a WebSocket connection: what waits, and what goes on."""

import asyncio
from collections.abc import Callable

import pytest

from culver.gateway.websocket.message_sockets import Disconnected, Outbox, Window
from support.gateway import run


class Reader:
    """A client that reads only while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.messages: list[bytes] = []
        self.kinds: set[bool] = set()

    def post(self, message: bytes, *, is_binary: bool = False) -> bool:
        if self.gate.is_set():
            self.messages.append(message)
            self.kinds.add(is_binary)
        return self.gate.is_set()

    async def send(self, message: bytes, *, is_binary: bool = False) -> None:
        await self.gate.wait()
        self.messages.append(message)
        self.kinds.add(is_binary)

    async def receive(self, take: Callable[[str | bytes], bool]) -> str | bytes:
        raise Disconnected

    async def close(self, code: int, reason: str) -> None:
        raise Disconnected


def test_messages_go_out_one_at_a_time_in_order() -> None:
    async def scenario() -> None:
        reader = Reader()
        outbox = Outbox(reader)
        sending = [asyncio.create_task(outbox.send(b"%d" % n)) for n in range(20)]
        await asyncio.sleep(0)
        reader.gate.set()
        assert not outbox.post(b"too early")
        await asyncio.gather(*sending)
        assert outbox.post(b"20")
        assert reader.messages == [b"%d" % n for n in range(21)]

    run(scenario())


@pytest.mark.parametrize("is_binary", [False, True])
def test_an_outbox_sends_both_kinds_of_messages(is_binary: bool) -> None:
    async def scenario() -> None:
        reader = Reader()
        outbox = Outbox(reader)
        sending = asyncio.create_task(outbox.send(b"waits", is_binary=is_binary))
        await asyncio.sleep(0)
        reader.gate.set()
        await sending
        assert outbox.post(b"at once", is_binary=is_binary)
        assert reader.messages == [b"waits", b"at once"]
        assert reader.kinds == {is_binary}

    run(scenario())


def test_producers_wait_while_a_slow_client_has_enough_to_read() -> None:
    async def scenario() -> None:
        reader = Reader()
        outbox = Outbox(reader, max_bytes=100)
        sending = asyncio.create_task(outbox.send(b"x" * 100))
        await asyncio.sleep(0)
        producer = asyncio.create_task(outbox.wait_for_space())
        await asyncio.sleep(0)
        assert not producer.done()
        assert outbox.held_bytes == 100
        reader.gate.set()
        await asyncio.gather(sending, producer)
        assert outbox.held_bytes == 0

    run(scenario())


def test_a_cancelled_send_gives_its_room_back() -> None:
    async def scenario() -> None:
        reader = Reader()
        outbox = Outbox(reader, max_bytes=100)
        sending = asyncio.create_task(outbox.send(b"x" * 100))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending])
        await outbox.wait_for_space()
        assert outbox.held_bytes == 0

    run(scenario())


def test_a_full_window_makes_the_next_request_wait() -> None:
    async def scenario() -> None:
        window = Window(max_count=2, max_bytes=1_000)
        await window.enter(1)
        await window.enter(1)
        third = asyncio.create_task(window.enter(1))
        await asyncio.sleep(0)
        assert not third.done()
        window.leave(1)
        await third

    run(scenario())


def test_the_window_counts_bytes_and_lets_a_huge_request_in_alone() -> None:
    async def scenario() -> None:
        window = Window(max_count=10, max_bytes=100)
        await window.enter(5_000)
        second = asyncio.create_task(window.enter(1))
        await asyncio.sleep(0)
        assert not second.done()
        window.leave(5_000)
        await second

    run(scenario())
