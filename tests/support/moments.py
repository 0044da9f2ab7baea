"""Killing a process at the very moment when a file appears (Linux's inotify)."""

import contextlib
import ctypes
import os
import select
import signal
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

CREATED = 0x100
RENAMED_FROM, RENAMED_TO = 0x40, 0x80
_EVENT = struct.Struct("iIII")


class Strike:
    """While the context is open: the first time that something happens in a directory for which `victim` names a
    process, that process is killed. `victim` gets what happened and the file's name; it returns a number, or None to
    wait for the next. It runs on a thread of its own and must be quick."""

    def __init__(self, directory: Path, victim: Callable[[int, str], int | None]) -> None:
        self._victim = victim
        self._struck = threading.Event()
        self._error: BaseException | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_CLOEXEC)
        mask = CREATED | RENAMED_FROM | RENAMED_TO
        if self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), mask) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {directory}")
        self._waker, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="strike", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._wake, b"x")
        self._thread.join()
        for descriptor in (self._descriptor, self._waker, self._wake):
            os.close(descriptor)
        if self._error is not None:
            raise self._error

    @property
    def struck(self) -> bool:
        return self._struck.is_set() or self._error is not None

    def _run(self) -> None:
        try:
            while True:
                if self._waker in select.select([self._descriptor, self._waker], [], [])[0]:
                    return
                if self._strike(os.read(self._descriptor, 65_536)):
                    self._struck.set()
                    return
        except BaseException as exc:
            self._error = exc

    def _strike(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            name = data[at - length : at].rstrip(b"\0").decode()
            pid = self._victim(mask, name)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return True
        return False
