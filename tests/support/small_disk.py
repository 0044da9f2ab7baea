"""A disk of a few mebibytes that can really be full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory, mounted at `path`. Skips the test where that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no command mount")
    except subprocess.CalledProcessError as exc:
        pytest.skip(f"a small file system cannot be mounted here: {exc.stderr.strip()}")
    try:
        yield path
    finally:
        # Lazily: a mapping of a file may live until the garbage collector comes by.
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=60)


def fill(path: Path) -> None:
    """Take all the space that is left, with a file of that name."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
