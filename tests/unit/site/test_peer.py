"""The two ends of the socket between a site and a gateway."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from culver.errors import Conflict, Unavailable
from culver.site import peer as peers
from culver.site.peer import Peer
from support.gateway import run
from support.until import until


@asynccontextmanager
async def pair(**methods: Any) -> AsyncIterator[tuple[Peer, Peer, list[Any]]]:
    """One end that asks, one that has these methods, and what it was told."""
    told: list[Any] = []
    asking = Peer(None, lambda message: None)
    serving = Peer(SimpleNamespace(**methods), told.append)
    ends = socket.socketpair()
    await asking.connect(ends[0])
    await serving.connect(ends[1])
    try:
        yield asking, serving, told
    finally:
        asking.close()
        serving.close()
        await asyncio.gather(asking.lost.wait(), serving.lost.wait())


def test_calls_begin_in_order_and_are_answered_as_they_are_done() -> None:
    async def scenario() -> None:
        begun: list[int] = []
        gates = [asyncio.Event() for _ in range(3)]

        async def wait(number: int) -> int:
            await gates[number].wait()
            return number * 10

        def call(number: int) -> Any:
            begun.append(number)
            return wait(number)

        async with pair(call=call) as (asking, _, told):
            asking.send("first")
            answers = [asking.request("call", number) for number in range(3)]
            gates[2].set()
            assert await answers[2] == 20
            assert (begun, told) == ([0, 1, 2], ["first"])
            assert not answers[0].done()
            gates[0].set()
            gates[1].set()
            assert await asyncio.gather(*answers) == [0, 10, 20]

    run(scenario())


def test_methods_are_found_below_the_roles_of_what_is_served() -> None:
    async def scenario() -> None:
        role = SimpleNamespace(add=lambda first, second=0: (first, second))
        async with pair(role=role) as (asking, _, _told):
            assert await asking.request("role.add", 1, second=2) == (1, 2)
            with pytest.raises(Unavailable, match="AttributeError"):
                await asking.request("role.unknown")

    run(scenario())


def test_errors_arrive_as_they_were_raised() -> None:
    async def scenario() -> None:
        def refuse() -> None:
            raise Conflict("taken", field="id", next=7)

        async with pair(refuse=refuse) as (asking, _, _told):
            with pytest.raises(Conflict, match="taken") as caught:
                await asking.request("refuse")
            assert (caught.value.field, caught.value.details) == ("id", {"next": 7})

    run(scenario())


def test_other_end_that_is_gone_fails_what_is_open_and_what_comes() -> None:
    async def scenario() -> None:
        async with pair(never=asyncio.Event().wait) as (asking, serving, _):
            answer = asking.request("never")
            serving.close()
            with pytest.raises(Unavailable):
                await answer
            with pytest.raises(Unavailable):
                await asking.request("never")
            asking.send("nobody hears this")

    run(scenario())


def test_requests_wait_for_room_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_MOST_UNANSWERED_BYTES", 3000)

    async def scenario() -> None:
        begun: list[int] = []
        gate = asyncio.Event()

        def take(number: int, _: bytes) -> Any:
            begun.append(number)
            return gate.wait()

        async with pair(take=take) as (asking, _, _told):
            answers = [asking.request("take", number, bytes(1000)) for number in range(6)]
            await until(lambda: len(begun) == 2)
            await asyncio.sleep(0)
            assert begun == [0, 1]
            gate.set()
            await asyncio.gather(*answers)
            assert begun == list(range(6))
            large = asking.request("take", 6, bytes(10_000))
            assert await large, "one that is larger than the room goes alone"

    run(scenario())
