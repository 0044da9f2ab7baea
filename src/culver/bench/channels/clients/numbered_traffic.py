"""Publishers and subscribers in processes of their own, whose every message is accounted for."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.channels.clients.message_journal import REPORT_SECONDS, MessageAccount, draw_account
from culver.bench.channels.clients.numbered_client import NumberedTask

_READY_SECONDS = 30.0
_END_SECONDS = 20.0


class NumberedProcess:
    """One life of one client. ``kill`` ends it with SIGKILL, ``stop`` in an orderly way; then its journal counts."""

    def __init__(self, task: NumberedTask) -> None:
        self.task = task
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when the client is connected and, if it is a subscriber, all its subscriptions are confirmed.

        :raises BenchmarkFailed: that does not come about in time.
        """
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "culver.bench.channels.clients.numbered_client"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(self.task) + b"\n")
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _READY_SECONDS)
        except TimeoutError:
            line = b""
        if not line:
            await self.kill()
            raise BenchmarkFailed(f"a {self.task.role} was not ready within {_READY_SECONDS:g} s")

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """
        :raises BenchmarkFailed: the client has ended before, or does not end.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        except TimeoutError:
            await self.kill()
            code = -1
        if code:
            raise BenchmarkFailed(f"a {self.task.role} failed, exit code {code}")


class NumberedTraffic:
    """Use it as ``async with``: entering returns when messages flow. ``account`` ends the traffic."""

    def __init__(self, publishers: Sequence[NumberedTask], subscribers: Sequence[NumberedTask]) -> None:
        self._publishers = [NumberedProcess(task) for task in publishers]
        self._subscribers = [NumberedProcess(task) for task in subscribers]

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(client.start() for client in self._subscribers))
            await asyncio.gather(*(client.start() for client in self._publishers))
        except BaseException:
            await self._kill_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kill_all()

    async def account(self, late_seconds: int = 30) -> MessageAccount:
        """Stops the publishers, waits until all losses are reported, stops the subscribers and counts. On a machine
        that has too much to do, what is late is waited for, so that it does not count as lost.

        :raises BenchmarkFailed: one of the processes has failed.
        """
        await asyncio.gather(*(client.stop() for client in self._publishers))
        await asyncio.sleep(REPORT_SECONDS + 0.5)
        for _ in range(late_seconds):
            if not (await self._account()).silently_lost:
                break
            await asyncio.sleep(1.0)
        await asyncio.gather(*(client.stop() for client in self._subscribers))
        return await self._account()

    async def _account(self) -> MessageAccount:
        return await asyncio.to_thread(
            draw_account,
            [Path(client.task.journal) for client in self._publishers],
            [Path(client.task.journal) for client in self._subscribers],
        )

    async def _kill_all(self) -> None:
        await asyncio.gather(*(client.kill() for client in [*self._publishers, *self._subscribers]))
