"""Small messages from the driver and its workers to the site, as datagrams on a Unix socket.

They only save waiting: what counts is in files, and the engine looks there by itself if a message is lost.
"""

import contextlib
import json
import socket
from typing import Any


class SignalSender:
    """Never blocks and never fails: a message that cannot be sent is dropped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, kind: str, **members: Any) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps({"kind": kind, **members}).encode(), self._path)

    def close(self) -> None:
        self._socket.close()
