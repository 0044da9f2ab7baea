"""The file `publishers`: what a site remembers of numbered publications, so that a start need not read the whole log.

    "CULVPUB1" | u32 crc32 | MemoryContent as MessagePack        little-endian

The log is the truth: every numbered event carries its number. The file has everything below `position` of the log,
and from there on the log is read. So the log must not be trimmed above the position of the file while there are
numbered events behind it.
"""

import logging
import zlib
from pathlib import Path

import msgspec

from culver.config import PublishingSettings
from culver.disk import write_whole
from culver.log.numbers.publication_memory import MemoryContent, PublicationMemory
from culver.log.publication_log import ReadableLog, read_intact
from culver.model.columns import numbered_runs

_MAGIC = b"CULVPUB1"
_HEAD_BYTES = 12

_logger = logging.getLogger(__name__)


class PublishersFile:
    """Its owner calls `recover` once, before anything else, and `write` one call at a time. Both block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.position = 0
        """The file has everything below, and perhaps nothing of what is behind."""

    def recover(self, log: ReadableLog, settings: PublishingSettings) -> PublicationMemory:
        """The memory of an earlier run, which is in the file afterwards if the disk takes it: `position` says so.
        Raises OSError, and StorageCorrupt where the end of the log is damaged."""
        content = self._read()
        memory = PublicationMemory(settings, content)
        is_ahead = content.position > log.next_offset
        if is_ahead:
            _logger.warning(
                "%s is ahead of the log, which ends at offset %d: it was copied at another time",
                self._path,
                log.next_offset,
            )
            memory.drop_from(log.next_offset)
        start = max(min(content.position, log.next_offset), log.first_offset)
        for first, batch in read_intact(log, start, log.next_offset):
            for run in numbered_runs(batch):
                memory.remember(run.publisher, run.first, run.end, first + run.row)
        self.position = start
        try:
            self.write(memory.content(log.next_offset))
        except OSError as exc:
            if is_ahead:  # it claims offsets that new events will get
                raise
            _logger.warning("%s cannot be written, and is tried again: %s", self._path, exc.strerror or exc)
        return memory

    def write(self, content: MemoryContent) -> None:
        """Have it on disk. Raises OSError."""
        data = msgspec.msgpack.encode(content)
        write_whole(self._path, [_MAGIC, zlib.crc32(data).to_bytes(4, "little"), data], durable=True)
        self.position = content.position

    def _read(self) -> MemoryContent:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return MemoryContent()
        body = data[_HEAD_BYTES:]
        try:
            if data[:8] != _MAGIC or int.from_bytes(data[8:_HEAD_BYTES], "little") != zlib.crc32(body):
                raise msgspec.DecodeError("it fails its checksum")
            return msgspec.msgpack.decode(body, type=MemoryContent)
        except msgspec.MsgspecError as exc:
            _logger.warning(
                "%s cannot be read (%s): publications that are sent again are recognised only where the log still "
                "has the first ones",
                self._path,
                exc,
            )
            return MemoryContent()
