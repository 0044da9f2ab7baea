"""Who runs the servers: the protocol of a provisioner, and the one for servers that others run.

A pool of servers asks a provisioner for servers. A cloud is one more implementation of ``ServerProvisioner``; it
passes the contract suite of provisioners, and nothing else changes.
"""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from culver.channels.core.channel_plan import ServerAddress
from culver.channels.servers.redis_address import ServerAccess, parse_redis_url
from culver.disk import write_whole
from culver.errors import Conflict, InvalidConfiguration, LimitExceeded, NotFound, StorageCorrupt

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
        """Removes a server from the pool, and ends it unless others run it.

        :raises NotFound: there is no such server.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ServerRecord(msgspec.Struct):
    """A server in the state file. ``pid`` and ``started`` identify its process, 0 if there is none of ours."""

    number: int
    url: str
    pid: int = 0
    started: int = 0


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

    def add(self, url: str) -> ServerRecord:
        record = ServerRecord(self._state.next_number, url)
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


class GivenServers:
    """Servers that others run. ``folder`` keeps their numbers: a server has the same one in every list."""

    def __init__(self, urls: Sequence[str], folder: Path, access: ServerAccess = ServerAccess()) -> None:  # noqa: B008
        """A user and password in a URL go before those of ``access``.

        :raises InvalidConfiguration: a URL is not that of a server, appears twice, or there is none.
        """
        addresses = [parse_redis_url(url) for url in urls]
        if not addresses or len({address.url for address in addresses}) != len(addresses):
            raise InvalidConfiguration("give every server once, and one at least", field="server")
        self._given = {
            address.url: access
            if address.username is None and address.password is None
            else ServerAccess(address.username, address.password, access.tls)
            for address in addresses
        }
        self._folder = folder
        self._numbers: dict[int, str] = {}

    async def __aenter__(self) -> Self:
        """
        :raises Conflict: another process has this folder.
        """
        self._state = PoolState(self._folder, "given")
        known = {record.url: record.number for record in self._state.records}
        for url in self._given:
            number = known[url] if url in known else self._state.add(url).number
            self._numbers[number] = url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._numbers.clear()
        self._state.close()

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        return tuple(ServerAddress(number, url) for number, url in sorted(self._numbers.items()))

    def access(self, number: int) -> ServerAccess:
        return self._given[self._url(number)]

    def crashed(self) -> frozenset[int]:
        """Empty: only a connection shows whether such a server runs."""
        return frozenset()

    async def start(self) -> ServerAddress:
        raise LimitExceeded(
            f"the servers were given as a list of {len(self._given)}: start another one and add it to the list",
            field="server",
            limit=len(self._given),
        )

    async def restart(self, number: int) -> None:
        raise LimitExceeded(f"others run {self._url(number)}: start it there", field="server", limit=0)

    async def stop(self, number: int) -> None:
        """Leaves a server out until the list is given again. The server itself runs on."""
        self._url(number)
        del self._numbers[number]

    def _url(self, number: int) -> str:
        if number not in self._numbers:
            raise NotFound(f"there is no server {number}")
        return self._numbers[number]
