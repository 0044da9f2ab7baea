"""A saved matcher on its way to the machines that match.

    driver's process                           every machine
      Matcher.save                               /tmp/culver-filters-UID/      0700
        culver-DIGEST.filters  ---- Spark, ---->   lock
                                    or HTTP        DIGEST        memory-mapped by all workers
                                                   DIGEST

The digest is that of the file, so it never changes and is written to a machine once, however many workers, executors
and jobs use it. Whoever writes a file there holds the lock exclusively, and removes the files that were not opened
for longest. Whoever opens one shares the lock. A worker that has opened a file keeps it when its name is removed.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from culver.errors import StorageCorrupt, StorageError
from culver.matcher import Matcher

_LOCK = "lock"
_UNFINISHED = ".new"
_KEPT_ON_MACHINE = 8
_KEPT_OPEN = 2

Fetch = Callable[[Path], object]
"""Writes a package to a path."""


class FilterPackage:
    """A matcher, saved to a file of this process, which goes with the last reference to the package. `saved` may name
    a file that the matcher was opened from, unchanged since: it is copied."""

    def __init__(self, matcher: Matcher, saved: Path | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="culver-package-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.matcher = matcher
        unnamed = folder / "saved"
        if saved is None:
            matcher.save(unnamed)
        else:
            shutil.copyfile(saved, unnamed)
        self.digest = _digest_of(unnamed)
        self.path = unnamed.rename(folder / package_name(self.digest))


def package_name(digest: str) -> str:
    """The name of the file. Spark unpacks one by itself whose name ends with .tar or .zip."""
    return f"culver-{digest}.filters"


class OpenMatchers:
    """The matchers that this process has open, at most two: a worker opens each once, and two queries that take turns
    in it do not close each other's."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Matcher] = OrderedDict()

    def get(self, digest: str, fetch: Fetch) -> Matcher:
        """The matcher of a package. `fetch` is called where this machine has not got it. Raises StorageError."""
        matcher = self._open.get(digest)
        if matcher is None:
            with on_this_machine(digest, fetch) as path:
                matcher = self._open[digest] = Matcher.open(path)
            while len(self._open) > _KEPT_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(digest)
        return matcher


@contextlib.contextmanager
def on_this_machine(digest: str, fetch: Fetch, directory: Path | None = None) -> Iterator[Path]:
    """The file of a package, whose name is not removed inside of the context. Raises StorageError."""
    directory = directory or _machine_directory()
    path = directory / digest
    with _locked(directory, fcntl.LOCK_SH):
        if path.exists():
            os.utime(path)
            yield path
            return
    with _locked(directory, fcntl.LOCK_EX):
        if not path.exists():  # another worker may have been first
            _install(digest, fetch, path)
            _remove_oldest(directory)
        yield path


def _install(digest: str, fetch: Fetch, path: Path) -> None:
    unfinished = path.with_suffix(_UNFINISHED)
    fetch(unfinished)
    if _digest_of(unfinished) != digest:
        raise StorageCorrupt(f"the filters {digest} were altered on their way to {os.uname().nodename}")
    unfinished.rename(path)
    os.utime(path)


def _remove_oldest(directory: Path) -> None:
    """Keep the files that were opened last. What a worker left that was killed while it wrote goes, too: nobody else
    writes now."""
    unfinished = {*directory.glob(f"*{_UNFINISHED}")}
    finished = {*directory.iterdir()} - unfinished - {directory / _LOCK}
    oldest = sorted(finished, key=lambda path: path.stat().st_mtime_ns)[:-_KEPT_ON_MACHINE]
    for path in (*unfinished, *oldest):
        path.unlink(missing_ok=True)


def _machine_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"culver-filters-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if directory.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageError(f"{directory} is not a directory of this user alone; remove it")
    return directory


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    with (directory / _LOCK).open("wb") as lock:
        fcntl.flock(lock, how)
        yield  # closing the file ends the lock


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
