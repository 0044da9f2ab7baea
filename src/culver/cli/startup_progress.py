"""What a person sees while a site or a cluster starts: one line that is repainted, or a line for each step."""

import contextlib
import itertools
import sys
import threading
import time
from typing import Self, TextIO

_FRAME_SECONDS = 0.1
_CLEAR_LINE = "\r\x1b[K"


class StartupProgress:
    """Shows progress on standard error: on a terminal it repaints one line, elsewhere it prints a line a message.

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

    def __exit__(self, *_: object) -> None:
        self.finish()

    def progress(self, message: str) -> None:
        """Show what is going on now. May be called from any thread."""
        with self._lock:
            self._message = message
            if self._painter is None or self._done.is_set():
                self._write(f"{message} [{self._elapsed():.1f} s]\n")

    def finish(self) -> float:
        """Stop painting; returns the seconds since the start."""
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
        # A closed terminal must not end the site.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
