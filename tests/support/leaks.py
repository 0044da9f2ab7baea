"""What a test leaves behind: threads, child processes and open files."""

import contextlib
import gc
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.01
_PROCESS = Path("/proc/self")


class Holdings(NamedTuple):
    """What this process holds beside its memory. Only Linux tells of children and files."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    files: frozenset[tuple[int, str]]
    """Descriptors, and what each of them leads to."""

    @classmethod
    def now(cls) -> "Holdings":
        return cls(frozenset(threading.enumerate()), _children(), _files())

    def since(self, before: "Holdings") -> "Holdings":
        return Holdings(
            self.threads - before.threads, self.children - before.children, self.files - before.files
        )


def left_since(before: Holdings) -> Holdings:
    """What there is now and was not there before. Whatever is about to end gets some seconds to do so."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(left := Holdings.now().since(before)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(_PAUSE_SECONDS)
    return left


def _children() -> frozenset[int]:
    """Children that run. One that has ended and that nobody has waited for is gone with the next that is started."""
    found: set[int] = set()
    for task in _PROCESS.glob("task/*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, task.read_text().split()))
    return frozenset(child for child in found if _runs(child))


def _runs(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _files() -> frozenset[tuple[int, str]]:
    """All but what libraries keep from their first use on: files of their own, and a pipe with both ends in this
    process, by which Arrow and uvloop hear of signals."""
    found: set[tuple[int, str]] = set()
    for name in os.listdir(_PROCESS / "fd") if _PROCESS.exists() else []:
        try:
            found.add((int(name), os.readlink(_PROCESS / "fd" / name)))
        except OSError:  # the directory itself, open while it was read
            continue
    ends = Counter(target for _, target in found)
    return frozenset(
        (number, target)
        for number, target in found
        if not target.startswith(sys.prefix) and not (target.startswith("pipe:") and ends[target] == 2)
    )
