"""Server processes on this machine, for a pool of its own.

A server keeps nothing on disk. Its folder holds, for server 3, ``server-3.conf`` (readable by its owner only, because
it holds the password) and ``server-3.log``. Servers outlive an owner that is killed: the next one finds them by
process and port in the state file, and goes on with them.
"""

import asyncio
import contextlib
import ipaddress
import os
import random
import signal
import socket
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from culver.channels.core.channel_plan import ServerAddress
from culver.channels.servers.redis_address import ServerAccess, parse_redis_url
from culver.channels.servers.redis_link import LinkSettings, RedisLink
from culver.channels.servers.server_pool import PoolState, ServerRecord
from culver.channels.servers.server_program import find_server_program
from culver.channels.servers.tls_files import TlsFiles, tls_context
from culver.errors import (
    Conflict,
    InvalidConfiguration,
    LimitExceeded,
    ServerError,
    ServerNotStarted,
    ServerTlsFailed,
)

# Below the ports that systems give to outgoing connections: one of these could take a crashed server's port.
_PORTS = range(16_000, 32_000)
_PORT_TRIES = 50
_START_TRIES = 5
_PAUSE_SECONDS = 0.01
_PORT_TAKEN = "Address already in use"
_PORT_PAUSE_SECONDS = 0.2
# What Valkey and Redis before 7 say about tls-port if they are built without TLS.
_NO_TLS = ("Failed finding TLS support", "Bad directive")
_SHOWN_LOG_BYTES = 2_000
# Valkey 9 and recent Redis refer to long payloads instead of copying them, and count a reference as a few bytes.
# Neither the limit of a subscriber's output buffer nor CLIENT LIST then sees messages of 16 KB and more. 0 turns it
# off; a server that does not know these settings copies anyway.
_COPY_SETTINGS = (
    b"min-string-size-avoid-copy-reply",
    b"min-string-size-avoid-copy-reply-threaded",
    b"min-io-threads-avoid-copy-reply",
)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """What a server shows to its clients over TLS. Clients trust it by ``authorities``, which may be the certificate
    itself."""

    certificate: Path
    key: Path
    authorities: Path


@dataclass(frozen=True, slots=True)
class LocalServerSettings:
    """How servers run.

    ``password`` is the default user's. ``users`` are further ones as ACL rules, such as ``alice on >secret ~* &*
    +@all``. Redis cuts a subscriber off that has more than ``output_buffer_bytes`` to read, or half of them for ten
    seconds. ``options`` are further directives of the server's configuration.
    """

    program: Path | None = None
    host: str = "127.0.0.1"
    most_servers: int | None = None
    password: str | None = field(default=None, repr=False)
    users: tuple[str, ...] = field(default=(), repr=False)
    certificate: ServerCertificate | None = None
    max_clients: int = 10_000
    output_buffer_bytes: int = 64 << 20
    options: tuple[tuple[str, str], ...] = ()
    start_seconds: float = 10.0
    stop_seconds: float = 5.0


class LocalServers:
    """Runs server processes and stops them by their own handles. Entering the context adopts what a killed owner has
    left behind; leaving it stops all servers."""

    def __init__(self, folder: Path, settings: LocalServerSettings = LocalServerSettings()) -> None:  # noqa: B008
        """
        :raises InvalidConfiguration: the host is not an address of this machine, a user's rule has several lines, or
            a file of the certificate cannot be used.
        """
        try:
            ipaddress.ip_address(settings.host)
        except ValueError as error:
            raise InvalidConfiguration(f"{settings.host!r} is not an IP address", field="host") from error
        if any(len(rule.splitlines()) != 1 for rule in settings.users):
            raise InvalidConfiguration("the rule of a user is one line", field="users")
        self._folder = folder.absolute()
        self._settings = settings
        self._processes: dict[int, _ServerProcess] = {}
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        shown, trusted = settings.certificate, TlsFiles()
        if shown is not None:
            trusted = TlsFiles(shown.authorities)
            # A server's own words about a wrong key are hard to understand.
            tls_context(TlsFiles(shown.authorities, shown.certificate, shown.key))
        self._access = ServerAccess.with_files(None, settings.password, trusted)

    async def __aenter__(self) -> Self:
        """
        :raises Conflict: another process has this folder, or a killed owner's servers differ in TLS.
        """
        self._state = PoolState(self._folder, "local")
        try:
            if any(parse_redis_url(record.url).tls != self._with_tls for record in self._state.records):
                former = "without" if self._with_tls else "with"
                raise Conflict(
                    f"the servers of {self._folder} run {former} TLS: start the service that way, and stop it first"
                )
            await asyncio.gather(*(self._adopt(record) for record in self._state.records))
            self._state.write()
        except BaseException:
            self._state.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await asyncio.gather(*(self.stop(record.number) for record in tuple(self._state.records)))
        finally:
            self._state.close()

    @property
    def _with_tls(self) -> bool:
        return self._settings.certificate is not None

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        return tuple(ServerAddress(record.number, record.url) for record in self._state.records)

    def access(self, number: int) -> ServerAccess:
        self._state.record(number)
        return self._access

    def price(self, number: int) -> float:
        """1 for each: they all run on this machine."""
        self._state.record(number)
        return 1.0

    def crashed(self) -> frozenset[int]:
        numbers = [record.number for record in self._state.records if not self._locks[record.number].locked()]
        return frozenset(number for number in numbers if not self._runs(number))

    def process_id(self, number: int) -> int:
        """The process of a server; 0 before it has one."""
        return self._state.record(number).pid

    async def start(self) -> ServerAddress:
        most = self._settings.most_servers
        if most is not None and len(self._state.records) >= most:
            raise LimitExceeded(
                f"{most} servers run, and no more are allowed", field="max-servers", limit=most
            )
        for attempt in range(_START_TRIES):
            record = self._state.add(self._url(self._free_port()))
            try:
                async with self._locks[record.number]:
                    await self._launch(record)
            except BaseException as error:
                self._state.remove(record.number)
                taken = isinstance(error, ServerNotStarted) and error.details.get("port_taken")
                if not taken or attempt == _START_TRIES - 1:
                    raise
            else:
                return ServerAddress(record.number, record.url)
        raise AssertionError("the last attempt returns or raises")

    async def restart(self, number: int) -> None:
        record = self._state.record(number)
        async with self._locks[number]:
            await self._end(number, patience_seconds=0.0)
            for attempt in range(_START_TRIES):
                try:
                    await self._launch(record)
                except ServerNotStarted as error:
                    # Another program may try whether the port is free, for a moment.
                    if not error.details.get("port_taken") or attempt == _START_TRIES - 1:
                        raise
                    await asyncio.sleep(_PORT_PAUSE_SECONDS)
                else:
                    return

    async def stop(self, number: int) -> None:
        self._state.record(number)
        async with self._locks[number]:
            await self._end(number, self._settings.stop_seconds)
            self._state.remove(number)
        self._configuration_path(number).unlink(missing_ok=True)

    async def _adopt(self, record: ServerRecord) -> None:
        """Goes on with a server of a killed owner: its process still runs, or a server with its configuration
        answers, which the owner had no time to write down."""
        if not record.pid or _start_time(record.pid) != record.started:
            try:
                record.pid = await self._answering_process(record)
            except ServerTlsFailed:
                record.pid = 0
            record.started = _start_time(record.pid)
        if record.started:
            self._processes[record.number] = _ServerProcess(record.pid, record.started)

    async def _launch(self, record: ServerRecord) -> None:
        program = self._settings.program or find_server_program()
        configuration, log = self._configuration_path(record.number), self._log_path(record.number)
        with os.fdopen(os.open(configuration, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write("".join(f"{line}\n" for line in self._configuration(record)))
        log_start = log.stat().st_size if log.exists() else 0
        child = self._spawn(program, configuration, log)
        record.pid, record.started = child.pid, _start_time(child.pid)
        self._processes[record.number] = _ServerProcess(child.pid, record.started, child)
        try:
            self._state.write()
            await self._ready(record, program, log, log_start)
        except BaseException:
            await self._end(record.number, patience_seconds=0.0)
            raise

    def _spawn(self, program: Path, configuration: Path, log: Path) -> "subprocess.Popen[bytes]":
        try:
            with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
                # A session of its own: Ctrl-C is for the owner, which stops its servers in order.
                return subprocess.Popen(
                    [program, configuration],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise ServerNotStarted(f"{program} cannot be run: {error.strerror}") from error

    async def _ready(self, record: ServerRecord, program: Path, log: Path, log_start: int) -> None:
        try:
            async with asyncio.timeout(self._settings.start_seconds):
                while await self._answering_process(record) != record.pid:
                    if not self._runs(record.number):
                        raise self._start_failure(record, program, log, _tail(log, log_start))
                    await asyncio.sleep(_PAUSE_SECONDS)
        except ServerTlsFailed as error:
            raise ServerNotStarted(error.message, url=record.url) from error
        except TimeoutError as error:
            raise ServerNotStarted(
                f"the server at {record.url} did not answer within {self._settings.start_seconds:g} s; see {log}",
                url=record.url,
            ) from error

    def _start_failure(self, record: ServerRecord, program: Path, log: Path, words: str) -> ServerNotStarted:
        if self._settings.certificate is not None and any(sign in words for sign in _NO_TLS):
            return ServerNotStarted(
                f"{program} is built without TLS: install valkey-server or redis-server with the system's packages, "
                "which have it, or run servers yourself and list them with --server",
                url=record.url,
            )
        return ServerNotStarted(
            f"the server at {record.url} ended before it was ready; see {log}. It says: {words}",
            url=record.url,
            port_taken=_PORT_TAKEN in words,
        )

    async def _answering_process(self, record: ServerRecord) -> int:
        """The process that answers at the address, if it runs with the configuration of this server; else 0.

        :raises ServerTlsFailed: clients will not trust the certificate, so waiting cannot help.
        """
        limits = LinkSettings(connect_seconds=1.0, silence_seconds=1.0)
        try:
            async with RedisLink(record.url, access=self._access, settings=limits) as link:
                facts = _facts(await link.request((b"INFO", b"server")))
                if facts.get("config_file") != str(self._configuration_path(record.number)):
                    return 0
                for name in _COPY_SETTINGS:
                    link.send((b"CONFIG", b"SET", name, b"0"), lambda reply: None)
                await link.request((b"PING",))
        except ServerTlsFailed:
            raise
        except ServerError:
            return 0
        return int(facts["process_id"])

    async def _end(self, number: int, patience_seconds: float) -> None:
        """Ends the process of a server, by force after a while."""
        process = self._processes.get(number)
        if process is not None:
            await process.end(patience_seconds)
            del self._processes[number]

    def _runs(self, number: int) -> bool:
        process = self._processes.get(number)
        return process is not None and process.runs()

    def _configuration(self, record: ServerRecord) -> list[str]:
        settings, port = self._settings, str(parse_redis_url(record.url).port)
        hard, soft = settings.output_buffer_bytes, settings.output_buffer_bytes // 2
        directives: list[tuple[str, ...]] = [
            ("bind", settings.host),
            ("daemonize", "no"),
            ("dir", str(self._folder)),
            ("save", ""),
            ("appendonly", "no"),
            ("maxclients", str(settings.max_clients)),
            ("client-output-buffer-limit", "pubsub", str(hard), str(soft), "10"),
        ]
        if settings.certificate is None:
            directives.append(("port", port))
        else:
            directives += [
                ("port", "0"),
                ("tls-port", port),
                ("tls-cert-file", str(settings.certificate.certificate.absolute())),
                ("tls-key-file", str(settings.certificate.key.absolute())),
                ("tls-ca-cert-file", str(settings.certificate.authorities.absolute())),
                ("tls-auth-clients", "no"),
            ]
        if settings.password is not None:
            directives.append(("requirepass", settings.password))
        directives += [("user", *rule.split()) for rule in settings.users]
        directives += settings.options
        return [" ".join((name, *map(_quoted, values))) for name, *values in directives]

    def _configuration_path(self, number: int) -> Path:
        return self._folder / f"server-{number}.conf"

    def _log_path(self, number: int) -> Path:
        return self._folder / f"server-{number}.log"

    def _url(self, port: int) -> str:
        scheme = "rediss" if self._with_tls else "redis"
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{scheme}://{host}:{port}"

    def _free_port(self) -> int:
        taken = {parse_redis_url(record.url).port for record in self._state.records}
        family = socket.AF_INET6 if ":" in self._settings.host else socket.AF_INET
        for port in random.sample(_PORTS, _PORT_TRIES):
            with socket.socket(family, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
                probe.bind((self._settings.host, port))
                if port not in taken:
                    return port
        raise ServerNotStarted(
            f"no port of {self._settings.host} between {_PORTS[0]} and {_PORTS[-1]} is free"
        )


class _ServerProcess:
    """A process that this owner or a killed one has started. Its start time tells it from a later process with the
    same id."""

    def __init__(self, pid: int, started: int, child: "subprocess.Popen[bytes] | None" = None) -> None:
        self._pid = pid
        self._started = started
        self._child = child

    def runs(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return _start_time(self._pid) == self._started

    async def end(self, patience_seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + patience_seconds
        if patience_seconds:
            self._signal(signal.SIGTERM)
        while self.runs():
            if asyncio.get_running_loop().time() >= deadline:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)
        elif self.runs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


def _start_time(pid: int) -> int:
    """When a process began, in ticks since the start of the system; 0 if there is none. Where the system does not
    tell, 1 stands for any process that runs."""
    if not pid:
        return 0
    try:
        # The program's name, in parentheses, may hold spaces. The state follows it, and 19 fields later the time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if fields[0] == "Z" else int(fields[19])
    except OSError:
        if Path("/proc/self").exists():
            return 0
    try:
        os.kill(pid, 0)
    except OSError:
        return 0
    return 1


def _quoted(value: str) -> str:
    """A value as a server's configuration takes it."""
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in value.encode()
    )
    return f'"{"".join(plain)}"'


def _facts(info: object) -> dict[str, str]:
    """The answer to INFO."""
    text = info.decode(errors="replace") if isinstance(info, bytes) else str(info)
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _tail(log: Path, start: int) -> str:
    """The last lines that were written to a log since ``start``, without directives, which may hold passwords."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _SHOWN_LOG_BYTES, 0))
        lines = file.read().decode(errors="replace").splitlines()
    return " / ".join(line for line in map(str.strip, lines[-4:]) if line and not line.startswith(">>>"))
