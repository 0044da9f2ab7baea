"""What a person sees while a site starts, and the lines to try it out with once it runs."""

import itertools
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO
from urllib.parse import urlsplit

from culver.client import DEFAULT_URL, VARIABLE

_FRAME_SECONDS = 0.1
_CLEAR_LINE = "\r\x1b[K"


class Startup:
    """Progress on standard error: on a terminal one line that is repainted, elsewhere a line a message.

    After `finish`, messages are plain lines. Leaving the context stops the painting, whatever happened.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._message = ""
        self._done = threading.Event()
        self._painter: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._painter = threading.Thread(target=self._paint, name="culver-spinner", daemon=True)
            self._painter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def progress(self, message: str) -> None:
        """Say what is going on now. Callable from any thread."""
        with self._lock:
            self._message = message
            if self._painter is None or self._done.is_set():
                self._write(f"{message} [{self._elapsed():.1f} s]\n")

    def finish(self) -> float:
        """No more painting; returns the seconds since the start."""
        elapsed = self._elapsed()
        if not self._done.is_set():
            self._done.set()
            if self._painter is not None:
                self._painter.join()
                with self._lock:
                    self._write(_CLEAR_LINE)
        return elapsed

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _paint(self) -> None:
        for frame in itertools.cycle("|/-\\"):
            with self._lock:
                if self._message:
                    self._write(f"{_CLEAR_LINE}{frame} {self._message} [{self._elapsed():.1f} s]")
            if self._done.wait(_FRAME_SECONDS):
                return

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # A closed terminal must not end the site.
            return


def try_out_lines(url: str, command: str, environment: Mapping[str, str]) -> list[str]:
    """What follows "Culver is ready": a line that subscribes and one that publishes, as they must be pasted."""
    reachable = _reachable(url)
    assumed = environment.get(VARIABLE) or DEFAULT_URL
    option = "" if reachable == DEFAULT_URL == assumed else f" --url {shlex.quote(reachable)}"
    return [
        "",
        "Paste this into a second terminal to subscribe:",
        f'  {command} sub "price > 20"{option}',
        "and this into a third one to publish:",
        f"""  {command} pub '{{"symbol": "XYZ", "price": 21.5}}'{option}""",
        "",
        f"The HTTP interface is described on {reachable}/docs. Ctrl-C stops the site.",
    ]


def invocation(arguments: list[str] | None = None, directory: Path | None = None) -> str:
    """How to call this very program from a shell in this directory: `culver` where that finds it."""
    program = Path((sys.argv if arguments is None else arguments)[0])
    here = Path.cwd() if directory is None else directory
    if program.name == "__main__.py":
        return f"{_shortest(Path(sys.executable), here)} -m culver"
    if not program.is_absolute() and program.parent == Path():
        return shlex.quote(str(program))
    found = shutil.which(program.name)
    if found is not None and Path(found).absolute() == program.absolute():
        return shlex.quote(program.name)
    return _shortest(program, here)


def _shortest(path: Path, here: Path) -> str:
    """Relative to the directory where the file lies in it, absolute otherwise. Symbolic links stay: a
    virtual environment's interpreter is one."""
    absolute = Path(os.path.abspath(here / path))
    return shlex.quote(str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute))


def _reachable(url: str) -> str:
    """An address to connect to: "any address of this machine" is only one to listen on."""
    parts = urlsplit(url)
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(parts.hostname or "")
    return url.rstrip("/") if host is None else f"{parts.scheme}://{host}:{parts.port}"
