"""The service's own connection to one server: writes the plan there, and reads what the dispatcher left."""

import asyncio
import logging

import msgspec

from culver.channels.core.balance.keeper_commands import commands_of
from culver.channels.core.balance.keeper_instructions import KeeperInstruction
from culver.channels.core.channel_load import ServerLoad
from culver.channels.core.dispatcher_notes import DispatcherReport, decode_report
from culver.channels.core.instructions import Command
from culver.channels.core.reserved_names import LOAD_KEY, REPORT_KEY, RESERVED_PREFIX
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import RedisLink
from culver.errors import CulverError

logger = logging.getLogger(__name__)


class ServerControl:
    """Connects when it is used, and again after a failure. Commands to one server are carried out in their order."""

    def __init__(self, number: int, url: str, access: ServerAccess, secret: bytes) -> None:
        self.number = number
        self.url = url
        self._access = access
        self._secret = secret
        self._link: RedisLink | None = None

    @property
    def is_up(self) -> bool:
        return self._link is not None and self._link.is_open

    async def connect(self) -> None:
        """
        :raises CulverError: the server cannot be reached.
        """
        await self.close()
        link = RedisLink(self.url, access=self._access, name="culver-service")
        await link.connect()
        self._link = link

    async def close(self) -> None:
        if self._link is not None:
            self._link.close()
            await self._link.wait_closed()
            self._link = None

    async def carry_out(self, instructions: list[KeeperInstruction]) -> None:
        """Writes what is for this server. A server that is down is left out: it gets everything when it is back.

        :raises CulverError: the connection broke.
        """
        commands = [
            command
            for instruction in instructions
            if instruction.server == self.number
            for command in commands_of(instruction, self._secret)
        ]
        if commands and self.is_up:
            await asyncio.gather(*(self._ask(command) for command in commands))

    async def read(self) -> tuple[DispatcherReport | None, ServerLoad | None]:
        """What the dispatcher and the analyser have stored last.

        :raises CulverError: the server does not answer.
        """
        report, load = await asyncio.gather(self._ask((b"GET", REPORT_KEY)), self._ask((b"GET", LOAD_KEY)))
        try:
            return (
                decode_report(report) if isinstance(report, bytes) else None,
                msgspec.msgpack.decode(load, type=ServerLoad) if isinstance(load, bytes) else None,
            )
        except msgspec.DecodeError as error:
            logger.warning("the report on server %d cannot be read: %s", self.number, error)
            return None, None

    async def subscribed_channels(self) -> tuple[bytes, ...]:
        """All channels with subscribers on this server, the service's own left out.

        :raises CulverError: the server does not answer.
        """
        names = await self._ask((b"PUBSUB", b"CHANNELS"))
        listed = names if isinstance(names, list) else []
        return tuple(name for name in listed if not name.startswith(RESERVED_PREFIX))

    async def _ask(self, command: Command) -> object:
        if self._link is None:
            raise CulverError(f"server {self.number} is not connected")
        return await self._link.request(command)
