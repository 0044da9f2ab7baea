"""The embedded log against a disk that fails, fills up, or is shared."""

import errno
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from culver.errors import NotFound, StorageError, StorageFull
from culver.log.files import FileLog, FileLogReader
from support.logs import ONE_SEGMENT, SMALL_SEGMENTS, batch, last_segment, numbers


def test_one_append_costs_one_fdatasync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    really = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        calls.append(descriptor)
        really(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        for n in range(0, 50, 10):
            log.append([batch(n + i) for i in range(10)])
    assert len(calls) == 5


@pytest.mark.slow(seconds=5)
def test_what_is_kept_in_memory_is_what_the_files_hold(tmp_path: Path) -> None:
    rng = random.Random(5)
    reader = None
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for _ in range(150):
            first = log.next_offset
            sizes = [rng.randrange(1, 5) for _ in range(rng.choice([1, 1, 2, 70]))]
            starts = itertools.accumulate(sizes, initial=first)
            log.append([batch(start, size) for start, size in zip(starts, sizes, strict=False)])
            reader = reader or FileLogReader(tmp_path)
            for start in (first, rng.randrange(log.next_offset), max(0, first - rng.randrange(40))):
                end = rng.randrange(start, log.next_offset + 1)
                expected = list(range(start, end))
                assert numbers(log, start, end) == numbers(reader, start, end) == expected


def test_new_segment_is_durable_under_its_name_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        really(descriptor)

    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        monkeypatch.setattr(os, "fsync", fsync)
        before = set(tmp_path.glob("*.log"))
        while set(tmp_path.glob("*.log")) == before:
            log.append([batch(log.next_offset)])
    assert synced == [last_segment(tmp_path).name, tmp_path.name]


def test_group_is_not_spread_over_segments(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        log.append([batch(0)])
        log.append([batch(n) for n in range(1, 101)])
        log.append([batch(101)])
        assert sorted(int(path.stem) for path in tmp_path.glob("*.log")) == [0, 1, 101]
        assert numbers(log, 0, 102) == list(range(102))


def test_failed_fdatasync_hides_its_events_and_refuses_appends_until_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = FileLog(tmp_path, ONE_SEGMENT)
    log.append([batch(0, 3)])
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match="opens the log again"):
            log.append([batch(3, 2)])
    with pytest.raises(StorageError, match="fdatasync failed"):
        log.append([batch(3, 2)])
    assert log.next_offset == 3
    assert numbers(log, 0, 100) == [0, 1, 2]
    log.close()
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        assert numbers(log, 0, 100) == [0, 1, 2]
        assert log.append([batch(3)]) == 3


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_disk_full_in_the_middle_of_a_write_leaves_the_log_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    really = os.pwrite

    def half(descriptor: int, data: memoryview, position: int) -> int:
        if len(data) < 100:
            raise OSError(code, os.strerror(code))
        return really(descriptor, data[: len(data) // 2], position)

    with FileLog(tmp_path, ONE_SEGMENT) as log:
        log.append([batch(0, 3)])
        size = last_segment(tmp_path).stat().st_size
        with monkeypatch.context() as full:
            full.setattr(os, "pwrite", half)
            with pytest.raises(StorageFull):
                log.append([batch(3, 2)])
        assert last_segment(tmp_path).stat().st_size == size
        assert log.append([batch(3)]) == 3
        assert numbers(log, 0, 100) == [0, 1, 2, 3]


def test_disk_full_when_a_segment_is_started_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        log.append([batch(0, 3)])
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", fail)
            with pytest.raises(StorageFull):
                log.append([batch(n) for n in range(3, 103)])
        assert [path.stem for path in tmp_path.glob("*.log")] == [f"{0:020d}"]
        assert log.append([batch(n) for n in range(3, 103)]) == 3
        assert numbers(log, 0, 1000) == list(range(103))


def test_failed_write_that_cannot_be_taken_back_refuses_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with FileLog(tmp_path, ONE_SEGMENT) as log:
        log.append([batch(0)])
        with monkeypatch.context() as broken:
            broken.setattr(os, "pwrite", fail)
            broken.setattr(os, "ftruncate", fail)
            with pytest.raises(StorageError):
                log.append([batch(1)])
        with pytest.raises(StorageError, match="could not be taken back"):
            log.append([batch(1)])
        assert numbers(log, 0, 10) == [0]


_FILL = """
import resource, signal, sys
from pathlib import Path
from culver.config import LogSettings
from culver.errors import StorageFull
from culver.log.files import FileLog
from support.logs import batch, numbers

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
directory, limit = Path(sys.argv[1]), int(sys.argv[2])
log = FileLog(directory, LogSettings())
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
refused = 0
while refused < 3:
    at = log.next_offset
    try:
        assert log.append([batch(at, 2), batch(at + 2, 1)]) == at
    except StorageFull:
        assert log.next_offset == at
        refused += 1
assert numbers(log, 0, 10**6) == list(range(log.next_offset))
full_at = log.next_offset
if sys.argv[3] == "go on":
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert log.append([batch(full_at, 5)]) == full_at
print(full_at, log.next_offset, flush=True)
import os
os._exit(0)
"""


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("then", ["go on", "die"])
@pytest.mark.parametrize("limit", [20_000, 20_001, 20_777, 21_500])
def test_full_disk_loses_nothing_acknowledged_and_shows_nothing_else(
    tmp_path: Path, limit: int, then: str
) -> None:
    """The limit on the size of files is met in the middle of some record, and the process is not closed."""
    output = run(_FILL, str(tmp_path), str(limit), then)
    full_at, acknowledged = map(int, output.split())
    assert full_at > 10
    assert acknowledged == full_at + (5 if then == "go on" else 0)
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        assert log.next_offset == acknowledged
        assert numbers(log, 0, 10**6) == list(range(acknowledged))


_APPEND = """
import sys
from pathlib import Path
from culver.config import LogSettings
from culver.log.files import FileLog
from support.logs import batch

log = FileLog(Path(sys.argv[1]), LogSettings(segment_bytes=30_000))
while True:
    at = log.next_offset
    log.append([batch(at + i) for i in range(at % 3 + 1)])
    print(log.next_offset, flush=True)
"""


@pytest.mark.slow(seconds=3)
def test_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for round_ in range(5):
        with start(_APPEND, str(tmp_path)) as process:
            assert process.stdout is not None
            for _ in range(20 + 17 * round_):
                acknowledged = int(process.stdout.readline())
            process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    acknowledged = int(line)
        with FileLog(tmp_path, ONE_SEGMENT) as log:
            assert log.next_offset >= acknowledged
            assert numbers(log, 0, 10**6) == list(range(log.next_offset))


_FOLLOW = """
import sys
from pathlib import Path
from culver.log.files import FileLogReader
from support.logs import numbers

reader = FileLogReader(Path(sys.argv[1]))
for line in sys.stdin:
    start, end = map(int, line.split())
    assert numbers(reader, start, end) == list(range(start, end)), (start, end)
    print(reader.first_offset, flush=True)
"""


def test_reader_in_another_process_follows_appends_new_segments_and_trims(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log, start(_FOLLOW, str(tmp_path)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        offset = 0
        for round_ in range(60):
            log.append([batch(log.next_offset + i) for i in range(round_ % 4 + 1)])
            if round_ % 2:
                process.stdin.write(f"{offset} {log.next_offset}\n")
                process.stdin.flush()
                assert int(process.stdout.readline()) == log.first_offset
                offset = log.next_offset
                log.trim(offset - 20)
        assert log.first_offset > 50
        process.stdin.close()
        assert process.wait(30) == 0


def test_reader_goes_on_where_it_stopped_without_reading_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        log.append([batch(n, padding=10_000) for n in range(200)])
        reader = FileLogReader(tmp_path)
        numbers(reader, 0, 200)
        read = 0
        really = os.pread

        def pread(descriptor: int, count: int, position: int) -> bytes:
            nonlocal read
            data = really(descriptor, count, position)
            read += len(data)
            return data

        monkeypatch.setattr(os, "pread", pread)
        for n in range(200, 210):
            log.append([batch(n)])
            assert numbers(reader, n, n + 1) == [n]
        assert read < 10 * 1_000
        assert numbers(reader, 100, 101) == [100]
        assert read < 10 * 1_000 + 1024 * 1024 + 100_000


def test_reader_tells_what_is_trimmed(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for n in range(40):
            log.append([batch(n)])
        reader = FileLogReader(tmp_path)
        assert numbers(reader, 0, 40) == list(range(40))
        log.trim(30)
        assert reader.first_offset == log.first_offset
        with pytest.raises(NotFound):
            list(reader.read(0, 40))
        with pytest.raises(NotFound):
            list(FileLogReader(tmp_path).read(0, 40))
        assert numbers(reader, log.first_offset, 40) == list(range(log.first_offset, 40))


def test_reader_refuses_to_come_short_of_what_was_promised(tmp_path: Path) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        log.append([batch(0, 3)])
        with pytest.raises(StorageError, match="ends at offset 3, and the events from offset 3 up to 4"):
            list(FileLogReader(tmp_path).read(0, 4))


def test_reader_of_a_directory_without_a_log_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no log segments"):
        FileLogReader(tmp_path).read(0, 1)
    with pytest.raises(StorageError, match="missing"):
        FileLogReader(tmp_path / "missing").read(0, 1)


def start(script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
    )


def run(script: str, *arguments: str) -> str:
    with start(script, *arguments) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output
