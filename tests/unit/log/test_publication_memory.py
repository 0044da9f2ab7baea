"""The memory of numbered publications says the same as a dictionary, and forgets without ever inviting a double."""

import inspect
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import culver
from culver.config import LogSettings, PublishingSettings
from culver.errors import Conflict
from culver.log.files.file_log import FileLog
from culver.log.numbers.publication_memory import MemoryContent, PublicationMemory
from culver.log.numbers.publishers_file import PublishersFile
from culver.model.columns import encode, numbered_runs
from culver.model.event import Event, Origin, PublicationNumber

SETTINGS = PublishingSettings(window_seconds=64, window_ranges=16, max_publishers=100)
# Nothing is too old: a publisher that has lost its ranges to another keeps its floor.
FEW = replace(SETTINGS, window_seconds=10_000, window_ranges=8, max_publishers=2)
WIDE = replace(SETTINGS, window_ranges=1000)

publications = st.lists(
    st.tuples(st.sampled_from("pqr"), st.integers(0, 60), st.integers(1, 12), st.integers(0, 3)), max_size=60
)


def event(sequence: int, publisher: str = "p") -> Event:
    return Event({}, {"a": sequence}, b"{}", number=PublicationNumber(publisher, sequence))


def offsets(memory: PublicationMemory, publisher: str, first: int, end: int) -> list[int | None]:
    """The offset of each sequence."""
    found: list[int | None] = []
    for part in memory.find(publisher, first, end):
        assert part.first == first + len(found)
        found += [None if part.offset is None else part.offset + at for at in range(part.end - part.first)]
    return found


def is_refused(memory: PublicationMemory, publisher: str, sequence: int) -> bool:
    try:
        memory.find(publisher, sequence, sequence + 1)
    except Conflict:
        return True
    return False


def publish(memory: PublicationMemory, publisher: str, first: int, end: int, offset: int) -> int:
    """Store what is new from an offset on, as the site does; returns the offset behind it."""
    for part in memory.find(publisher, first, end):
        if part.offset is None:
            memory.remember(publisher, part.first, part.end, offset)
            offset += part.end - part.first
    return offset


@given(publications)
def test_memory_says_what_a_dictionary_says(drawn: list[tuple[str, int, int, int]]) -> None:
    memory, stored, offset = PublicationMemory(WIDE), dict[tuple[str, int], int](), 0
    for publisher, first, count, others in drawn:
        fresh = [each for each in range(first, first + count) if (publisher, each) not in stored]
        for place, sequence in enumerate(fresh):
            stored[publisher, sequence] = offset + place
        assert publish(memory, publisher, first, first + count, offset) == offset + len(fresh)
        offset += len(fresh) + others
    for publisher in "pqr":
        assert offsets(memory, publisher, 0, 80) == [stored.get((publisher, each)) for each in range(80)]
    copy = PublicationMemory(WIDE, memory.content(offset))
    assert offsets(copy, "p", 0, 80) == offsets(memory, "p", 0, 80)
    assert len(copy) == len(memory)


@given(publications, st.integers(0, 200), st.sampled_from([SETTINGS, FEW]))
def test_what_was_stored_is_found_or_refused_whatever_is_forgotten(
    drawn: list[tuple[str, int, int, int]], step: int, settings: PublishingSettings
) -> None:
    memory, stored, offset = PublicationMemory(settings), dict[tuple[str, int], int](), 0
    for turn, (publisher, first, count, others) in enumerate(drawn):
        memory.pass_time(turn * step * 100_000, offset)
        for sequence in range(first, first + count):
            if is_refused(memory, publisher, sequence):
                continue
            (found,) = offsets(memory, publisher, sequence, sequence + 1)
            assert found == stored.get((publisher, sequence))
            if found is None:
                memory.remember(publisher, sequence, sequence + 1, offset)
                stored[publisher, sequence] = offset
                offset += 1
        offset += others
        assert len(memory) <= settings.window_ranges
    for (publisher, sequence), at in stored.items():
        if not is_refused(memory, publisher, sequence):
            assert offsets(memory, publisher, sequence, sequence + 1) == [at]


def test_consecutive_publications_share_a_range() -> None:
    memory = PublicationMemory(SETTINGS)
    memory.remember("p", 0, 10, 100)
    memory.remember("p", 20, 30, 120)
    memory.remember("p", 10, 20, 110)
    assert len(memory) == 1
    memory.remember("p", 30, 31, 131)
    assert len(memory) == 2
    assert offsets(memory, "p", 28, 33) == [128, 129, 131, None, None]


def test_window_ends_by_age() -> None:
    memory = PublicationMemory(SETTINGS)
    memory.pass_time(0, 0)
    memory.remember("p", 5, 10, 0)
    memory.pass_time(1_000_000, 5)
    memory.remember("p", 20, 21, 7)
    memory.pass_time(64_000_000, 8)
    assert offsets(memory, "p", 5, 6) == [0]
    memory.pass_time(65_000_000, 8)
    with pytest.raises(Conflict) as caught:
        memory.find("p", 9, 30)
    assert (caught.value.field, caught.value.details) == ("sequence", {"sequence": 9, "floor": 10})
    assert offsets(memory, "p", 10, 22) == [None] * 10 + [7, None]


def test_floor_of_a_publisher_outlives_its_ranges_and_restarts() -> None:
    memory = PublicationMemory(SETTINGS)
    memory.pass_time(0, 0)
    memory.remember("p", 0, 10, 0)
    memory.pass_time(1_000_000, 10)
    memory.pass_time(99_000_000, 10)
    assert len(memory) == 0
    memory = PublicationMemory(SETTINGS, memory.content(10))
    assert is_refused(memory, "p", 9)
    memory.remember("p", 10, 11, 10)
    assert is_refused(memory, "p", 9)


def test_clock_that_was_set_back_shortens_no_window_by_more_than_it_went_back() -> None:
    memory = PublicationMemory(SETTINGS)
    memory.pass_time(1_000_000_000_000, 0)
    memory.remember("p", 0, 1, 0)
    memory.pass_time(500_000_000, 1)
    memory.pass_time(501_000_000, 1)
    memory.pass_time(563_000_000, 1)
    assert offsets(memory, "p", 0, 1) == [0]
    memory.pass_time(570_000_000, 1)
    assert is_refused(memory, "p", 0)


def take_turns(memory: PublicationMemory, publishers: int, first: int, end: int, offset: int) -> int:
    """Each publishes the sequences one by one, with those of the others between them."""
    for sequence in range(first, end):
        for publisher in range(publishers):
            memory.remember(f"busy-{publisher}", sequence, sequence + 1, offset)
            offset += 1
    return offset


def test_busy_publishers_take_nothing_from_a_quiet_one() -> None:
    memory = PublicationMemory(replace(SETTINGS, window_ranges=100))
    for turn in range(3):
        memory.remember("quiet", 10 * turn, 10 * turn + 5, 100 * turn)
    take_turns(memory, 4, 0, 1000, 1000)
    assert 80 < len(memory) <= 100
    assert offsets(memory, "quiet", 20, 26) == [200, 201, 202, 203, 204, None]
    for sequence in (0, 4, 10, 14):
        assert offsets(memory, "quiet", sequence, sequence + 1) == [100 * (sequence // 10) + sequence % 10]
    for publisher in range(4):
        newest = offsets(memory, f"busy-{publisher}", 980, 1000)
        assert newest == [1000 + 4 * sequence + publisher for sequence in range(980, 1000)]


def test_publisher_keeps_its_newest_range_while_others_have_several() -> None:
    memory = PublicationMemory(replace(SETTINGS, window_ranges=40))
    for number in range(30):
        memory.remember(f"quiet-{number}", 0, 1, 2 * number)
    take_turns(memory, 2, 0, 500, 100)
    for number in range(30):
        assert offsets(memory, f"quiet-{number}", 0, 1) == [2 * number]
    assert offsets(memory, "busy-1", 498, 500) == [100 + 2 * 498 + 1, 100 + 2 * 499 + 1]


def test_too_many_publishers_forget_the_one_that_was_quiet_the_longest() -> None:
    memory = PublicationMemory(replace(SETTINGS, max_publishers=3))
    for turn, name in enumerate(["a", "b", "c", "a", "d"]):
        memory.remember(name, turn, turn + 1, 10 * turn)
    assert [offsets(memory, "a", 0, 1), offsets(memory, "a", 3, 4)] == [[0], [30]]
    assert [offsets(memory, "c", 2, 3), offsets(memory, "d", 4, 5)] == [[20], [40]]
    assert [is_refused(memory, "b", sequence) for sequence in (1, 2)] == [True, False]
    for turn, name in enumerate("efghijkl"):
        memory.remember(name, turn, turn + 1, 100 + 10 * turn)
    assert len(memory) == 3


def test_too_many_publishers_of_one_range_each_leave_room() -> None:
    memory = PublicationMemory(replace(SETTINGS, window_ranges=16))
    for number in range(17):
        memory.remember(f"p{number}", 5, 6, 2 * number)
    assert len(memory) == 14
    assert [is_refused(memory, f"p{number}", 5) for number in range(17)] == [True] * 3 + [False] * 14


def test_default_window_outlasts_the_repeats_of_clients_in_the_measured_load() -> None:
    """At a hundredth of the size: 100 publishers of single events, 30,000 events/s together (decision 30)."""
    retry_seconds = int(inspect.signature(culver.connect).parameters["retry_seconds"].default)
    defaults = PublishingSettings()
    memory = PublicationMemory(replace(defaults, window_ranges=defaults.window_ranges // 100))
    turns_back = 300 * retry_seconds // 100
    offset = 0
    for turn in range(0, 500, 10):
        offset = take_turns(memory, 100, turn, turn + 10, offset)
        oldest = max(0, turn + 10 - turns_back)
        assert offsets(memory, "busy-7", oldest, oldest + 1) == [100 * oldest + 7]
    assert is_refused(memory, "busy-7", 0)


def test_no_more_floors_are_kept_than_allowed() -> None:
    memory = PublicationMemory(replace(SETTINGS, max_publishers=3))
    for number in range(5):
        memory.pass_time(100_000_000 * number, number)
        memory.remember(f"p{number}", 0, 1, number)
    memory.pass_time(1_000_000_000, 5)
    memory.pass_time(1_099_000_000, 5)
    assert [is_refused(memory, f"p{number}", 0) for number in range(5)] == [False, False, True, True, True]


def test_runs_of_a_batch_are_those_of_its_rows() -> None:
    plain = Event({}, {}, b"{}")
    elsewhere = Event({}, {}, b"{}", Origin("lyon", 7))
    rows = [
        plain,
        event(4),
        event(5),
        event(6, "q"),
        event(7, "q"),
        elsewhere,
        event(8, "q"),
        event(1),
        plain,
    ]
    batch = pa.concat_batches(encode(rows, 0))
    assert numbered_runs(batch) == [
        (1, "p", 4, 6),
        (3, "q", 6, 8),
        (6, "q", 8, 9),
        (7, "p", 1, 2),
    ]
    assert numbered_runs(batch.slice(2, 2)) == [(0, "p", 5, 6), (1, "q", 6, 7)]
    assert numbered_runs(encode([plain], 0)[0]) == []


def test_start_knows_what_the_file_and_the_log_behind_it_have(tmp_path: Path) -> None:
    path = tmp_path / "publishers"
    with FileLog(tmp_path / "log", LogSettings()) as log:
        memory = PublishersFile(path).recover(log, WIDE)
        for sequence in (3, 4):
            memory.remember("p", sequence, sequence + 1, log.append(encode([event(sequence)], 0)))
        file = PublishersFile(path)
        file.write(memory.content(log.next_offset))
        log.append(encode([event(9), Event({}, {}, b"{}"), event(10)], 0))
        recovered = PublishersFile(path).recover(log, WIDE)
        assert offsets(recovered, "p", 3, 12) == [0, 1, None, None, None, None, 2, 4, None]
        path.write_bytes(path.read_bytes()[:-1])
        assert offsets(PublishersFile(path).recover(log, WIDE), "p", 3, 5) == [0, 1]


def test_file_that_is_ahead_of_the_log_claims_nothing_that_is_not_there(tmp_path: Path) -> None:
    memory = PublicationMemory(WIDE)
    memory.remember("p", 0, 2, 0)
    memory.remember("p", 5, 6, 2)
    memory.remember("q", 5, 6, 3)
    PublishersFile(tmp_path / "publishers").write(memory.content(4))
    with FileLog(tmp_path / "log", LogSettings()) as log:
        log.append(encode([event(0), event(1)], 0))
        recovered = PublishersFile(tmp_path / "publishers").recover(log, WIDE)
    assert offsets(recovered, "p", 0, 6) == [0, 1, None, None, None, None]
    assert offsets(recovered, "q", 5, 6) == [None]


def test_range_that_straddles_the_end_of_the_log_is_cut_there(tmp_path: Path) -> None:
    memory = PublicationMemory(WIDE)
    memory.pass_time(0, 0)
    memory.remember("p", 100, 110, 0)
    memory.pass_time(1_000_000, 10)
    PublishersFile(tmp_path / "publishers").write(memory.content(10))
    with FileLog(tmp_path / "log", LogSettings()) as log:
        log.append(encode([event(100 + at) for at in range(7)], 0))
        recovered = PublishersFile(tmp_path / "publishers").recover(log, WIDE)
    assert offsets(recovered, "p", 100, 110) == [*range(7), None, None, None]
    assert recovered.content(7).marks == [(0, 0), (1_000_000, 7)]


def test_content_begins_empty() -> None:
    assert PublicationMemory(WIDE).content(7) == MemoryContent(7)
