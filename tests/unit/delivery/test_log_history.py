"""Reading by offset, over logs on disk: small segments, damage, trimming, and filters against the reference."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from culver.delivery import HistoryPage, LogHistory
from culver.errors import Gone
from culver.log.files import FileLog
from culver.model.language.parser import parse
from support.logs import SMALL_SEGMENTS, batch, damage_record, last_segment, records_of
from support.memory_log import MemoryLog


def read(log: FileLog | MemoryLog, start: int, end: int, limit: int, text: str | None = None) -> HistoryPage:
    predicate = None if text is None else parse(text)
    return asyncio.run(LogHistory(log).read(start, end, limit, predicate))


def pick(log: FileLog | MemoryLog, *offsets: int) -> HistoryPage:
    return asyncio.run(LogHistory(log).pick(offsets))


def walked(log: FileLog | MemoryLog, start: int, end: int, limit: int, text: str | None) -> list[int]:
    found: list[int] = []
    while start < end:
        page = read(log, start, end, limit, text)
        assert len(page.offsets) <= limit
        assert page.events.column("d:i:n").to_pylist() == page.offsets.tolist() if len(page.offsets) else True
        assert page.next > start
        found += page.offsets.tolist()
        start = page.next
    return found


@pytest.fixture(scope="module")
def filled() -> Iterator[MemoryLog]:
    log = MemoryLog("memory://history")
    start = 0
    for count in (1, 5, 1, 30, 2, 2, 80, 1):
        log.append([batch(start, count)])
        start += count
    with closing(log):
        yield log


bounds = st.tuples(st.integers(0, 121), st.integers(0, 121)).map(sorted)


@settings(max_examples=60, deadline=None)
@given(bounds, st.integers(1, 40), st.integers(0, 130) | st.none())
def test_pages_together_are_what_matches(
    filled: MemoryLog, span: list[int], limit: int, above: int | None
) -> None:
    text = None if above is None else f"n > {above}"
    expected = [n for n in range(*span) if above is None or n > above]
    assert walked(filled, *span, limit, text) == expected


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 121), min_size=1).map(sorted))
def test_picked_events_are_those_that_were_asked_for(filled: MemoryLog, offsets: list[int]) -> None:
    page = pick(filled, *offsets)
    assert page.offsets.tolist() == page.events.column("d:i:n").to_pylist() == offsets
    assert page.next == offsets[-1] + 1


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[FileLog]:
    """Events 0 to 399 in records of ten, in several segments."""
    with closing(FileLog.open(tmp_path.as_uri(), SMALL_SEGMENTS)) as log:
        for start in range(0, 400, 10):
            log.append([batch(start, 10, received_us=start)])
        log._recent = ()
        yield log


def damage_last_segment(directory: Path) -> tuple[int, int]:
    """Spoil the second record of the last segment; returns the offsets of its events."""
    path = last_segment(directory)
    record = records_of(path)[1]
    damage_record(path, record, "body")
    return record.offset, record.end_offset


def test_damaged_events_are_told_and_passed_over(stored: FileLog, tmp_path: Path) -> None:
    start, end = damage_last_segment(tmp_path)
    page = read(stored, start - 5, 400, 1000)
    assert page.offsets.tolist() == list(range(start - 5, start))
    assert (page.lost, page.next) == ((start, end), end)
    page = read(stored, start + 3, 400, 1000)
    assert (page.offsets.tolist(), page.lost, page.next) == ([], (start + 3, end), end)
    assert read(stored, end, 400, 1000).offsets.tolist() == list(range(end, 400))


def test_damage_that_nobody_asked_for_does_not_matter_to_picked_events(
    stored: FileLog, tmp_path: Path
) -> None:
    start, end = damage_last_segment(tmp_path)
    page = pick(stored, start - 2, end + 1)
    assert (page.offsets.tolist(), page.lost) == ([start - 2, end + 1], None)
    page = pick(stored, start - 2, start + 4, end + 1)
    assert (page.offsets.tolist(), page.lost, page.next) == ([start - 2], (start + 4, end), end)


def test_trimmed_events_are_gone_and_the_first_one_is_named(stored: FileLog) -> None:
    stored.trim(200)
    first = stored.first_offset
    assert 0 < first <= 200
    with pytest.raises(Gone) as caught:
        read(stored, 0, 400, 10)
    assert (caught.value.field, caught.value.details["first_offset"]) == ("from", first)
    page = pick(stored, 0, 300)
    assert (page.offsets.tolist(), page.lost, page.next) == ([], (0, first), first)


def test_a_filter_that_nothing_matches_ends_a_page_early() -> None:
    from culver.delivery import log_history

    log = MemoryLog("memory://scanned")
    with closing(log), pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_history, "_SCANNED_EVENTS", 50)
        patch.setattr(log_history, "_CHUNK_EVENTS", 20)
        log.append([batch(0, 200)])
        page = read(log, 0, 200, 10, "n < 0")
        assert (page.offsets.tolist(), page.next) == ([], 60)
