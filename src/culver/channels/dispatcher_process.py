"""The process beside a server: its dispatcher and its load analyser.

It is started with the server's number, address and certificate files as arguments, and the secret and the password on
standard input. It learns the other servers from the ring that the server stores, and ends with the process that
started it, or by SIGTERM.
"""

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from culver.channels.core.channel_plan import Ring
from culver.channels.core.dispatcher_core import DispatcherCore
from culver.channels.core.envelope import unpack_ring
from culver.channels.core.instructions import Instruction, Warn
from culver.channels.core.reserved_names import RING_KEY
from culver.channels.core_runner import CoreRunner
from culver.channels.load_analyser import LoadAnalyser
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings, RedisLink
from culver.channels.servers.tls_files import TlsFiles
from culver.errors import CulverError, InvalidConfiguration

logger = logging.getLogger(__name__)

_MEASURE_SECONDS = 1.0


class DispatcherProcess:
    """Runs one dispatcher until it is cancelled. Whatever fails is tried again."""

    def __init__(self, server: int, url: str, secret: bytes, access: ServerAccess) -> None:
        self._server = server
        self._url = url
        self._secret = secret
        self._access = access
        self._ring = Ring(-1, (), ())

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        analyser = LoadAnalyser(self._server, loop.time(), self._observer_link)
        core = DispatcherCore(self._server, self._secret, Random(secrets.randbits(64)), analyser.take_report)
        runner = CoreRunner(
            core,
            self._address_of,
            _carry_out,
            access=self._access,
            settings=LinkSettings(),
            name=f"culver-dispatcher-{self._server}",
        )
        runner.start()
        runner.run(core.start(runner.now()))
        try:
            while True:
                try:
                    await self._watch(core, runner, analyser)
                except CulverError as error:
                    logger.warning("server %d: %s", self._server, error)
                await asyncio.sleep(_MEASURE_SECONDS)
        finally:
            analyser.close()
            await runner.close()

    async def _watch(self, core: DispatcherCore, runner: CoreRunner, analyser: LoadAnalyser) -> None:
        name = f"culver-analyser-{self._server}"
        async with RedisLink(self._url, access=self._access, name=name) as link:
            while True:
                self._read_ring(await link.request((b"GET", RING_KEY)), core, runner)
                await analyser.measure(link, asyncio.get_running_loop().time(), core.heard)
                await asyncio.sleep(_MEASURE_SECONDS)

    def _read_ring(self, reply: object, core: DispatcherCore, runner: CoreRunner) -> None:
        if not isinstance(reply, bytes):
            return
        try:
            ring = unpack_ring(reply, self._secret)
        except ValueError as error:
            logger.warning("%s", error)
            return
        if ring.version > self._ring.version:
            for server in self._ring.numbers - ring.numbers:
                runner.run(core.server_gone(server))
            self._ring = ring

    def _observer_link(self, on_pushes: Callable[[list[list[Any]]], None]) -> RedisLink:
        name = f"culver-observer-{self._server}"
        return RedisLink(self._url, on_pushes, access=self._access, name=name)

    def _address_of(self, server: int) -> str | None:
        if server == self._server:
            return self._url
        return next((each.url for each in self._ring.servers if each.number == server), None)


def _carry_out(instruction: Instruction) -> None:
    if isinstance(instruction, Warn):
        logger.warning("%s", instruction.text)


async def _run_until_stopped(process: DispatcherProcess, parent: int) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(process.run())
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    watcher = asyncio.ensure_future(_wait_for_orphanhood(parent))
    watcher.add_done_callback(lambda _: task.cancel())
    try:
        await task
    except asyncio.CancelledError:
        pass
    finally:
        watcher.cancel()


async def _wait_for_orphanhood(parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110  the system tells nobody
        await asyncio.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="culver-dispatcher")
    parser.add_argument("--server", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="the process that this one ends with")
    parser.add_argument("--url", required=True)
    parser.add_argument("--username")
    for name in ("ca", "cert", "key"):
        parser.add_argument(f"--tls-{name}", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s dispatcher: %(message)s")
    secret = bytes.fromhex(sys.stdin.readline().strip())
    password = sys.stdin.readline().strip() or None
    files = TlsFiles(options.tls_ca, options.tls_cert, options.tls_key)
    try:
        access = ServerAccess.with_files(options.username, password, files)
    except InvalidConfiguration as error:
        # The service has used these files; they have changed since.
        sys.exit(error.message)
    process = DispatcherProcess(options.server, options.url, secret, access)
    asyncio.run(_run_until_stopped(process, options.parent))


if __name__ == "__main__":
    main()
