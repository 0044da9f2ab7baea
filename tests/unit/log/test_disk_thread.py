"""The thread that writes without the GIL: what is on disk when it answers, and how it reports failures."""

import asyncio
import contextlib
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from culver.log.files.disk_thread import DiskThread, StagedWrite, WriteFailure


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[DiskThread]:
    disk = DiskThread()
    disk.start()
    try:
        yield disk
    finally:
        disk.close()


async def write(disk: DiskThread, path: str | Path, data: bytes, position: int = 0) -> WriteFailure | None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        answer: asyncio.Future[WriteFailure | None] = asyncio.get_running_loop().create_future()
        disk.write(StagedWrite(descriptor, position, data), answer.set_result)
        return await answer
    finally:
        os.close(descriptor)


def test_bytes_are_where_they_belong_when_it_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running() as disk:
            assert await write(disk, tmp_path / "file", b"abcdef") is None
            assert await write(disk, tmp_path / "file", b"XY", position=2) is None
            assert await write(disk, tmp_path / "file", b"", position=2) is None
            assert (tmp_path / "file").read_bytes() == b"abXYef"
            large = os.urandom(3_000_000)
            assert await write(disk, tmp_path / "large", large) is None
            assert (tmp_path / "large").read_bytes() == large

    asyncio.run(main())


@pytest.mark.parametrize(
    ("device", "syncing", "number"), [("/dev/full", False, errno.ENOSPC), ("/dev/null", True, errno.EINVAL)]
)
def test_failure_says_whether_it_was_writing_or_syncing(device: str, syncing: bool, number: int) -> None:
    async def main() -> None:
        async with running() as disk:
            failure = await write(disk, device, b"abc")
            assert failure is not None
            assert (failure.syncing, failure.error.errno) == (syncing, number)
            assert failure.error.strerror

    asyncio.run(main())


def test_it_goes_on_after_a_failure_and_after_signals(tmp_path: Path) -> None:
    async def main() -> None:
        async with running() as disk:
            assert await write(disk, "/dev/full", b"abc") is not None
            (thread,) = [each for each in threading.enumerate() if each.name == "culver-disk"]
            assert thread.ident is not None
            for number in range(20):
                signal.pthread_kill(thread.ident, signal.SIGUSR1)
                assert await write(disk, tmp_path / "file", b"%02d" % number, position=2 * number) is None
        assert (tmp_path / "file").read_bytes() == b"".join(b"%02d" % number for number in range(20))

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_second_write_at_the_same_time_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with running() as disk:
            first = asyncio.ensure_future(write(disk, tmp_path / "file", b"abc"))
            await asyncio.sleep(0)
            with pytest.raises(ValueError, match="one write at a time"):
                disk.write(StagedWrite(0, 0, b""), lambda failure: None)
            assert await first is None

    asyncio.run(main())


def test_closing_waits_for_the_write_and_leaves_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        before = set(os.listdir("/proc/self/fd"))
        disk = DiskThread()
        disk.close()
        disk.start()
        descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT, 0o600)
        disk.write(StagedWrite(descriptor, 0, b"x" * 1_000_000), lambda failure: None)
        disk.close()
        disk.close()
        os.close(descriptor)
        assert (tmp_path / "file").stat().st_size == 1_000_000
        assert "culver-disk" not in {thread.name for thread in threading.enumerate()}
        assert set(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())
