"""The service of the channels with servers behind limits, for the time of one measurement."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from culver.bench.channels.clients.client_crowd import until
from culver.bench.channels.limited_servers import LimitedServers, cpu_seconds
from culver.bench.channels.server_networks import ServerNetwork, server_network
from culver.channels.channel_api import EmbeddedServer, channel_app
from culver.channels.channel_service import ChannelService, ServiceSettings
from culver.channels.core.balance.server_groups import Groups
from culver.host_names import HostNames

_MOVE_SECONDS = 30.0
_READY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class BenchService:
    """A service that runs, its network, and the address where clients begin."""

    network: ServerNetwork
    servers: LimitedServers
    service: ChannelService
    url: str

    @property
    def numbers(self) -> list[int]:
        return sorted(self.service.ring.numbers)

    async def move(self, channel: bytes, groups: Groups) -> None:
        """Moves a channel, and waits until its clients use the new servers.

        :raises BenchmarkFailed: they do not, in time.
        """
        await self.service.move({channel: groups})
        await until(
            lambda: not self.service.moves_in_progress, _MOVE_SECONDS, f"{channel.decode()} did not move"
        )

    def dispatcher_cpu_seconds(self) -> float:
        pids = [self.service.dispatchers.process_id(number) for number in self.numbers]
        return sum(cpu_seconds(pid) for pid in pids if pid is not None)


@asynccontextmanager
async def bench_service(
    megabits: float | None, most_servers: int, settings: ServiceSettings, *, proxies: bool = False
) -> AsyncIterator[BenchService]:
    """Runs servers that may send ``megabits`` per second each, or as much as they can where that is None."""
    network = await server_network(None if megabits is None else megabits * 1e6 / 8, proxies=proxies)
    with tempfile.TemporaryDirectory(prefix="culver-channels-") as name:
        folder = Path(name)
        servers = LimitedServers(network, folder, most_servers)
        async with network, ChannelService(servers, folder, settings) as service:
            app = channel_app(service, HostNames(network.service_host, setting="hosts"))
            config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
            with socket.create_server((network.service_host, 0)) as listener:
                url = "http://{}:{}".format(*listener.getsockname())
                http = EmbeddedServer(config)
                serving = asyncio.create_task(http.serve([listener]))
                try:
                    bench = BenchService(network, servers, service, url)
                    # A server's first load shows that its dispatcher runs.
                    await until(
                        lambda: all(server.load is not None for server in service.servers()),
                        _READY_SECONDS,
                        "a dispatcher did not start",
                    )
                    yield bench
                finally:
                    http.should_exit = True
                    await serving
