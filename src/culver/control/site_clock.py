"""The clock by which a site judges ages and lifetimes. It follows the system's clock, but never jumps.

    system's clock     ----------.                      ,----------------   set ahead by days
                                 |                     /
    site's clock       ----------+--------------------'                     runs at double speed until they agree

An age limit of a week must not empty a mailbox because somebody set the clock ahead by a week. So the site's clock
counts the time that passes, which no setting changes: at double speed while it is behind the system's clock, and at
half speed while it is ahead. Whatever happens to the system's clock, an age or a lifetime ends after half to twice
its time.

A file keeps the time for the next start, which believes the system that up to an hour has passed since. The rest of a
longer pause, or of a step of the clock, is caught up with at double speed as well. Without the file, a start believes
the system.
"""

import contextlib
import logging
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from culver.disk import write_whole
from culver.process_setup import clock_us

logger = logging.getLogger(__name__)

_SECOND_US = 1_000_000
_BELIEVED_PAUSE_US = 3600 * _SECOND_US
_TOLERANCE_US = _SECOND_US
_WORTH_A_WARNING_US = 60 * _SECOND_US
_STORE_EVERY_US = 60 * _SECOND_US


def _elapsed_us() -> int:
    return time.monotonic_ns() // 1000


class _Course(NamedTuple):
    """The clock showed `now_us` when so much time had elapsed, and goes on from there at this speed."""

    now_us: int
    elapsed_us: int
    speed: float


class SiteClock:
    """Call `follow` about once a second, from one thread; any thread may call the other methods."""

    def __init__(
        self,
        now_us: int,
        system_us: Callable[[], int] = clock_us,
        elapsed_us: Callable[[], int] = _elapsed_us,
    ) -> None:
        self._system_us = system_us
        self._elapsed_us = elapsed_us
        self._course = _Course(now_us, elapsed_us(), 1.0)  # replaced as a whole
        self._warned = False
        self.follow()

    @classmethod
    def after(cls, last_us: int | None, system_us: Callable[[], int] = clock_us) -> Self:
        """A clock that goes on after an earlier run's last time."""
        now_us = system_us()
        if last_us is not None:
            now_us = min(max(now_us, last_us), last_us + _BELIEVED_PAUSE_US)
        return cls(now_us, system_us)

    def now_us(self) -> int:
        now_us, elapsed_us, speed = self._course
        return now_us + int((self._elapsed_us() - elapsed_us) * speed)

    def ahead_us(self) -> int:
        """Returns how far the clock is ahead of the system's, or 0 where they agree well enough."""
        ahead_us = self.now_us() - self._system_us()
        return ahead_us if abs(ahead_us) > 4 * _TOLERANCE_US else 0

    def follow(self) -> None:
        """Choose the speed anew."""
        now_us, elapsed_us = self.now_us(), self._elapsed_us()
        behind_us = self._system_us() - now_us
        speed = 2.0 if behind_us > _TOLERANCE_US else 0.5 if behind_us < -_TOLERANCE_US else 1.0
        self._course = _Course(now_us, elapsed_us, speed)
        if abs(behind_us) > _WORTH_A_WARNING_US and not self._warned:
            logger.warning(
                "the system's clock is %d s %s the site's: ages and lifetimes go on at %s speed until they agree",
                abs(behind_us) // _SECOND_US,
                "ahead of" if behind_us > 0 else "behind",
                "double" if behind_us > 0 else "half",
            )
        self._warned = abs(behind_us) > (_TOLERANCE_US if self._warned else _WORTH_A_WARNING_US)


class ClockFile:
    """Keeps the time of a site's clock for its next start. A lost file costs no more than the doubts of a start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stored_us = 0

    def read(self) -> int | None:
        try:
            text, checksum = self._path.read_text().split()
            if zlib.crc32(text.encode()) == int(checksum, 16):
                return int(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            pass
        logger.warning("%s cannot be read: this start believes the system's clock", self._path)
        return None

    def is_due(self, now_us: int) -> bool:
        return now_us - self._stored_us >= _STORE_EVERY_US

    def write(self, now_us: int) -> None:
        """Blocks. Does nothing where the disk refuses."""
        self._stored_us = now_us
        text = str(now_us).encode()
        with contextlib.suppress(OSError):
            write_whole(self._path, [b"%s %08x\n" % (text, zlib.crc32(text))], durable=False)
