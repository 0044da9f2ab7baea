"""How far this site's log is in the logs of the other sites, as a file beside the log: `overlay/received.json`.

    5e0f1c22 {"position": 4100, "positions": {"lyon~01..": 512}, "boot": 17..., "gaps": [...], "gap_count": 1,
              "promised": {"lyon~01..": 480}, "floors": {"bonn": 4000}, "identity": "9f..", "given_anew": 3900,
              "addresses": {"lyon~01..": ["127.0.0.1:7402"]}}

The CRC-32 of what follows comes first; files of before have none.

The log is the truth: every event of another site carries its origin. The file saves reading all of the log at the
start: below `position` of the log, `positions` have everything, and from there on the log is read. The log must not
be trimmed above the stored position before the next file is on disk.

A site that was found on an older copy of its data directory has an `identity` here, which takes the place of the
registry's in its key: it has given offsets from `given_anew` on twice under its old key.

The `addresses` of other sites are those that gossip has told: a site that finds none of its peers dials them.
"""

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from culver.disk import make_directory, write_whole
from culver.log import ReadableLog, read_intact
from culver.model.columns import from_elsewhere, origins

logger = logging.getLogger(__name__)

_MOST_GAPS = 100
# A run of the site counts versions and windows from its boot on, and not so many.
_MOST_COUNTED = 1 << 32


class ReceivedGap(msgspec.Struct, frozen=True):
    """Events of an origin with offsets in `[start, end)` may be missing; `at` is in seconds since the epoch."""

    origin: str
    start: int
    end: int
    reason: str
    at: float


class _Content(msgspec.Struct):
    position: int = 0
    positions: dict[str, int] = {}
    boot: int = 0
    gaps: list[ReceivedGap] = []
    gap_count: int = 0
    promised: dict[str, int] = {}
    floors: dict[str, int] = {}
    identity: str = ""
    given_anew: int | None = None
    addresses: dict[str, tuple[str, ...]] = {}


class ReceivedFile:
    """Its owner calls `recover` once, before anything else, and `store` one call at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        """The log must keep everything from here on."""
        self.boot = 0
        self.promised: dict[str, int] = {}
        """`OverlayNode.promised_ends`: its owner keeps them up to date, as the floors."""
        self.floors: dict[str, int] = {}
        self.identity = b""
        """Empty where that of the registry counts."""
        self.given_anew: int | None = None
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.gaps: deque[ReceivedGap] = deque(maxlen=_MOST_GAPS)
        self.gap_count = 0
        self._stored: bytes = b""

    def recover(self, log: ReadableLog, now_us: int) -> dict[str, int]:
        """The positions that the log has reached. Also sets `boot`, which is above that of every earlier run.
        Blocks. Raises StorageCorrupt.

        Where the log is damaged, it cannot tell what it had of other sites: what they have sent last, and this site
        has not acknowledged, comes again."""
        make_directory(self.path.parent)
        content = self._read()
        self.gaps.extend(content.gaps)
        self.gap_count = content.gap_count
        self.promised, self.floors = content.promised, content.floors
        self.identity, self.given_anew = bytes.fromhex(content.identity), content.given_anew
        self.addresses = content.addresses
        # A clock that went back must not lead to numbers that the last run counted up to. Otherwise the clock counts:
        # two runs that begin with the same copy of the file must have different numbers.
        self.boot = now_us if now_us > content.boot else content.boot + _MOST_COUNTED
        positions = dict(content.positions)
        start = max(content.position, log.first_offset)
        for _, batch in read_intact(log, start, log.next_offset):
            _advance(positions, batch)
        self._write(log.next_offset, positions)
        return positions

    def renew(self, identity: bytes, given_anew: int) -> None:
        """Have a new identity on disk for the next `recover`. The floors are of no use to it. Blocks; raises
        OSError."""
        content = self._read()
        if content.given_anew is not None:
            given_anew = min(given_anew, content.given_anew)
        content.identity, content.given_anew, content.floors = identity.hex(), given_anew, {}
        write_whole(self.path, [_with_checksum(msgspec.json.encode(content))], durable=True)

    def add_gap(self, origin: str, start: int, end: int, reason: str) -> None:
        self.gaps.append(ReceivedGap(origin, start, end, reason, time.time()))
        self.gap_count += 1

    async def store(self, position: int, positions: Mapping[str, int]) -> None:
        """Have it on disk that `positions` hold everything below `position` of the log. Raises OSError."""
        await asyncio.to_thread(self._write, position, dict(positions))

    def _read(self) -> _Content:
        try:
            data = self.path.read_bytes()
            text = data[data.find(b"{") :]
            if not data.startswith(b"{") and data != _with_checksum(text):
                raise msgspec.DecodeError("it fails its checksum")
            return msgspec.json.decode(text, type=_Content)
        except FileNotFoundError:
            return _Content()
        except msgspec.MsgspecError as exc:
            logger.warning("%s cannot be read (%s): the whole log is searched instead", self.path, exc)
            return _Content()

    def _write(self, position: int, positions: dict[str, int]) -> None:
        content = _Content(
            position,
            positions,
            self.boot,
            list(self.gaps),
            self.gap_count,
            self.promised,
            self.floors,
            self.identity.hex(),
            self.given_anew,
            self.addresses,
        )
        text = msgspec.json.encode(content)
        if text != self._stored:
            write_whole(self.path, [_with_checksum(text)], durable=True)
            self._stored, self.position = text, position


def _advance(positions: dict[str, int], batch: pa.RecordBatch) -> None:
    """Take note of the events of other sites in a batch."""
    if from_elsewhere(batch) is None:
        return
    for site, offset in zip(*origins(batch), strict=True):
        if site is not None and offset is not None:
            positions[site] = max(positions.get(site, 0), offset + 1)


def _with_checksum(text: bytes) -> bytes:
    return b"%08x %s" % (zlib.crc32(text), text)
