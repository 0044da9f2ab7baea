"""The processes of the dispatchers, one beside each server: started, started again when they end, and stopped."""

import asyncio
import logging
import os
import sys
from pathlib import Path

from culver.channels.core.channel_plan import ServerAddress
from culver.channels.servers.redis_address import ServerAccess

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0


class DispatcherChildren:
    """Close it to end them all. A dispatcher that ends by itself is started again after a moment."""

    def __init__(self, secret: bytes, folder: Path) -> None:
        self._secret = secret
        self._folder = folder
        self._keepers: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        #: How often a dispatcher had to be started again.
        self.restarts = 0

    def process_id(self, server: int) -> int | None:
        process = self._processes.get(server)
        return None if process is None else process.pid

    def start(self, server: ServerAddress, access: ServerAccess) -> None:
        if server.number not in self._keepers:
            self._keepers[server.number] = asyncio.create_task(self._keep(server, access))

    async def stop(self, number: int) -> None:
        keeper = self._keepers.pop(number, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(number) for number in list(self._keepers)))

    async def _keep(self, server: ServerAddress, access: ServerAccess) -> None:
        while True:
            process = await self._launch(server, access)
            self._processes[server.number] = process
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                await _end(process)
                raise
            finally:
                self._processes.pop(server.number, None)
            self.restarts += 1
            logger.warning(
                "the dispatcher of server %d has ended (%s) and is started again", server.number, code
            )
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _launch(self, server: ServerAddress, access: ServerAccess) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "culver.channels.dispatcher_process"]
        command += ["--server", str(server.number), "--url", server.url, "--parent", str(os.getpid())]
        if access.username:
            command += ["--username", access.username]
        command += access.tls_files.arguments()
        with (self._folder / f"dispatcher-{server.number}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        assert process.stdin is not None
        process.stdin.write(f"{self._secret.hex()}\n{access.password or ''}\n".encode())
        process.stdin.close()
        return process


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
