"""How far numbered publications hold back the log, and what a disk that refuses changes."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from culver.config import LogSettings, PublishingSettings
from culver.errors import Conflict, Unavailable
from culver.log import CommitReceipt, Committer, MemoryContent, PublicationMemory, PublishersFile
from culver.log.files.file_log import FileLog
from culver.model.event import Event
from culver.roles import PublicationNumbers
from culver.site.roles.site_publications import SitePublications
from support.gateway import run
from support.until import settled

SECOND_US = 1_000_000


class Deaf:
    """A CommitObserver."""

    def committing(self, first_offset: int, batches: Sequence[pa.RecordBatch]) -> None: ...

    def committed(self, first_offset: int, events: Sequence[Event]) -> None: ...


class FailingFile(PublishersFile):
    """Fails to be written so many times."""

    def __init__(self, path: Path, code: int, times: int) -> None:
        super().__init__(path)
        self.code = code
        self.times = times

    def write(self, content: MemoryContent) -> None:
        if self.times:
            self.times -= 1
            raise OSError(self.code, os.strerror(self.code))
        super().write(content)


@asynccontextmanager
async def opened(tmp_path: Path, file: PublishersFile, **settings: int) -> AsyncIterator[SitePublications]:
    log_settings = LogSettings(**settings)
    with FileLog(tmp_path / "log", log_settings) as log:
        memory = file.recover(log, PublishingSettings())
        async with log.committer(Deaf(), lambda: time.time_ns() // 1000) as committer:
            yield SitePublications(log, committer, memory, file, log_settings)


def events(count: int) -> list[Event]:
    return [Event({}, {"n": n}, b'{"n": %d}' % n) for n in range(count)]


async def publish(publications: SitePublications, first: int, count: int) -> None:
    await publications.publish_once(events(count), PublicationNumbers("p", range(first, first + count)))


def test_log_is_kept_from_where_the_file_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, PublishersFile(tmp_path / "publishers")) as publications:
            await publications.publish(events(5))
            assert publications.needed_from() == 5
            await publish(publications, 0, 3)
            await publications.publish(events(2))
            assert publications.needed_from() == 0
            await publications.keep_house(100 * SECOND_US)
            assert publications.needed_from() == 10
            await publish(publications, 3, 1)
            await publications.keep_house(105 * SECOND_US)
            assert publications.needed_from() == 10
            await publications.keep_house(111 * SECOND_US)
            assert publications.needed_from() == 11
        assert PublishersFile(tmp_path / "publishers")._read().position == 11

    run(scenario())


def test_full_disk_does_not_hold_back_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        file = FailingFile(tmp_path / "publishers", errno.ENOSPC, times=2)
        async with opened(tmp_path, file) as publications:
            await publish(publications, 0, 3)
            assert publications.needed_from() == 0
            await publications.keep_house(100 * SECOND_US)
            assert publications.needed_from() == 3
            assert "No space left" in caplog.text
            await publish(publications, 0, 4)
            assert publications.needed_from() == 4
            await publications.keep_house(111 * SECOND_US)
            assert file.position == 4

    run(scenario())


def test_log_is_kept_while_the_file_cannot_be_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = FailingFile(tmp_path / "publishers", errno.EIO, times=3)
        async with opened(tmp_path, file) as publications:
            await publish(publications, 0, 3)
            await publications.keep_house(100 * SECOND_US)
            await publications.keep_house(111 * SECOND_US)
            assert publications.needed_from() == 0
            await publications.keep_house(122 * SECOND_US)
            assert (file.times, publications.needed_from()) == (0, 3)

    run(scenario())


def test_write_that_failed_at_the_start_is_made_up_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, PublishersFile(tmp_path / "publishers")) as publications:
            await publish(publications, 0, 3)
        file = FailingFile(tmp_path / "publishers", errno.ENOSPC, times=1)
        async with opened(tmp_path, file) as publications:
            assert "cannot be written, and is tried again: No space left" in caplog.text
            await publications.publish(events(2))
            assert publications.needed_from() == 0
            await publications.keep_house(100 * SECOND_US)
            assert (file.position, publications.needed_from()) == (5, 5)
        assert PublishersFile(tmp_path / "publishers")._read().position == 5

    run(scenario())


def test_file_that_claims_what_the_log_does_not_have_must_be_replaced(tmp_path: Path) -> None:
    memory = PublicationMemory(PublishingSettings())
    memory.remember("p", 0, 2, 0)
    PublishersFile(tmp_path / "publishers").write(memory.content(2))
    with FileLog(tmp_path / "log", LogSettings()) as log:
        file = FailingFile(tmp_path / "publishers", errno.ENOSPC, times=1)
        with pytest.raises(OSError, match="No space left"):
            file.recover(log, PublishingSettings())
        file.recover(log, PublishingSettings())
    assert PublishersFile(tmp_path / "publishers")._read() == MemoryContent()


class HeldCommitter:
    """A committer that answers when the test says so."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[CommitReceipt]] = []

    def publish(self, events: Sequence[Event]) -> asyncio.Future[CommitReceipt]:
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


def test_publications_whose_callers_have_gone_are_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        file, held = PublishersFile(tmp_path / "publishers"), HeldCommitter()
        settings = LogSettings(max_pending_events=10)
        with FileLog(tmp_path / "log", settings) as log:
            memory = file.recover(log, PublishingSettings())
            publications = SitePublications(log, cast(Committer, held), memory, file, settings)
            for first in (0, 5, 10):
                given_up = asyncio.ensure_future(publish(publications, first, 5))
                await settled(lambda: len(held.answers))
                given_up.cancel()
                await asyncio.gather(given_up, return_exceptions=True)
            assert len(held.answers) == 3
            with pytest.raises(Unavailable, match="wait for the disk"):
                await publish(publications, 15, 1)
            repeat = asyncio.ensure_future(publications.publish_once(events(1), PublicationNumbers("p", [5])))
            await settled(lambda: repeat.done())
            assert not repeat.done()
            for number, answer in enumerate(held.answers):
                answer.set_result(CommitReceipt(5 * number, 5 * number + 5))
            assert await repeat == [(5, 6, True)]
            last = asyncio.ensure_future(publish(publications, 15, 1))
            await settled(lambda: len(held.answers))
            held.answers[-1].set_result(CommitReceipt(15, 16))
            await last

    run(scenario())


def publication(first: int, *texts: bytes) -> tuple[list[Event], PublicationNumbers]:
    numbers = PublicationNumbers("p", range(first, first + len(texts)))
    return [Event({}, {}, text) for text in texts], numbers


def test_what_is_stored_during_a_comparison_is_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, PublishersFile(tmp_path / "publishers")) as publications:
            compare, comparing, may_go_on = publications._compare, threading.Event(), threading.Event()

            def slow(*args: Any) -> None:
                comparing.set()
                assert may_go_on.wait(10)
                compare(*args)

            await publications.publish_once(*publication(0, b"a"))
            monkeypatch.setattr(publications, "_compare", slow)
            repeats = [
                publications.publish_once(*publication(0, b"a", b"b")),
                publications.publish_once(*publication(0, b"a", b"c")),
            ]
            await asyncio.to_thread(comparing.wait, 10)
            assert await publications.publish_once(*publication(1, b"b")) == [(1, 2, False)]
            may_go_on.set()
            assert await repeats[0] == [(0, 2, True)]
            with pytest.raises(Conflict, match="another event under sequence 1"):
                await repeats[1]

    run(scenario())


def test_repeat_is_compared_with_what_the_log_still_has_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = PublishersFile(tmp_path / "publishers")
        async with opened(tmp_path, file, segment_bytes=4096) as publications:
            log = publications._log
            texts = [b"%1000d" % n for n in range(20)]
            for n, text in enumerate(texts):
                await publications.publish_once(*publication(n, text))
            log.trim(15)
            assert 0 < log.first_offset < 18
            assert await publications.publish_once(*publication(0, *texts)) == [(0, 20, True)]
            texts[18] = b"another"
            with pytest.raises(Conflict, match="another event under sequence 18"):
                await publications.publish_once(*publication(0, *texts))

    run(scenario())
