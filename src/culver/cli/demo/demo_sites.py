"""Sites that a demo starts: real ones, each a process of its own, in a temporary directory."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import httpx

from culver.errors import Unavailable

_POLL_SECONDS = 0.05
_STOP_SECONDS = 20.0
_OUTPUT_TAIL = 2_000  # characters


class DemoSite:
    """One site. `options` are those of `culver serve`."""

    def __init__(self, name: str, engine: str, directory: Path, port: int, options: Sequence[str]) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self._output = directory / f"{name}.txt"
        self._command = [sys.executable, "-m", "culver.cli.demo.attended_site", "serve", "--engine", engine]
        self._command += ["--port", str(port), "--data-dir", str(directory / name), *options]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        # Settings of the caller's own site are none of the demo's; the log level may stay.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CULVER_") or name == "CULVER_LOG_LEVEL"
        }
        with self._output.open("wb") as output:
            # In a session of its own: Ctrl-C is for the demo, which stops its sites. The pipe tells a site that the
            # demo was killed.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    def ending(self) -> Unavailable:
        """The error for a site that ended by itself."""
        text = self._output.read_text(encoding="utf-8", errors="replace")[-_OUTPUT_TAIL:].strip()
        return Unavailable(
            f"site {self.name} ended with code {self.process.returncode}; its last words:\n{text}"
        )

    def doing(self) -> str:
        """What the site said last of its start."""
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1].partition(" [")[0] if lines else "starting"

    def interrupt(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    async def gone(self) -> None:
        """Return when the process is gone, which is killed if it takes too long."""
        if self._process is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class DemoSites:
    """Runs sites between entry and exit. They all start at once; `wait_until_ready` waits for them."""

    def __init__(self, sites: Iterable[DemoSite]) -> None:
        self.sites = list(sites)

    async def __aenter__(self) -> "DemoSites":
        try:
            for site in self.sites:
                await site.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def wait_until_ready(self, progress: Callable[[str], None]) -> None:
        """Raises Unavailable if one ends before it is ready."""
        waiting, told = list(self.sites), ""
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as http:
            while waiting:
                self.check()
                done = f"{len(self.sites) - len(waiting)} of {len(self.sites)} sites are ready"
                news = f"{done}; {waiting[0].name}: {waiting[0].doing()}"
                if news != told:
                    told = news
                    progress(told)
                waiting = [site for site in waiting if not await _is_ready(http, site)]
                await asyncio.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raises Unavailable if a site has ended by itself."""
        for site in self.sites:
            if site.has_ended:
                raise site.ending()

    async def _stop(self) -> None:
        for site in self.sites:
            site.interrupt()
        stopping = asyncio.gather(*(site.gone() for site in self.sites))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping  # whoever removes their data must wait for them
            raise


async def _is_ready(http: httpx.AsyncClient, site: DemoSite) -> bool:
    try:
        return (await http.get(f"{site.url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
