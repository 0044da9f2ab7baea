"""The processes of a crowd of clients, and what they report."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.channels.clients.client_process import CrowdReport, CrowdTask
from culver.bench.channels.server_networks import ServerNetwork

_FIRST_NUMBERS_APART = 1_000_000
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class CrowdFigures:
    """What all processes of a crowd have seen in some time. Rates are per second, times in milliseconds; ``cpu`` and
    ``lag`` are of the busiest process."""

    size: int
    sent: float
    received: float
    responses: int
    response_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    cpu: float
    lag_ms: float
    lost: int


def figures_of(reports: Sequence[Sequence[CrowdReport]]) -> CrowdFigures:
    """Adds up reports, one sequence for each process. The median is the mean of the medians."""
    every = [report for own in reports for report in own]
    seconds = max((len(own) for own in reports), default=0) or 1
    answered = sum(report.responses for report in every)
    return CrowdFigures(
        size=sum(own[-1].size for own in reports if own),
        sent=sum(report.sent for report in every) / seconds,
        received=sum(report.received for report in every) / seconds,
        responses=answered,
        response_ms=1e3 * sum(report.response_sum for report in every) / answered if answered else None,
        p50_ms=1e3 * sum(report.p50 * report.responses for report in every) / answered if answered else None,
        p99_ms=1e3 * max((report.p99 for report in every), default=0.0) if answered else None,
        cpu=max((sum(report.cpu for report in own) / len(own) for own in reports if own), default=0.0),
        lag_ms=1e3 * max((report.lag for report in every), default=0.0),
        lost=sum(report.lost for report in every),
    )


async def until(condition: Callable[[], bool], seconds: float, failure: str) -> None:
    """Waits for something that nobody tells.

    :raises BenchmarkFailed: it does not come in time.
    """
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError as error:
        raise BenchmarkFailed(f"{failure} within {seconds:g} s") from error


class ClientCrowd:
    """Use it as ``async with``. ``resize`` spreads clients evenly over the processes."""

    def __init__(self, network: ServerNetwork, task: CrowdTask, processes: int = 1) -> None:
        self._network = network
        self._task = task
        self._count = processes
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self._reports: list[list[CrowdReport]] = [[] for _ in range(processes)]

    async def __aenter__(self) -> Self:
        command = self._network.client_command(
            [sys.executable, "-m", "culver.bench.channels.clients.client_process"]
        )
        for index in range(self._count):
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            self._processes.append(process)
            own = msgspec.structs.replace(self._task, first=self._task.first + index * _FIRST_NUMBERS_APART)
            self._send(process, msgspec.json.encode(own))
            self._readers.append(asyncio.create_task(self._read(index, process)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def resize(self, size: int) -> None:
        for index, process in enumerate(self._processes):
            self._send(process, b"%d" % ((size + index) // self._count))

    async def reached(self, size: int, timeout_seconds: float = 60.0) -> None:
        """Waits until all clients have been opened.

        :raises BenchmarkFailed: they were not, in time.
        """
        self.resize(size)
        await until(
            lambda: sum(own[-1].size for own in self._reports if own) == size,
            timeout_seconds,
            f"{size} clients did not connect",
        )

    def figures(self) -> CrowdFigures:
        """What was seen since the last call."""
        figures = figures_of(self._reports)
        for own in self._reports:
            own.clear()
        return figures

    async def measure(self, seconds: float) -> CrowdFigures:
        self.figures()
        await asyncio.sleep(seconds)
        return self.figures()

    def _send(self, process: asyncio.subprocess.Process, line: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(line + b"\n")

    async def _read(self, index: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        decoder = msgspec.json.Decoder(CrowdReport)
        while line := await process.stdout.readline():
            self._reports[index].append(decoder.decode(line))
