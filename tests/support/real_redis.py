"""A real Redis or Valkey server on a socket in a folder, and a client that does nothing but send and read."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import hiredis

_TOKENS = count()


@contextmanager
def running_server(program: Path, folder: Path, *options: str) -> Iterator[Path]:
    """Starts a server that keeps nothing on disk; yields the path of its socket."""
    path = folder / "server.sock"
    command = [
        program,
        "--port",
        "0",
        "--unixsocket",
        path,
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        folder,
    ]
    with subprocess.Popen([*map(str, command), *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "ready to accept connections" in line.lower():
                break
        else:
            raise AssertionError("the server has not started:\n" + "".join(lines))
        try:
            yield path
        finally:
            process.terminate()


class PlainConnection:
    """Sends commands and gives back whatever the server says, in the order in which it comes."""

    def __init__(self, path: Path, timeout_seconds: float = 10) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_seconds)
        self._socket.connect(str(path))
        self._reader = hiredis.Reader()

    def send(self, *commands: tuple[bytes, ...]) -> None:
        self._socket.sendall(b"".join(hiredis.pack_command(command) for command in commands))  # type: ignore[arg-type]

    def read(self) -> object:
        """The next reply or push, hiredis's objects as they are."""
        while (output := self._reader.gets()) is False:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._reader.feed(data)
        return output

    def exchange(self, *commands: tuple[bytes, ...]) -> list[object]:
        """Sends commands, and reads everything that comes up to their last reply or push."""
        token = b"token %d" % next(_TOKENS)
        self.send(*commands, (b"PING", token))
        return list(iter(self.read, token))

    def close(self) -> None:
        """Returns when the server has forgotten this connection. May be called again."""
        if self._socket.fileno() >= 0:
            self.send((b"QUIT",))
            while self._socket.recv(1 << 16):
                pass
            self._socket.close()
