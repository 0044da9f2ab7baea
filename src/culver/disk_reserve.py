"""A reserve of disk space, so that a full disk can be emptied through the site.

Even work that frees space takes some first: an acknowledgement or a removal is written before what it lets go of is
deleted. The reserve is a file that takes up space for such work, and is given up when the work finds the disk full.
From then on nothing else may take the space: the site refuses publications and new subscriptions until it has freed
enough to make the file again.

    whole    the file has its size
    spent    the file is empty: the disk was full, and the space is used for freeing more
    none     there is no file: the disk had no room for it, or the size is 0
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

# The file stays behind a site that stops, unless the disk has room for so many of them.
_PLENTY = 16


class DiskReserve:
    """Its owner opens and closes it. Thread-safe; all methods block. `on_change` is called with `spent` whenever that
    changes, and before any space is given up."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._lock = threading.Lock()
        self.spent = False
        self.on_change: Callable[[bool], None] = lambda spent: None

    def open(self) -> None:
        """Make the reserve, and give it up at once where a start might lack the space otherwise."""
        self.spent = self._path.exists() and self._path.stat().st_size == 0
        if not self._size or not self._allocate():
            if not self.spent:
                self._path.unlink(missing_ok=True)
                if self._size:
                    logger.warning(
                        "the disk has no room for the reserve %s of %d bytes", self._path, self._size
                    )
            return
        self.spent = False
        if self._free_bytes() < self._size:
            self.give_up()

    def give_up(self) -> None:
        """Let work that frees space have the reserve. Does nothing where there is none left."""
        with self._lock:
            if self.spent or not self._path.exists():
                return
            self.spent = True
            self.on_change(True)
            logger.warning("the disk is full: giving up the reserve %s to free space", self._path)
            with self._path.open("r+b") as file:
                file.truncate(0)
                os.fsync(file.fileno())  # some file systems give the space back only then

    def restore(self) -> None:
        """Make the reserve again, if it is spent and the disk has room."""
        with self._lock:
            if self.spent and self._allocate():
                self.spent = False
                self.on_change(False)
                logger.warning("the disk has room again, also for the reserve %s", self._path)

    def close(self) -> None:
        if not self.spent and self._free_bytes() > _PLENTY * self._size:
            self._path.unlink(missing_ok=True)

    def _allocate(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        try:
            _take_space(descriptor, self._size)
        except OSError:
            os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True

    def _free_bytes(self) -> int:
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize


def _take_space(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(1 << 16)  # macOS has no such call
    for position in range(0, size, len(zeros)):
        os.pwrite(descriptor, zeros[: size - position], position)
