"""What every publication log does, whatever it is made of: the log itself, its readers and its committer."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from culver import plugins
from culver.errors import (
    InvalidConfiguration,
    NotFound,
    StorageCorrupt,
    StorageError,
    StorageFull,
    Unavailable,
)
from culver.log import FollowedLog, LogReader, PublicationLog, ReadableLog
from culver.model import Event
from support.logs import SMALL_SEGMENTS, Listener, batch, event, numbers

LOGS = {**plugins.LOGS, "memory": "support.memory_log:MemoryLog"}


@pytest.fixture(params=list(LOGS))
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(plugins, "LOGS", LOGS)
    return (tmp_path / "a log?").as_uri().replace("file", request.param, 1)


def open_log(address: str) -> PublicationLog:
    return plugins.open_log(address, SMALL_SEGMENTS)


@pytest.fixture
def log(address: str) -> Iterator[PublicationLog]:
    with closing(open_log(address)) as log:
        yield log


Readable = Callable[[PublicationLog], ReadableLog]


@pytest.fixture(params=["log", "followed"])
def readable(request: pytest.FixtureRequest) -> Readable:
    """A way to read a log: the log itself, or one that follows it through a reader."""
    ways: dict[str, Readable] = {
        "log": lambda log: log,
        "followed": lambda log: FollowedLog(plugins.open_reader(log.address), log.next_offset),
    }
    return ways[request.param]


# --- opening ------------------------------------------------------------------------------------------


def test_unknown_scheme_is_refused_with_the_known_ones() -> None:
    for refused in (lambda: open_log("tape:///dev/st0"), lambda: plugins.open_reader("tape:///dev/st0")):
        with pytest.raises(InvalidConfiguration, match="unknown log 'tape'; known: file"):
            refused()


def test_log_tells_the_address_that_opened_it(log: PublicationLog, address: str) -> None:
    assert log.address == address


def test_second_writer_is_refused_until_the_first_has_closed(address: str) -> None:
    first = open_log(address)
    with pytest.raises(StorageError):
        open_log(address)
    first.close()
    open_log(address).close()


# --- appending and trimming ---------------------------------------------------------------------------


def test_new_log_is_empty_and_starts_at_zero(log: PublicationLog) -> None:
    assert (log.first_offset, log.next_offset) == (0, 0)
    assert numbers(log, 0, 100) == []


def test_append_answers_with_the_offset_of_its_first_event(log: PublicationLog) -> None:
    assert log.append([batch(0, 3)]) == 0
    assert log.append([batch(3, 1), batch(4, 5)]) == 3
    assert log.next_offset == 9
    assert numbers(log, 0, 9) == list(range(9))


def test_appending_nothing_changes_nothing(log: PublicationLog) -> None:
    log.append([batch(0, 3)])
    assert log.append([]) == 3
    assert log.append([batch(0, 1).slice(0, 0)]) == 3
    assert log.next_offset == 3


def test_everything_is_there_after_reopening(address: str) -> None:
    with closing(open_log(address)) as log:
        for n in range(60):
            log.append([batch(n)])
    with closing(open_log(address)) as log:
        assert log.next_offset == 60
        assert log.append([batch(60)]) == 60
        assert numbers(log, 0, 61) == list(range(61))


def test_trimming_everything_keeps_offsets_going(address: str) -> None:
    with closing(open_log(address)) as log:
        for n in range(60):
            log.append([batch(n)])
        log.trim(10_000)
        assert log.next_offset == 60
        assert log.first_offset <= 60
    with closing(open_log(address)) as log:
        assert log.next_offset == 60
        assert log.append([batch(60)]) == 60


def test_first_offset_survives_reopening(address: str) -> None:
    with closing(open_log(address)) as log:
        for n in range(60):
            log.append([batch(n)])
        log.trim(40)
        first = log.first_offset
    with closing(open_log(address)) as log:
        assert log.first_offset == first > 0


def test_closed_log_refuses_to_append(log: PublicationLog) -> None:
    log.close()
    with pytest.raises(StorageError, match="closed"):
        log.append([batch(0)])
    log.close()


def test_paused_log_refuses_events_as_on_a_full_disk_until_it_goes_on(log: PublicationLog) -> None:
    log.append([batch(0)])
    log.pause("there is no room")
    with pytest.raises(StorageFull, match="there is no room"):
        log.append([batch(1)])

    async def publish() -> None:
        async with log.committer(Listener(), lambda: 0) as committer:
            with pytest.raises(StorageFull, match="there is no room"):
                await committer.publish([event(1)])
            log.pause(None)
            assert (await committer.publish([event(1)])).first_offset == 1

    asyncio.run(publish())
    assert numbers(log, 0, 2) == [0, 1]
    assert log.refusal is None


# --- reading, in the log itself and in one that follows it --------------------------------------------


def test_any_range_is_cut_exactly(log: PublicationLog, readable: Readable) -> None:
    for start in range(0, 30, 3):
        log.append([batch(start, 1), batch(start + 1, 2)])
    reading = readable(log)
    for start in range(31):
        for end in range(start, 31):
            assert numbers(reading, start, end) == list(range(start, end))


def test_reading_ends_early_where_the_log_ends(log: PublicationLog, readable: Readable) -> None:
    log.append([batch(0, 3)])
    reading = readable(log)
    assert numbers(reading, 1, 1000) == [1, 2]
    assert numbers(reading, 3, 1000) == []
    assert numbers(reading, 500, 1000) == []


def test_batches_come_back_as_they_were(log: PublicationLog, readable: Readable) -> None:
    original = batch(0, 7, received_us=12_345)
    log.append([original])
    ((_, again),) = readable(log).read(0, 7)
    assert again.equals(original)


def test_trimming_keeps_everything_from_the_given_offset_on(log: PublicationLog, readable: Readable) -> None:
    for n in range(60):
        log.append([batch(n)])
    log.trim(30)
    reading = readable(log)
    assert 0 < reading.first_offset <= 30
    assert numbers(reading, reading.first_offset, 60) == list(range(reading.first_offset, 60))
    with pytest.raises(NotFound):
        list(reading.read(reading.first_offset - 1, 60))


def test_offset_at_finds_the_first_event_received_at_or_after_a_time(
    log: PublicationLog, readable: Readable
) -> None:
    for n in range(0, 120, 2):
        log.append([batch(n, 2, received_us=1000 + 10 * n)])
    reading = readable(log)
    assert reading.offset_at(0) == 0
    for n in range(0, 120, 2):
        assert reading.offset_at(1000 + 10 * n) == n
        assert reading.offset_at(1000 + 10 * n + 1) == n + 2
    assert reading.offset_at(10**15) == reading.next_offset == 120


def test_offset_at_copes_with_a_clock_that_was_set_back(log: PublicationLog, readable: Readable) -> None:
    for n, received_us in enumerate([100, 200, 150, 120, 300] + [290] * 40):
        log.append([batch(n, received_us=received_us)])
    reading = readable(log)
    assert reading.offset_at(150) == 1
    assert reading.offset_at(201) == 4
    assert reading.offset_at(301) == reading.next_offset


def test_offset_at_is_the_same_after_reopening_and_trimming(address: str, readable: Readable) -> None:
    with closing(open_log(address)) as log:
        for n in range(120):
            log.append([batch(n, received_us=10 * n)])
        log.trim(60)
    with closing(open_log(address)) as log:
        reading = readable(log)
        assert reading.offset_at(0) == reading.first_offset
        assert [reading.offset_at(10 * n) for n in range(60, 120)] == list(range(60, 120))


def test_readers_in_other_threads_see_whole_prefixes_while_it_grows(log: PublicationLog) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def follow() -> None:
        try:
            offset = 0
            while not done.is_set() or offset < log.next_offset:
                end = log.next_offset
                assert numbers(log, offset, end) == list(range(offset, end))
                offset = end
                done.wait(0.001)  # lets the writer have the GIL
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(0, 150, 3):
        log.append([batch(n, 3)])
    done.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_followed_log_ends_where_it_was_told_and_never_goes_back(log: PublicationLog) -> None:
    log.append([batch(n) for n in range(10)])
    followed = FollowedLog(plugins.open_reader(log.address), 4)
    assert (followed.next_offset, numbers(followed, 0, 10)) == (4, [0, 1, 2, 3])
    followed.extend(7)
    followed.extend(5)
    assert (followed.next_offset, numbers(followed, 0, 10)) == (7, list(range(7)))
    assert followed.offset_at(10**15) == 7


# --- readers ------------------------------------------------------------------------------------------


@pytest.fixture
def reader(log: PublicationLog) -> LogReader:
    """Opened by address, while the log is empty."""
    return plugins.open_reader(log.address)


def test_reader_follows_what_is_appended_after_it_was_opened(log: PublicationLog, reader: LogReader) -> None:
    for n in range(0, 60, 2):
        log.append([batch(n, 2)])
        assert numbers(reader, n, n + 2) == [n, n + 1]
    assert numbers(reader, 0, 60) == list(range(60))
    assert numbers(reader, 7, 7) == []


def test_reader_refuses_to_come_short_of_what_was_promised(log: PublicationLog, reader: LogReader) -> None:
    log.append([batch(0, 3)])
    with pytest.raises(StorageCorrupt):
        list(reader.read(0, 4))


def test_reader_tells_what_is_trimmed(log: PublicationLog, reader: LogReader) -> None:
    for n in range(60):
        log.append([batch(n)])
    assert reader.first_offset == 0
    log.trim(40)
    assert reader.first_offset == log.first_offset > 0
    with pytest.raises(NotFound):
        list(reader.read(0, 60))


def test_reader_finds_a_time_below_the_end_that_it_is_given(log: PublicationLog, reader: LogReader) -> None:
    for n in range(30):
        log.append([batch(n, received_us=10 * n)])
    assert reader.offset_at(155, 30) == 16
    assert reader.offset_at(155, 10) == 10
    assert reader.offset_at(10**15, 30) == 30


# --- the committer ------------------------------------------------------------------------------------


def test_published_events_are_readable_at_the_offsets_of_the_answer(log: PublicationLog) -> None:
    async def main() -> None:
        async with log.committer(Listener(), lambda: 1_000) as committer:
            assert await committer.publish([event(0), event(1)]) == (0, 2)
            assert numbers(log, 0, 2) == [0, 1]
            assert await committer.publish([event(2)]) == (2, 3)
            assert await committer.publish([]) == (3, 3)
        ((_, found),) = log.read(2, 3)
        assert found.column("received_us").to_pylist() == [1_000]

    asyncio.run(main())


def test_publications_get_offsets_in_the_order_in_which_they_come(log: PublicationLog) -> None:
    async def main() -> None:
        async with log.committer(Listener(), lambda: 0) as committer:
            answers = [committer.publish([event(n), event(n + 1)]) for n in range(0, 400, 2)]
            assert committer.pending_events == 400
            assert await asyncio.gather(*answers) == [(n, n + 2) for n in range(0, 400, 2)]
            assert committer.pending_events == 0
        assert numbers(log, 0, 400) == list(range(400))

    asyncio.run(main())


def test_listeners_hear_of_every_commit_on_the_loop_before_its_publisher_does(log: PublicationLog) -> None:
    begun: list[tuple[int, int]] = []
    told: list[tuple[int, list[object], int]] = []

    def committing(first: int, batches: Sequence[pa.RecordBatch]) -> None:
        begun.append((first, sum(each.num_rows for each in batches)))

    def committed(first: int, events: Sequence[Event]) -> None:
        told.append((first, [each.data["n"] for each in events], threading.get_ident()))

    async def main() -> None:
        async with log.committer(Listener(committed, committing), lambda: 0) as committer:
            for n in range(0, 10, 2):
                await committer.publish([event(n), event(n + 1)])
                assert told[-1] == (n, [n, n + 1], threading.get_ident())
                assert begun[-1] in ((n, 2), (n, 0))
        assert [first for first, _, _ in told] == [first for first, _ in begun] == [0, 2, 4, 6, 8]

    asyncio.run(main())


def test_publication_cancelled_before_its_commit_is_withdrawn(log: PublicationLog) -> None:
    async def main() -> None:
        async with log.committer(Listener(), lambda: 0) as committer:
            first, second, third = (committer.publish([event(n)]) for n in range(3))
            second.cancel()
            assert (await first, await third) == ((0, 1), (1, 2))
        assert numbers(log, 0, 10) == [0, 2]

    asyncio.run(main())


def test_refused_publication_leaves_nothing_in_the_log(log: PublicationLog) -> None:
    async def main() -> None:
        async with log.committer(Listener(), lambda: 0) as committer:
            await committer.publish([event(0)])
            log.close()
            with pytest.raises(StorageError):
                await committer.publish([event(1)])
            assert (log.next_offset, committer.pending_events) == (1, 0)

    asyncio.run(main())


def test_closing_commits_what_was_published_and_refuses_more(log: PublicationLog) -> None:
    async def main() -> None:
        committer = log.committer(Listener(), lambda: 0)
        with pytest.raises(Unavailable):
            committer.publish([event(0)])
        async with committer:
            answers = [committer.publish([event(n)]) for n in range(50)]
            await committer.close()
            with pytest.raises(Unavailable):
                committer.publish([event(99)])
        assert [await answer for answer in answers] == [(n, n + 1) for n in range(50)]
        assert numbers(log, 0, 100) == list(range(50))

    asyncio.run(main())
