"""The count of what a file or a directory holds, in a file beside it: `NAME-seal`.

    magic "CULVSEA1" | u64 count | u32 crc32      little-endian

Whoever has counted writes the seal once the change is on disk and before anybody hears of it. So a file that holds
less than its seal says has lost something. The write needs no sync of its own: the page cache survives the death of
the process. After a power cut the seal may be a second behind, but never ahead.
"""

import contextlib
import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_SEAL_RECORD = struct.Struct("<8sQI")
_MAGIC = b"CULVSEA1"
_CRC_BYTES = 4


class SealFile:
    """Counts the transactions of a database, or the events of a log. Its owner closes it."""

    def __init__(self, sealed: Path) -> None:
        self.path = seal_path(sealed)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._unsynced = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing, so that counts appear in the order of their transactions."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def write(self, count: int) -> None:
        record = _SEAL_RECORD.pack(_MAGIC, count, 0)[:-_CRC_BYTES]
        try:
            os.pwrite(self._descriptor, record + struct.pack("<I", zlib.crc32(record)), 0)
        except OSError as exc:
            # The change is on disk and counts. The seal proves less for the moment.
            logger.warning("cannot write %s: %s", self.path, exc)
        self._unsynced = True

    def sync(self) -> None:
        """Have the last count on disk."""
        if self._unsynced:
            self._unsynced = False
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sync()
        os.close(self._descriptor)


def seal_path(sealed: Path) -> Path:
    return sealed.with_name(f"{sealed.name}-seal")


def read_seal(sealed: Path) -> int | None:
    """The count in the seal file; None where there is none, or none that can be read."""
    path = seal_path(sealed)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) == _SEAL_RECORD.size:
        magic, count, crc = _SEAL_RECORD.unpack(data)
        if magic == _MAGIC and crc == zlib.crc32(data[:-_CRC_BYTES]):
            return int(count)
    logger.warning("%s is torn or altered: whether %s lacks its last changes is unknown", path, sealed)
    return None
