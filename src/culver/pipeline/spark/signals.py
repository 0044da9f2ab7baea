"""How the site and the processes of Spark wake each other: datagrams to the site, and a watch on the head file.

Both only save waiting: what counts is in files, and whoever waits looks there by itself if a signal is lost.
"""

import contextlib
import ctypes
import json
import os
import select
import socket
import time
from pathlib import Path
from typing import Any

_IN_MODIFY = 0x02
_POLL_SECONDS = 0.004


class SignalSender:
    """Sends to the site's Unix socket. Never blocks and never fails: a message that cannot be sent is dropped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, kind: str, **members: Any) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps({"kind": kind, **members}).encode(), self._path)

    def close(self) -> None:
        self._socket.close()


class FileWatch:
    """Wakes up when a process of this machine writes to the file (Linux's inotify); where the system has no watch to
    give, after some milliseconds. For one thread."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None)
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watches = libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY) >= 0

    def wait(self, timeout_seconds: float) -> None:
        """Return when something was written since the last call, or after the timeout; it may return early."""
        if not self._watches:
            time.sleep(min(timeout_seconds, _POLL_SECONDS))
        elif select.select([self._descriptor], [], [], timeout_seconds)[0]:
            os.read(self._descriptor, 65536)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
