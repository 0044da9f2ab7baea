"""The locks of a data directory: one site at a time holds it, with its gateways.

    lock            held by the site
    lock.gateways   held, shared, by each further gateway for as long as it lives

A site that was killed may start again before its gateways have noticed. They have its ports and still write
acknowledgements, so the new site waits for them before it reads anything.
"""

import contextlib
import fcntl
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from culver.disk import make_directory
from culver.errors import Conflict, InvalidConfiguration

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 15.0
_LOOK_SECONDS = 0.02


@contextlib.contextmanager
def site_lock(data_dir: Path) -> Iterator[None]:
    """Hold the data directory for this process alone; a new one is for this user alone. Raises Conflict if another
    process has it."""
    try:
        make_directory(data_dir, 0o700)
        if data_dir.stat().st_mode & 0o077:
            logger.warning(
                "other users of this machine may look into the data directory %s; chmod 700 it, unless they should",
                data_dir,
            )
        lock = (data_dir / "lock").open("a")
    except OSError as exc:
        message = f"cannot use {data_dir} as data directory: {exc.strerror}"
        raise InvalidConfiguration(message, field="data_dir") from exc
    with lock:
        if not _try(lock, fcntl.LOCK_EX):
            text = f"another Culver is running on the data directory {data_dir}; stop it, or give --data-dir"
            raise Conflict(text, field="data_dir")
        _wait_for_gateways(data_dir)
        yield


@contextlib.contextmanager
def gateway_lock(data_dir: Path) -> Iterator[None]:
    """Hold the data directory as one of the further gateways of the site."""
    with (data_dir / "lock.gateways").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def _wait_for_gateways(data_dir: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with (data_dir / "lock.gateways").open("a") as lock:
        while not _try(lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise Conflict(
                    f"gateways of an earlier Culver are still running on the data directory {data_dir}; stop "
                    "the processes culver.assembly gateway",
                    field="data_dir",
                )
            time.sleep(_LOOK_SECONDS)


def _try(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
