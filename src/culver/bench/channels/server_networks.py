"""The limits of servers: a network namespace with a token-bucket filter for each, a proxy, or none.

With namespaces, a server has two interfaces and one address:

    service, dispatchers ---- lan, not limited ---- [ server 10.x.0.n ] ---- wan, tbf ---- [ clients 10.x.1.254 ]

The dispatcher and the analyser run beside their server, as in the paper, and use none of its bandwidth. Only what a
server sends to clients passes the filter, headers and replies included. With proxies everybody passes the limit.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from culver.errors import CulverError

#: What a filter sends at once, and how long a packet may wait in it before it is dropped. Long enough that every
#: connection has room for its few packets: a network card sends back pressure, and drops nothing.
_BURST_BYTES = 6_000
_QUEUE_MS = 1_500

#: A small send buffer of each socket, so that Redis and not the kernel holds what waits for slow clients.
_SEND_BUFFER = "4096 16384 65536"


class ServerNetwork(Protocol):
    """Gives servers their limited connections. ``kind`` says which way, for the reader of the results."""

    kind: str

    @property
    def service_host(self) -> str:
        """Where the service listens so that clients reach it."""

    def bind_host(self, number: int) -> str:
        """The address on which a server listens."""

    def server_command(self, number: int, command: Sequence[str]) -> list[str]:
        """The command that runs a server in its place."""

    def client_command(self, command: Sequence[str]) -> list[str]:
        """The command that runs a client beyond the limits."""

    async def connect(self, number: int, port: int) -> tuple[str, int]:
        """Puts the limit before a server. Returns the address that everybody uses."""

    async def disconnect(self, number: int) -> None:
        """Takes the connection of a server that has ended away."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ServerNamespaces:
    """Limits by the kernel; wants root. ``rate`` is in bytes per second."""

    kind = "network namespaces with a token-bucket filter"

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._name = f"culver{os.getpid()}"
        self._link = f"cv{os.getpid()}"
        self._net = ""
        self._servers: set[int] = set()

    @property
    def service_host(self) -> str:
        return f"{self._net}.2.1"

    def bind_host(self, number: int) -> str:
        if number not in self._servers:
            self._add(number)
        return f"{self._net}.0.{number}"

    def server_command(self, number: int, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", f"{self._name}s{number}", *command]

    def client_command(self, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", f"{self._name}c", *command]

    async def connect(self, number: int, port: int) -> tuple[str, int]:
        return f"{self._net}.0.{number}", port

    async def disconnect(self, number: int) -> None:
        # A namespace takes its links along, but not at once.
        self._servers.discard(number)
        _try("ip", "link", "delete", f"{self._link}l{number}")
        _try("ip", "-n", f"{self._name}c", "link", "delete", f"wan{number}")
        _try("ip", "netns", "delete", f"{self._name}s{number}")

    async def __aenter__(self) -> Self:
        """
        :raises CulverError: the system does not allow it.
        """
        taken = _run("ip", "-o", "-4", "address")
        self._net = net = next(
            net for net in (f"10.{number}" for number in range(100, 200)) if f" {net}." not in taken
        )
        clients = f"{self._name}c"
        _run("ip", "netns", "add", clients)
        try:
            _pair(self._link, None, "service", clients)
            _address(self._link, None, f"{net}.2.1", f"{net}.2.2")
            _address("service", clients, f"{net}.2.2", f"{net}.2.1")
            _run("ip", "-n", clients, "link", "set", "lo", "up")
        except BaseException:
            _try("ip", "netns", "delete", clients)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in sorted(self._servers):
            await self.disconnect(number)
        _try("ip", "link", "delete", self._link)
        _try("ip", "netns", "delete", f"{self._name}c")

    def _add(self, number: int) -> None:
        server, clients, net = f"{self._name}s{number}", f"{self._name}c", self._net
        _run("ip", "netns", "add", server)
        self._servers.add(number)
        _pair(f"{self._link}l{number}", None, "lan", server)
        _pair(f"wan{number}", clients, "wan", server)
        _address(f"{self._link}l{number}", None, f"{net}.0.254", f"{net}.0.{number}")
        _address("lan", server, f"{net}.0.{number}", f"{net}.0.254")
        _address(f"wan{number}", clients, f"{net}.1.254", f"{net}.0.{number}")
        _address("wan", server, f"{net}.0.{number}", f"{net}.1.254")
        _run("ip", "-n", server, "link", "set", "lo", "up")
        limit = ("rate", f"{self._rate:.0f}bps", "burst", str(_BURST_BYTES), "latency", f"{_QUEUE_MS}ms")
        _run("tc", "-n", server, "qdisc", "add", "dev", "wan", "root", "tbf", *limit)
        setting = f"echo {_SEND_BUFFER} > /proc/sys/net/ipv4/tcp_wmem"
        _run("ip", "netns", "exec", server, "sh", "-c", setting)


class ServerProxies:
    """Limits by a process before each server, where the kernel allows nothing else."""

    kind = "rate-limiting proxies"
    service_host = "127.0.0.1"

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._proxies: dict[int, asyncio.subprocess.Process] = {}

    def bind_host(self, number: int) -> str:
        return "127.0.0.1"

    def server_command(self, number: int, command: Sequence[str]) -> list[str]:
        return list(command)

    def client_command(self, command: Sequence[str]) -> list[str]:
        return list(command)

    async def connect(self, number: int, port: int) -> tuple[str, int]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "culver.bench.channels.rate_proxy",
            f"127.0.0.1:{port}",
            str(self._rate),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._proxies[number] = process
        assert process.stdout is not None
        return "127.0.0.1", int(await process.stdout.readline())

    async def disconnect(self, number: int) -> None:
        process = self._proxies.pop(number)
        process.terminate()
        await process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self._proxies):
            await self.disconnect(number)


class UnlimitedNetwork:
    """The loopback interface as it is, for what is not about bandwidth."""

    kind = "loopback without a limit"
    service_host = "127.0.0.1"

    def bind_host(self, number: int) -> str:
        return "127.0.0.1"

    def server_command(self, number: int, command: Sequence[str]) -> list[str]:
        return list(command)

    def client_command(self, command: Sequence[str]) -> list[str]:
        return list(command)

    async def connect(self, number: int, port: int) -> tuple[str, int]:
        return "127.0.0.1", port

    async def disconnect(self, number: int) -> None:
        """There is nothing to take away."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to close."""


async def server_network(rate: float | None, *, proxies: bool = False) -> ServerNetwork:
    """The better way that this machine allows, not entered yet. Without a rate nothing is limited."""
    if rate is None:
        return UnlimitedNetwork()
    if not proxies:
        try:
            # One server's place shows whether everything is allowed that it needs.
            async with ServerNamespaces(rate) as trial:
                trial.bind_host(1)
            return ServerNamespaces(rate)
        except CulverError:
            pass
    return ServerProxies(rate)


def _pair(one: str, its_namespace: str | None, other: str, namespace: str) -> None:
    place = ("netns", its_namespace) if its_namespace else ()
    _run("ip", "link", "add", one, *place, "type", "veth", "peer", "name", other, "netns", namespace)


def _address(device: str, namespace: str | None, own: str, peer: str) -> None:
    ip = ("ip", "-n", namespace) if namespace else ("ip",)
    _run(*ip, "address", "add", own, "peer", peer, "dev", device)
    _run(*ip, "link", "set", device, "up")


def _try(*command: str) -> None:
    """Clears away what may be gone already."""
    with suppress(CulverError):
        _run(*command)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CulverError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise CulverError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
