"""Files that appear as a whole, and directories that keep their names through a power cut."""

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

_NEXT_TO_NOTHING_BYTES = 64 * 1024


def sync_directory(directory: Path) -> None:
    """Make names that were added to, changed in or removed from a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make a directory with a mode, and its missing parents, so that a power cut cannot take it away. That also holds
    for one that an earlier process made without living to sync it. Raises OSError."""
    missing = [directory]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        existed = each.is_dir()
        each.mkdir(mode if each is directory else 0o777, exist_ok=True)
        try:
            sync_directory(each.parent)
        except PermissionError:
            if not existed:  # else somebody else made it, in a directory that is not ours to read
                raise


def is_full(path: Path) -> bool:
    """Whether the disk that holds a file has next to no space left."""
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize < _NEXT_TO_NOTHING_BYTES


@contextlib.contextmanager
def whole_file(path: Path, *, durable: bool) -> Iterator[FileIO]:
    """A file to write, which appears at `path` when the context ends: a reader sees all of it or none, and what was
    there before is replaced. With `durable` that holds after a power cut too, and the file is on disk on return;
    without, a power cut may take it. After an OSError nothing is left but what was there before."""
    # Processes on two machines may write the same file at once and have the same id.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            yield file
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
        if durable:
            sync_directory(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_whole(path: Path, parts: Iterable[bytes | memoryview], *, durable: bool) -> None:
    """Write a file of these parts as `whole_file` has it."""
    with whole_file(path, durable=durable) as file:
        write_all(file, parts)


def write_all(file: FileIO, parts: Iterable[bytes | memoryview]) -> None:
    """Write all bytes of all parts, where the system takes fewer at once too."""
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[file.write(view) :]
