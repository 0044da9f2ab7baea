"""The head: how far the pipeline may go, and with which index.

The site steers its engine by the head alone. `HeadTracker` (pure) computes it; `HeadFile` carries it from the Spark
engine to its driver and workers.

A registration takes effect from a log position `since`. The pipeline must not match an event at or behind
that position with an index that does not hold the registration, so the head stays at `since` until an index
version with it is published:

    log        0 ......................... 70 ........ 95     next offset 95
    head       log_end 70, index version 4                    registration of registry version 5 waits at 70
    indexed    log_end 95, index version 5

A compaction makes an index version too. It has the same changes, so only the index version moves.
"""

import os
import struct
import threading
import zlib
from pathlib import Path
from typing import NamedTuple, Self


class Head(NamedTuple):
    """Match below `log_end` with `index_version`, of so many slices; delivery has all below `frontier`."""

    log_end: int
    index_version: int
    frontier: int
    slices: int = 1


class HeadTracker:
    """Thread-safe: the registry's thread registers, and the event loop calls the rest. Neither `log_end` nor the
    index version ever goes back."""

    def __init__(self, log_end: int, index_version: int, frontier: int, slices: int = 1) -> None:
        self._lock = threading.Lock()
        self._log_end = log_end
        self._index_version = index_version
        self._frontier = frontier
        self._slices = slices
        # The positions of changes that no index version has yet, by registry version.
        self._waiting: dict[int, int] = {}

    @property
    def head(self) -> Head:
        with self._lock:
            log_end = min(self._log_end, *self._waiting.values()) if self._waiting else self._log_end
            return Head(log_end, self._index_version, self._frontier, self._slices)

    def committed(self, log_end: int) -> None:
        """Events below `log_end` are on disk."""
        with self._lock:
            self._log_end = max(self._log_end, log_end)

    def register(self, version: int, log_end: int) -> int:
        """A change is about to become `version`; returns the position from which it takes effect."""
        with self._lock:
            self._log_end = max(self._log_end, log_end)
            self._waiting[version] = self._log_end
            return self._log_end

    def withdraw(self, version: int) -> None:
        """The change did not happen after all."""
        with self._lock:
            self._waiting.pop(version, None)

    def indexed(self, version: int, index_version: int, slices: int) -> None:
        """Index version `index_version` is published, with all changes up to `version`; it has so many slices."""
        with self._lock:
            if index_version >= self._index_version:
                self._index_version, self._slices = index_version, slices
            self._waiting = {v: position for v, position in self._waiting.items() if v > version}

    def accepted(self, frontier: int) -> None:
        """Delivery has taken everything below `frontier`."""
        with self._lock:
            self._frontier = max(self._frontier, frontier)


_RECORD = struct.Struct("<8sqqqqI")
_CRC_BYTES = 4
_MAGIC = b"CULVHED2"


class HeadFile:
    """The head in a file of 44 bytes: magic, log end, index version, frontier, slices (int64), crc32.

    One process writes it, and any number of others read it at any rate. It need not be durable: every start computes
    the head anew.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> Self:
        return cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))

    @classmethod
    def open(cls, path: Path) -> Self:
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def write(self, head: Head) -> None:
        members = (_MAGIC, head.log_end, head.index_version, head.frontier, head.slices)
        crc = zlib.crc32(_RECORD.pack(*members, 0)[:-_CRC_BYTES])
        os.pwrite(self._descriptor, _RECORD.pack(*members, crc), 0)

    def read(self) -> Head | None:
        """The head, or None while there is none or it is being written this instant."""
        data = os.pread(self._descriptor, _RECORD.size, 0)
        if len(data) < _RECORD.size:
            return None
        magic, *members, crc = _RECORD.unpack(data)
        intact = magic == _MAGIC and crc == zlib.crc32(data[:-_CRC_BYTES])
        return Head(*members) if intact else None

    def close(self) -> None:
        os.close(self._descriptor)
