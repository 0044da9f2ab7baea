"""What every publication log does, whatever it is made of."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from culver.errors import NotFound, StorageError
from culver.log.file_log import FileLog
from support.logs import SMALL_SEGMENTS, batch, numbers

OpenLog = Callable[[], FileLog]


@pytest.fixture(params=["files"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    """Opens the same log each time."""
    implementations: dict[str, OpenLog] = {"files": lambda: FileLog(tmp_path / "log", SMALL_SEGMENTS)}
    return implementations[request.param]


@pytest.fixture
def log(open_log: OpenLog) -> Iterator[FileLog]:
    log = open_log()
    yield log
    log.close()


def test_new_log_is_empty_and_starts_at_zero(log: FileLog) -> None:
    assert (log.first_offset, log.next_offset) == (0, 0)
    assert numbers(log, 0, 100) == []


def test_append_answers_with_the_offset_of_its_first_event(log: FileLog) -> None:
    assert log.append(log.prepare([batch(0, 3)])) == 0
    assert log.append(log.prepare([batch(3, 1), batch(4, 5)])) == 3
    assert log.next_offset == 9
    assert numbers(log, 0, 9) == list(range(9))


def test_appending_nothing_changes_nothing(log: FileLog) -> None:
    log.append(log.prepare([batch(0, 3)]))
    assert log.append(log.prepare([])) == 3
    assert log.append(log.prepare([batch(0, 1).slice(0, 0)])) == 3
    assert log.next_offset == 3


def test_any_range_is_cut_exactly(log: FileLog) -> None:
    for start in range(0, 30, 3):
        log.append(log.prepare([batch(start, 1), batch(start + 1, 2)]))
    for start in range(31):
        for end in range(start, 31):
            assert numbers(log, start, end) == list(range(start, end))


def test_reading_ends_early_where_the_log_ends(log: FileLog) -> None:
    log.append(log.prepare([batch(0, 3)]))
    assert numbers(log, 1, 1000) == [1, 2]
    assert numbers(log, 3, 1000) == []
    assert numbers(log, 500, 1000) == []


def test_batches_come_back_as_they_were(log: FileLog) -> None:
    original = batch(0, 7, received_us=12_345)
    log.append(log.prepare([original]))
    ((_, again),) = log.read(0, 7)
    assert again.equals(original)


def test_everything_is_there_after_reopening(open_log: OpenLog) -> None:
    with open_log() as log:
        for n in range(60):
            log.append(log.prepare([batch(n)]))
    with open_log() as log:
        assert log.next_offset == 60
        assert log.append(log.prepare([batch(60)])) == 60
        assert numbers(log, 0, 61) == list(range(61))


def test_trimming_keeps_everything_from_the_given_offset_on(log: FileLog) -> None:
    for n in range(60):
        log.append(log.prepare([batch(n)]))
    size = log.bytes_on_disk
    log.trim(30)
    assert 0 < log.first_offset <= 30
    assert log.bytes_on_disk < size
    assert numbers(log, log.first_offset, 60) == list(range(log.first_offset, 60))
    with pytest.raises(NotFound):
        list(log.read(log.first_offset - 1, 60))


def test_trimming_everything_keeps_offsets_going(open_log: OpenLog) -> None:
    with open_log() as log:
        for n in range(60):
            log.append(log.prepare([batch(n)]))
        log.trim(10_000)
        assert log.next_offset == 60
        assert log.first_offset <= 60
    with open_log() as log:
        assert log.next_offset == 60
        assert log.append(log.prepare([batch(60)])) == 60


def test_first_offset_survives_reopening(open_log: OpenLog) -> None:
    with open_log() as log:
        for n in range(60):
            log.append(log.prepare([batch(n)]))
        log.trim(40)
        first = log.first_offset
    with open_log() as log:
        assert log.first_offset == first > 0


def test_offset_at_finds_the_first_event_received_at_or_after_a_time(log: FileLog) -> None:
    for n in range(0, 120, 2):
        log.append(log.prepare([batch(n, 2, received_us=1000 + 10 * n)]))
    assert log.offset_at(0) == 0
    for n in range(0, 120, 2):
        assert log.offset_at(1000 + 10 * n) == n
        assert log.offset_at(1000 + 10 * n + 1) == n + 2
    assert log.offset_at(10**15) == log.next_offset


def test_offset_at_copes_with_a_clock_that_was_set_back(log: FileLog) -> None:
    for n, received_us in enumerate([100, 200, 150, 120, 300] + [290] * 40):
        log.append(log.prepare([batch(n, received_us=received_us)]))
    assert log.offset_at(150) == 1
    assert log.offset_at(201) == 4
    assert log.offset_at(301) == log.next_offset


def test_offset_at_is_the_same_after_reopening_and_trimming(open_log: OpenLog) -> None:
    with open_log() as log:
        for n in range(120):
            log.append(log.prepare([batch(n, received_us=10 * n)]))
        log.trim(60)
    with open_log() as log:
        assert log.offset_at(0) == log.first_offset
        assert [log.offset_at(10 * n) for n in range(60, 120)] == list(range(60, 120))


def test_closed_log_refuses_to_append(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    with pytest.raises(StorageError, match="closed"):
        log.append(log.prepare([batch(0)]))
    log.close()


def test_readers_in_other_threads_see_whole_prefixes_while_it_grows(log: FileLog) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def follow() -> None:
        try:
            offset = 0
            while not done.is_set() or offset < log.next_offset:
                end = log.next_offset
                assert numbers(log, offset, end) == list(range(offset, end))
                offset = end
                done.wait(0.001)  # lets the writer have the interpreter
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(0, 150, 3):
        log.append(log.prepare([batch(n, 3)]))
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
