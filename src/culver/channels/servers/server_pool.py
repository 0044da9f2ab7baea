"""Who runs the servers: the protocol of a provisioner, and the one for servers that others run.

A pool of servers asks a provisioner for servers. A cloud is one more implementation of ``ServerProvisioner``; it
passes the contract suite of provisioners, and nothing else changes.
"""

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import parse_qsl

import msgspec

from culver.channels.core.channel_plan import ServerAddress
from culver.channels.servers.redis_address import RedisAddress, ServerAccess, parse_redis_url
from culver.channels.servers.redis_link import RedisLink
from culver.disk import write_whole
from culver.errors import (
    Conflict,
    InvalidConfiguration,
    LimitExceeded,
    NotFound,
    ServerError,
    ServerNotStarted,
    StorageCorrupt,
)

_STATE_NAME = "servers.json"
_LOCK_NAME = "lock"


class ServerProvisioner(Protocol):
    """Starts and stops servers, and remembers their numbers. A number is never given to another server, not even
    after a restart of the owner. The context manager ends with no process of the provisioner's left."""

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        """All servers by number, including those that have crashed."""

    def access(self, number: int) -> ServerAccess:
        """How the service identifies itself to a server.

        :raises NotFound: there is no such server.
        """

    def price(self, number: int) -> float:
        """What a server costs, in a unit that is the same for all. The balancer gives back first what has the least
        load for its price.

        :raises NotFound: there is no such server.
        """

    def crashed(self) -> frozenset[int]:
        """The servers that are known to have ended without being asked to."""

    async def start(self) -> ServerAddress:
        """Returns when the new server answers.

        :raises LimitExceeded: it cannot run more servers.
        :raises ServerNotStarted: the server does not come up.
        """

    async def restart(self, number: int) -> None:
        """Starts a server again at the same address, empty, and returns when it answers. Ends it before if it hangs.

        :raises NotFound: there is no such server.
        :raises LimitExceeded: others run it.
        :raises ServerNotStarted: the server does not come up.
        """

    async def stop(self, number: int) -> None:
        """Removes a server from the pool, and ends it unless others run it: then ``start`` may take it again, with
        the same number.

        :raises NotFound: there is no such server.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ServerRecord(msgspec.Struct):
    """A server in the state file. ``pid`` and ``started`` identify its process, 0 if there is none of ours. A server
    that others run is not ``in_use`` while the service does without it."""

    number: int
    url: str
    pid: int = 0
    started: int = 0
    in_use: bool = True


class _State(msgspec.Struct):
    kind: str
    next_number: int = 1
    servers: list[ServerRecord] = []


class PoolState:
    """The state file of a provisioner. One owner has it at a time; a killed owner's lock ends with its process."""

    def __init__(self, folder: Path, kind: str) -> None:
        """
        :raises Conflict: another process has this folder, or it belongs to a provisioner of another kind.
        :raises StorageCorrupt: the state file cannot be read.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / _STATE_NAME
        self._lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.exists():
                self._state = msgspec.json.decode(self._path.read_bytes(), type=_State)
            else:
                self._state = _State(kind)
            if self._state.kind != kind:
                raise Conflict(
                    f"{folder} holds {self._state.kind} servers, not {kind} ones; choose another folder"
                )
        except Conflict:
            self.close()
            raise
        except BlockingIOError as error:
            self.close()
            raise Conflict(f"another process runs the servers of {folder}; stop it first") from error
        except msgspec.DecodeError as error:
            self.close()
            raise StorageCorrupt(
                f"{self._path} cannot be read: {error}; stop the servers that it names and remove it"
            ) from error

    @property
    def records(self) -> list[ServerRecord]:
        return self._state.servers

    def record(self, number: int) -> ServerRecord:
        for record in self._state.servers:
            if record.number == number:
                return record
        raise NotFound(f"there is no server {number}")

    def add(self, url: str, *, in_use: bool = True) -> ServerRecord:
        record = ServerRecord(self._state.next_number, url, in_use=in_use)
        self._state.next_number += 1
        self._state.servers.append(record)
        self.write()
        return record

    def remove(self, number: int) -> None:
        self._state.servers.remove(self.record(number))
        self.write()

    def write(self) -> None:
        write_whole(self._path, [msgspec.json.encode(self._state)], durable=False)

    def close(self) -> None:
        os.close(self._lock)


@dataclass(frozen=True, slots=True)
class _GivenServer:
    access: ServerAccess
    price: float


class GivenServers:
    """Servers that others run. ``folder`` keeps their numbers: a server has the same one in every list.

    Not all of them need be in use: ``stop`` lays a server aside, and ``start`` takes the cheapest of those that lie
    aside. ``folder`` also keeps which ones are in use, so that a new owner goes on with these.
    """

    def __init__(
        self,
        urls: Sequence[str],
        folder: Path,
        access: ServerAccess = ServerAccess(),  # noqa: B008  frozen
        first_servers: int | None = None,
    ) -> None:
        """A user and password in a URL go before those of ``access``. ``?price=2.5`` at its end sets the price, which
        is 1 else. At least ``first_servers`` are in use from the beginning, the cheapest ones; by default all.

        :raises InvalidConfiguration: a URL is not that of a server or appears twice, there is none, or users and
            passwords differ.
        """
        self._given: dict[str, _GivenServer] = {}
        for url in urls:
            address, price = parse_given_server(url)
            own = access
            if address.username is not None or address.password is not None:
                own = replace(access, username=address.username, password=address.password)
            self._given[address.url] = _GivenServer(own, price)
        if not urls or len(self._given) != len(urls):
            raise InvalidConfiguration("give every server once, and one at least", field="server")
        if len({(given.access.username, given.access.password) for given in self._given.values()}) > 1:
            # Dispatchers and clients have one user and password for all of them.
            raise InvalidConfiguration("give all servers the same user and password", field="server")
        self._folder = folder
        self._first_servers = len(urls) if first_servers is None else first_servers
        self._records: dict[str, ServerRecord] = {}

    async def __aenter__(self) -> Self:
        """
        :raises Conflict: another process has this folder.
        """
        self._state = PoolState(self._folder, "given")
        for record in self._state.records:
            # A server that is left out of the list begins anew when it is listed again.
            record.in_use = record.in_use and record.url in self._given
        known = {record.url: record for record in self._state.records}
        for url in self._given:
            record = known.get(url) or self._state.add(url, in_use=False)
            self._records[url] = record
        used = len(self._in_use())
        for record in self._laid_aside()[: max(0, self._first_servers - used)]:
            record.in_use = True
        self._state.write()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._records.clear()
        self._state.close()

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        return tuple(ServerAddress(record.number, record.url) for record in self._in_use())

    def access(self, number: int) -> ServerAccess:
        return self._given[self._record(number).url].access

    def price(self, number: int) -> float:
        return self._given[self._record(number).url].price

    def crashed(self) -> frozenset[int]:
        """Empty: only a connection shows whether such a server runs."""
        return frozenset()

    async def start(self) -> ServerAddress:
        """Takes the cheapest server that is not in use and answers."""
        failures: list[ServerError] = []
        for record in self._laid_aside():
            try:
                async with RedisLink(record.url, access=self._given[record.url].access):
                    pass
            except ServerError as error:
                failures.append(error)
                continue
            record.in_use = True
            self._state.write()
            return ServerAddress(record.number, record.url)
        if failures:
            reasons = "; ".join(error.message for error in failures)
            raise ServerNotStarted(f"none of the servers that are not in use can be taken: {reasons}")
        raise LimitExceeded(
            f"the servers were given as a list of {len(self._given)}: start another one and add it to the list",
            field="server",
            limit=len(self._given),
        )

    async def restart(self, number: int) -> None:
        raise LimitExceeded(f"others run {self._record(number).url}: start it there", field="server", limit=0)

    async def stop(self, number: int) -> None:
        """Lays a server aside until ``start`` takes it again. The server itself runs on."""
        self._record(number).in_use = False
        self._state.write()

    def _in_use(self) -> list[ServerRecord]:
        return sorted((each for each in self._records.values() if each.in_use), key=lambda each: each.number)

    def _laid_aside(self) -> list[ServerRecord]:
        """The cheapest first, and among these as they were given."""
        aside = [each for each in self._records.values() if not each.in_use]
        return sorted(aside, key=lambda each: self._given[each.url].price)

    def _record(self, number: int) -> ServerRecord:
        for record in self._in_use():
            if record.number == number:
                return record
        raise NotFound(f"there is no server {number}")


def parse_given_server(url: str) -> tuple[RedisAddress, float]:
    """The address and the price of a server as ``--server`` takes it.

    :raises InvalidConfiguration: the URL is not that of a server, its price is not a positive number, or it has other
        parameters. The message does not repeat its password.
    """
    base, _, query = url.partition("?")
    if "@" in query:
        raise InvalidConfiguration("write a ? in a password as %3F", field="server")
    address = parse_redis_url(base)
    parameters = parse_qsl(query, keep_blank_values=True)
    unknown = sorted({name for name, _ in parameters if name != "price"})
    if unknown:
        raise InvalidConfiguration(
            f"{address.url}: unknown {', '.join(unknown)}; a server's only parameter is price, as in "
            f"{address.url}?price=2.5",
            field="server",
        )
    if len(parameters) > 1:
        raise InvalidConfiguration(f"{address.url}: give the price once", field="server")
    price = _number(parameters[0][1]) if parameters else 1.0
    if not 0 < price < float("inf"):
        raise InvalidConfiguration(
            f"{address.url}: the price must be a positive number, not {parameters[0][1]!r}", field="server"
        )
    return address, price


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
