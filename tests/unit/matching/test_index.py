"""Versions of the index: what they contain, and what becomes of their files."""

import random
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from culver.errors import Conflict, NotFound, StorageCorrupt, StorageError, StorageFull
from culver.matching import Entry, Index, IndexWriter
from culver.matching.index.segments import container
from culver.matching.index.storage.version_files import index_versions, version_path
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from culver.model.values import Value
from culver.plugins import filter_named
from support.events import random_event
from support.filters import random_filter

SEED = 77


def batch_of(*events: Mapping[str, Value]) -> pa.RecordBatch:
    return concat(encode([Event({}, data, b"{}") for data in events], 0))


def rows(index: Index, batch: pa.RecordBatch, first_offset: int = 0) -> list[list[int]]:
    matches = index.match(batch, first_offset)
    return [
        sorted(matches.numbers[matches.offsets[row] : matches.offsets[row + 1]].tolist())
        for row in range(batch.num_rows)
    ]


def entries(first: int, count: int, text: str = "x = 1", since: int = 0) -> list[Entry]:
    return [Entry(number, parse(text), since) for number in range(first, first + count)]


def segments_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.segment"))


def damage(path: Path, at: int = -1) -> None:
    """Flip a bit, in a file of its own so that what is mapped stays as it was."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.unlink()
    path.write_bytes(bytes(data))


def test_a_new_directory_starts_at_version_0_which_is_empty(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path / "deep" / "index")
    assert (writer.version, writer.problems) == (0, [])
    with Index.open(tmp_path / "deep" / "index", 0) as index:
        assert (index.version, index.count) == (0, 0)
        assert rows(index, batch_of({"x": 1}, {"x": 2})) == [[], []]


def test_each_version_stays_as_it_was_published(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(3, entries(1, 2), [], 0)
    writer.publish(4, entries(5, 1), [(1, 0)], 0)
    writer.publish(9, [], [], 0)
    assert writer.version == 9
    found = {version: rows(Index.open(tmp_path, version), batch_of({"x": 1}))[0] for version in (3, 4, 9)}
    assert found == {3: [1, 2], 4: [2, 5], 9: [2, 5]}
    assert [Index.open(tmp_path, version).count for version in (3, 4, 9)] == [2, 2, 2]


def test_a_registration_takes_part_only_within_its_window(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, [Entry(7, parse("x = 1"), 100), Entry(8, parse("x = 1"), 0)], [], 0)
    writer.publish(2, [Entry(9, parse("x = 1"), 103)], [(7, 103)], 0)
    batch = batch_of(*[{"x": 1}] * 6)
    assert rows(Index.open(tmp_path, 1), batch, 98) == [[8], [8], [7, 8], [7, 8], [7, 8], [7, 8]]
    assert rows(Index.open(tmp_path, 2), batch, 98) == [[8], [8], [7, 8], [7, 8], [7, 8], [8, 9]]
    assert rows(Index.open(tmp_path, 2), batch, 2**62) == [[8, 9]] * 6


def test_registrations_in_effect_are_told_whatever_they_match(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path, filter_named)
    writer.publish(1, [*entries(1, 3), *entries(4, 2, "x = 2", since=15)], [], 0)
    writer.publish(2, [Entry(6, parse("y = 1"), 0, "counting")], [(2, 13), (3, 10)], 0)
    with Index.open(tmp_path, writer.version, filters=filter_named) as index:

        def told(start: int, end: int) -> dict[int, int]:
            numbers, last = index.in_effect(start, end)
            return dict(zip(numbers.tolist(), last.tolist(), strict=True))

        assert told(10, 20) == {1: 19, 2: 12, 4: 19, 5: 19, 6: 19}
        assert told(0, 15) == {1: 14, 2: 12, 3: 9, 6: 14}
        assert told(15, 16) == {1: 15, 4: 15, 5: 15, 6: 15}


def test_many_boxes_obey_their_windows_too(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    text = "x >= 0 AND x < 5 AND y > 1"
    writer.publish(1, [Entry(n, parse(text), n) for n in range(100)], [(n, n + 10) for n in range(100)], 0)
    found = rows(Index.open(tmp_path, 1), batch_of(*[{"x": 1, "y": 2.5}] * 120), 0)
    assert found == [[n for n in range(100) if n <= at < n + 10] for at in range(120)]


def test_added_and_ended_at_once_never_matches(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, [Entry(7, parse("x = 1"), 5)], [(7, 5), (99, 1)], 0)
    with Index.open(tmp_path, 1) as index:
        assert index.count == 0
        assert rows(index, batch_of(*[{"x": 1}] * 4), 3) == [[]] * 4


def test_ended_registrations_are_dropped_only_up_to_the_horizon(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 10), [], 0)
    writer.publish(2, [], [(n, 50) for n in range(4)] + [(n, 51) for n in range(4, 10)], 0)
    writer.publish(3, entries(20, 1), [], 50)
    batch = batch_of({"x": 1})
    assert rows(Index.open(tmp_path, 3), batch, 50) == [[4, 5, 6, 7, 8, 9, 20]]
    assert rows(Index.open(tmp_path, 3), batch, 49) == [[4, 5, 6, 7, 8, 9, 20]]
    assert rows(Index.open(tmp_path, 2), batch, 49) == [list(range(10))]


def test_an_index_of_which_everything_ended_has_no_segments(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 10), [], 0)
    writer.publish(2, [], [(n, 5) for n in range(10)], 5)
    writer.retire(2)
    assert segments_in(tmp_path) == []
    assert rows(Index.open(tmp_path, 2), batch_of({"x": 1}), 9) == [[]]
    writer.publish(3, entries(20, 1), [], 5)
    assert rows(Index.open(tmp_path, 3), batch_of({"x": 1}), 9) == [[20]]


def test_a_version_must_be_new(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(3, entries(1, 1), [], 0)
    with pytest.raises(Conflict, match="version 3"):
        writer.publish(3, [], [], 0)
    assert IndexWriter(tmp_path).version == 3


def test_an_unknown_version_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no version 5"):
        Index.open(tmp_path, 5)


def test_a_closed_index_does_not_match(tmp_path: Path) -> None:
    index = Index.open(tmp_path, 0)
    index.close()
    with pytest.raises(ValueError, match="closed"):
        index.match(batch_of({"x": 1}))


def test_publishing_one_by_one_keeps_the_segments_few(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 3_000), [], 0)
    for version in range(2, 302):
        writer.publish(version, entries(3_000 + version, 1), [], 0)
    writer.retire(301)
    assert len(segments_in(tmp_path)) <= 3
    assert Index.open(tmp_path, 301).count == 3_300


def test_retiring_keeps_what_is_needed_and_nothing_else(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 2_000), [], 0)
    for version in range(2, 12):
        writer.publish(version, entries(2_000 + version, 1), [], 0)
    everything = len(segments_in(tmp_path))
    still_open = Index.open(tmp_path, 4)
    writer.retire(8)
    assert index_versions(tmp_path) == [8, 9, 10, 11]
    assert len(segments_in(tmp_path)) < everything
    for version in range(8, 12):
        assert Index.open(tmp_path, version).count == 2_000 + version - 1
    assert len(rows(still_open, batch_of({"x": 1}))[0]) == 2_003
    with pytest.raises(NotFound):
        Index.open(tmp_path, 7)
    writer.retire(1_000)
    assert index_versions(tmp_path) == [11]
    assert IndexWriter(tmp_path).version == 11


@pytest.mark.parametrize("suffix", [".version", ".segment"])
def test_damage_is_named_and_the_newest_intact_version_taken(tmp_path: Path, suffix: str) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 300), [], 0)
    writer.publish(2, entries(300, 5), [], 0)
    (broken,) = tmp_path.glob(f"{2:020d}*{suffix}")
    damage(broken)
    with pytest.raises(StorageCorrupt, match=broken.name):
        Index.open(tmp_path, 2)
    again = IndexWriter(tmp_path)
    assert again.version == 1
    assert len(again.problems) == 1
    assert broken.name in again.problems[0]
    again.publish(2, entries(300, 6), [], 0)
    assert Index.open(tmp_path, 2).count == 306
    assert IndexWriter(tmp_path).problems == []


def test_a_torn_segment_and_a_missing_one_are_named(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 5), [], 0)
    (segment,) = segments_in(tmp_path)
    data = segment.read_bytes()
    segment.unlink()
    with pytest.raises(StorageCorrupt, match=f"{segment.name} is missing"):
        Index.open(tmp_path, 1)
    segment.write_bytes(data[:-64])
    with pytest.raises(StorageCorrupt, match=segment.name):
        Index.open(tmp_path, 1)
    again = IndexWriter(tmp_path)
    assert (again.version, len(again.problems)) == (0, 1)


def test_a_version_under_another_versions_name_is_noticed(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 5), [], 0)
    version_path(tmp_path, 1).rename(version_path(tmp_path, 2))
    with pytest.raises(StorageCorrupt, match="not the manifest of version 2"):
        Index.open(tmp_path, 2)


def test_half_written_files_are_cleared_away(tmp_path: Path) -> None:
    IndexWriter(tmp_path).publish(1, entries(0, 5), [], 0)
    (tmp_path / f"{2:020d}.version.99.tmp").write_bytes(b"half")
    IndexWriter(tmp_path)
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.parametrize(("number", "error"), [(28, StorageFull), (5, StorageError)])
def test_a_disk_that_refuses_leaves_the_version_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StorageError]
) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 5), [], 0)
    with monkeypatch.context() as patched:

        def refuse(path: Path, chunks: list[bytes]) -> None:
            raise OSError(number, "refused")

        patched.setattr(container, "write", refuse)
        with pytest.raises(error):
            writer.publish(2, entries(5, 1), [], 0)
    assert (writer.version, index_versions(tmp_path)) == (1, [1])
    writer.publish(2, entries(5, 1), [], 0)
    assert Index.open(tmp_path, 2).count == 6


@pytest.mark.slow(seconds=3)
def test_readers_see_whole_versions_while_the_writer_publishes(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(1, 1), [], 0)
    batch = batch_of({"x": 1})
    failures: list[BaseException] = []
    done = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not done.is_set():
            newest = index_versions(tmp_path)[-1]
            try:
                found = rows(Index.open(tmp_path, newest), batch)[0]
                assert found == list(range(1, newest + 1))
                seen.add(newest)
            except NotFound:
                pass  # retired between the two looks at the directory
            except BaseException as exc:
                failures.append(exc)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(2, 200):
        writer.publish(version, entries(version, 1), [], 0)
        writer.retire(version - 3)
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(seen) > 5


def test_random_registrations_match_like_the_reference_through_merges_and_restarts(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    batch = concat(encode(events := [random_event(rng) for _ in range(50)], 0))
    present: dict[int, tuple[str, list[bool], int, int]] = {}
    writer = IndexWriter(tmp_path)
    number = pairs = 0
    for version in range(1, 13):
        added, ended = [], []
        position = 40 * version
        for _ in range(rng.choice([1, 2, 90, 150])):
            number += rng.randrange(1, 4)
            text = random_filter(rng)
            predicate = parse(text)
            truth = [evaluate(predicate.condition, event) is True for event in events]
            present[number] = (text, truth, position, 2**63 - 1)
            added.append(Entry(number, predicate, position))
        for leaving in rng.sample(sorted(present), len(present) // 6):
            text, truth, since, until = present[leaving]
            if until == 2**63 - 1:
                present[leaving] = (text, truth, since, position + 20)
                ended.append((leaving, position + 20))
        writer.publish(version, added, ended, position - 40)
        if version % 3 == 0:
            writer.retire(version - 1)
            writer = IndexWriter(tmp_path)
            assert (writer.version, writer.problems) == (version, [])
        first = position - 10
        for row, found in enumerate(rows(Index.open(tmp_path, version), batch, first)):
            expected = [
                each
                for each, (_, truth, since, until) in present.items()
                if truth[row] and since <= first + row < until
            ]
            wrong = [present[each][0] for each in set(found) ^ set(expected)]
            assert found == expected, (SEED, version, row, wrong)
            pairs += len(present)
    assert pairs > 100_000
