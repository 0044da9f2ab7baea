"""Waits until a file is written, without polling it."""

import ctypes
import os
import select
import time
from pathlib import Path

_IN_MODIFY = 0x02
_POLL_SECONDS = 0.004


class FileWatch:
    """Wakes up when a process of this machine writes to the file (Linux's inotify); where the system cannot tell,
    after some milliseconds. For one thread."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = None
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            return
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            return
        if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            os.close(descriptor)
            return
        self._descriptor = descriptor

    def wait(self, timeout_seconds: float) -> None:
        """Return when something was written since the last call, or after the timeout; it may return early."""
        if self._descriptor is None:
            time.sleep(min(timeout_seconds, _POLL_SECONDS))
        elif select.select([self._descriptor], [], [], timeout_seconds)[0]:
            os.read(self._descriptor, 65536)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
