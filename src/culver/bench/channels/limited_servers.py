"""Server processes behind limits, as a pool for the service of the channels."""

import asyncio
import random
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from culver.bench.channels.server_networks import ServerNetwork
from culver.channels.core.channel_plan import ServerAddress
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import RedisLink
from culver.channels.servers.server_program import find_server_program
from culver.errors import LimitExceeded, NotFound, ServerNotStarted, ServerUnreachable

#: Below the ports that systems give to clients, with as many above them for the links within a cluster.
_PORTS = range(16_000, 24_000)
_CLUSTER_PORTS_APART = 8_000
_TRIED_PORTS = 5
_START_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
#: A subscriber is cut off when so much waits for it: Redis's own default.
_OUTPUT_BUFFER = ("32mb", "8mb", "60")


class LimitedServers:
    """Keeps nothing on disk but logs, and stops all servers at the end. ``options`` go to the servers, with their
    numbers for ``{number}`` and a second port for ``{cluster_port}``."""

    def __init__(
        self, network: ServerNetwork, folder: Path, most_servers: int, options: Sequence[str] = ()
    ) -> None:
        self._network = network
        self._folder = folder
        self._most_servers = most_servers
        self._options = options
        self._next_number = 1
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._urls: dict[int, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self._processes):
            await self.stop(number)

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        return tuple(ServerAddress(number, url) for number, url in sorted(self._urls.items()))

    def access(self, number: int) -> ServerAccess:
        if number not in self._processes:
            raise NotFound(f"there is no server {number}")
        return ServerAccess()

    def price(self, number: int) -> float:
        self.access(number)
        return 1.0

    def crashed(self) -> frozenset[int]:
        return frozenset(number for number, process in self._processes.items() if process.poll() is not None)

    async def start(self) -> ServerAddress:
        if len(self._processes) >= self._most_servers:
            raise LimitExceeded(
                f"{self._most_servers} servers run, and no more are allowed",
                field="max-servers",
                limit=self._most_servers,
            )
        number, self._next_number = self._next_number, self._next_number + 1
        for ports_left in reversed(range(_TRIED_PORTS)):
            port = random.choice(_PORTS)
            process = self._processes[number] = self._spawn(number, self._command(number, port))
            try:
                url = "redis://{}:{}".format(*await self._network.connect(number, port))
                await _answers(url, process)
            except ServerNotStarted:
                await self._end(number)
                if not ports_left:
                    raise
            except BaseException:
                await self._end(number)
                raise
            else:
                break
        self._urls[number] = url
        return ServerAddress(number, url)

    def _command(self, number: int, port: int) -> list[str]:
        host = self._network.bind_host(number)
        return [
            *(str(find_server_program()), "--bind", host, "--port", str(port), "--protected-mode", "no"),
            *("--save", "", "--appendonly", "no", "--maxclients", "20000"),
            *("--client-output-buffer-limit", "pubsub", *_OUTPUT_BUFFER),
            *(
                option.format(number=number, cluster_port=port + _CLUSTER_PORTS_APART)
                for option in self._options
            ),
        ]

    async def restart(self, number: int) -> None:
        raise LimitExceeded("a benchmark's server does not start again", field="server", limit=0)

    async def stop(self, number: int) -> None:
        self.access(number)
        del self._urls[number]
        await self._end(number)

    def _spawn(self, number: int, command: list[str]) -> "subprocess.Popen[bytes]":
        with (self._folder / f"limited-server-{number}.log").open("ab") as log:
            return subprocess.Popen(
                self._network.server_command(number, command),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _end(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        await asyncio.get_running_loop().run_in_executor(None, process.wait)
        await self._network.disconnect(number)


async def _answers(url: str, process: "subprocess.Popen[bytes]") -> None:
    """
    :raises ServerNotStarted: the process has ended, as on a port that another program has, or does not answer.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while process.poll() is None:
                try:
                    async with RedisLink(url):
                        return
                except ServerUnreachable:
                    await asyncio.sleep(_PAUSE_SECONDS)
    raise ServerNotStarted(f"the server at {url} does not answer", url=url)


def cpu_seconds(pid: int) -> float:
    """What a process has used, in all its threads; 0 after its end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100
