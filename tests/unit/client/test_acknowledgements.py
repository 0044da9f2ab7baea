"""Acknowledgements: one at a time, the newest, for all that wait."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from culver.client.receiving.acknowledgements import Acknowledger
from culver.errors import ConnectionFailed, RequestRefused
from support.until import until


class Site:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.connected = asyncio.Event()
        self.connected.set()
        self.acknowledger = Acknowledger[int]("subscription 'alerts'", self._send, self.connected)

    async def _send(self, offset: int) -> None:
        self.sent.append(offset)
        if (error := await self.answers.get()) is not None:
            raise error


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


def test_calls_that_overlap_share_requests_and_each_is_covered_when_it_returns() -> None:
    async def scenario() -> None:
        site = Site()
        reach = site.acknowledger.reach
        first = asyncio.create_task(reach(3))
        await until(lambda: site.sent == [3])
        others = [asyncio.create_task(reach(offset)) for offset in (2, 9, 5)]
        site.acknowledger.want(7)
        await asyncio.sleep(0)
        site.answers.put_nowait(None)
        await first
        await others[0]
        assert not others[1].done()
        assert not others[2].done()
        site.answers.put_nowait(None)
        await asyncio.gather(*others)
        await reach(9)
        assert site.sent == [3, 9]

    run(scenario())


def test_a_failure_is_that_of_everybody_it_covers_and_of_nobody_else() -> None:
    async def scenario() -> None:
        site = Site()
        tasks = [asyncio.create_task(site.acknowledger.reach(offset)) for offset in (1, 2)]
        await until(lambda: site.sent == [2])
        later = asyncio.create_task(site.acknowledger.reach(3))
        await asyncio.sleep(0)
        site.answers.put_nowait(RequestRefused("there is no such subscription", code="not_found"))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in outcomes] == [RequestRefused, RequestRefused]
        assert outcomes[0] is not outcomes[1]
        site.answers.put_nowait(None)
        await later
        assert site.sent == [2, 3]

    run(scenario())


def test_background_acknowledgements_wait_for_the_connection_and_explicit_ones_do_not() -> None:
    async def scenario() -> None:
        site = Site()
        site.connected.clear()
        site.acknowledger.want(5)
        site.answers.put_nowait(ConnectionFailed("no connection"))
        with pytest.raises(ConnectionFailed):
            await site.acknowledger.reach(4)
        assert site.sent == [5]
        site.answers.put_nowait(None)
        site.connected.set()
        await until(lambda: site.sent == [5, 5])
        await site.acknowledger.close(5)

    run(scenario())


def test_closing_tries_once_more_and_says_what_is_not_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        site = Site()
        site.connected.clear()
        site.acknowledger.want(5)
        site.answers.put_nowait(ConnectionFailed("no connection"))
        await site.acknowledger.close(5)
        assert site.sent == [5]

    run(scenario())
    assert "the newest acknowledgement failed" in caplog.text
