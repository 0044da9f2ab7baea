"""Machines that share a disk and a network: network namespaces of this machine, joined by a bridge. Needs root.

    switch      bridge0 ---------------------------------------
                 |              |              |              |
    hosts       head .1        site .2        one .3         ...      each with one address, 198.18.x.y

The names and addresses are those of one test, so that several tests may run at once. The bridge is in a namespace of
its own, and the namespace of the machine itself gets no link, address or route. Files are the same everywhere, except
that a host sees nothing in the directories that are `hidden` from it.
"""

import contextlib
import ctypes
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_CLONE_NEWNET = 0x40000000
# For measurements of networks (RFC 2544): nobody routes it.
_NETWORK = "198.18"


class NetworkHosts:
    """A context manager; at its end no namespace is left, and no process may run in one any more."""

    def __init__(self, *names: str) -> None:
        self._prefix = f"culver-{secrets.token_hex(3)}"
        self._subnet = f"{_NETWORK}.{secrets.randbelow(256)}"
        self._numbers = {name: number for number, name in enumerate(names, 1)}

    @staticmethod
    def missing() -> str | None:
        """What this machine lacks."""
        if shutil.which("ip") is None:
            return "there is no `ip` (iproute2)"
        tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
        return f"no network namespaces: {tried.stderr.decode().strip()}" if tried.returncode else None

    def __enter__(self) -> Self:
        try:
            self._make("switch")
            self._ip("switch", "link", "add", "bridge0", "type", "bridge")
            self._ip("switch", "link", "set", "bridge0", "up")
            for name in self._numbers:
                self._make(name)
                self._ip(
                    "switch", "link", "add", f"to-{name}", "type", "veth",
                    "peer", "name", "eth0", "netns", self._namespace(name),
                )  # fmt: skip
                self._ip("switch", "link", "set", f"to-{name}", "master", "bridge0", "up")
                self._ip(name, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
                self._ip(name, "link", "set", "eth0", "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, name: str) -> str:
        return f"{self._subnet}.{self._numbers[name]}"

    def on(self, name: str, *hidden: Path) -> list[str]:
        """What goes before a command to run it on a host. The process that it starts is the command itself."""
        hide = "".join(f"mount -t tmpfs none '{directory}' && " for directory in hidden)
        return ["ip", "netns", "exec", self._namespace(name), "sh", "-c", f'{hide}exec "$@"', "sh"]

    def run(self, name: str, command: Sequence[str], *hidden: Path) -> str:
        """Run a command on a host to its end; returns what it printed."""
        done = subprocess.run(
            [*self.on(name, *hidden), *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def listening(self, name: str) -> set[str]:
        """The addresses on which anything on the host accepts connections."""
        places = [line.split()[3] for line in self.run(name, ["ss", "-Htln"]).splitlines()]
        return {place.rpartition(":")[0].strip("[]").removeprefix("::ffff:") for place in places}

    def cut(self, name: str) -> None:
        """The host's cable is pulled: whoever sends to it or waits for it hears nothing."""
        self._ip("switch", "link", "set", f"to-{name}", "down")

    def restore(self, name: str) -> None:
        self._ip("switch", "link", "set", f"to-{name}", "up")

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """This thread, and those and the processes that it starts, are on the host."""
        there = Path("/run/netns", self._namespace(name))
        with Path("/proc/thread-self/ns/net").open("rb") as before, there.open("rb") as namespace:
            _enter(namespace.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _make(self, name: str) -> None:
        _run("ip", "netns", "add", self._namespace(name))
        self._ip(name, "link", "set", "lo", "up")

    def _ip(self, name: str, *arguments: str) -> None:
        _run("ip", "-netns", self._namespace(name), *arguments)

    def _remove(self) -> None:
        for name in ("switch", *self._numbers):
            if Path("/run/netns", self._namespace(name)).exists():
                _run("ip", "netns", "delete", self._namespace(name))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
