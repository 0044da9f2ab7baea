"""A saved matcher on its way to the machines that match.

    driver's process                           every machine
      Matcher.save                               SPARK/culver-filters-UID/    0700
        culver-DIGEST.filters  ---- Spark, ---->   lock
                                    or HTTP        DIGEST        memory-mapped by all workers
                                                   DIGEST

SPARK is where Spark keeps the blocks of the executor: `spark.local.dir`, or a directory of the application. The
digest is that of the file, so it never changes and is written to a machine once, however many workers, executors
and jobs use it. Each package has a byte of the lock: a worker holds that byte while it writes the package, so that
others wait for this package only. Then it removes the files that were not opened for longest. A worker that has
opened a file keeps it when its name is removed.
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

from culver.errors import NotFound, StorageCorrupt, StorageError
from culver.matcher import Matcher

_LOCK = "lock"
_LOCK_DIGITS = 15  # an offset in a file has 63 bits
_KEPT_ON_MACHINE = 8
_KEPT_OPEN = 2

Fetch = Callable[[Path], object]
"""Writes a package to a path."""


class FilterPackage:
    """Filters in a file of this process, which goes with the last reference to the package: those of a matcher at
    this moment, or of the path of a saved one. `matcher` has what is in the file, whatever becomes of the original.

    Raises as `Matcher.open` and `Matcher.save` do."""

    def __init__(self, filters: Matcher | Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="culver-package-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        unnamed = folder / "saved"
        if isinstance(filters, Matcher):
            filters.save(unnamed)
        else:
            Matcher.open(filters).close()  # what is wrong is said of this path
            shutil.copyfile(filters, unnamed)
        self.digest = _digest_of(unnamed)
        self.path = unnamed.rename(folder / package_name(self.digest))
        self.matcher = Matcher.open(self.path)


def package_name(digest: str) -> str:
    """The name of the file. Spark unpacks one by itself whose name ends with .tar or .zip."""
    return f"culver-{digest}.filters"


class OpenMatchers:
    """The matchers that this process has open, at most two: a worker opens each once, and two queries that take turns
    in it do not close each other's."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Matcher] = OrderedDict()

    def get(self, digest: str, fetch: Fetch) -> Matcher:
        """The matcher of a package. `fetch` is called where this machine has not got it, or has a damaged file.
        Raises StorageError, and StorageCorrupt where what was fetched is damaged, too."""
        matcher = self._open.get(digest)
        if matcher is None:
            matcher = self._open[digest] = _open_or_fetch(digest, fetch)
            while len(self._open) > _KEPT_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(digest)
        return matcher


def _open_or_fetch(digest: str, fetch: Fetch) -> Matcher:
    directory = _machine_directory()
    path = directory / digest
    try:
        return _opened(path)
    except (NotFound, StorageCorrupt):
        pass
    with _locked(directory, digest):
        try:
            return _opened(path)  # another worker was first
        except (NotFound, StorageCorrupt):
            _install(digest, fetch, path)
            matcher = _opened(path)
    _remove_oldest(directory)
    return matcher


def _opened(path: Path) -> Matcher:
    matcher = Matcher.open(path)
    with contextlib.suppress(FileNotFoundError):  # its name has just been removed
        os.utime(path)
    return matcher


def _install(digest: str, fetch: Fetch, path: Path) -> None:
    unfinished = path.with_suffix(".new")
    try:
        fetch(unfinished)
        if _digest_of(unfinished) != digest:
            raise StorageCorrupt(f"the filters {digest} were altered on their way to {os.uname().nodename}")
        unfinished.rename(path)
    except OSError as exc:
        raise StorageError(f"cannot bring filters to {path}: {exc}") from exc
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_oldest(directory: Path) -> None:
    """Keep the files that were opened or written last. What a worker left that was killed while it wrote is one."""
    found: list[tuple[int, Path]] = []
    for path in {*directory.iterdir()} - {directory / _LOCK}:
        with contextlib.suppress(FileNotFoundError):  # another worker removes or renames it
            found.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(found)[:-_KEPT_ON_MACHINE]:
        path.unlink(missing_ok=True)


def _machine_directory() -> Path:
    # Spark tells its workers where the executor has its blocks.
    blocks = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    local = blocks.parent if blocks.name.startswith("blockmgr-") else Path(tempfile.gettempdir())
    directory = local / f"culver-filters-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if directory.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageError(f"{directory} is not a directory of this user alone; remove it")
    return directory


@contextlib.contextmanager
def _locked(directory: Path, digest: str) -> Iterator[None]:
    """Keep other processes out. Threads of one would not wait for each other, but a worker has only one."""
    with (directory / _LOCK).open("wb") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, int(digest[:_LOCK_DIGITS], 16))
        yield  # closing the file ends the lock


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
