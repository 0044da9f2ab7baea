"""Compactions: what they change (nothing but the files), and what becomes of them when something goes wrong."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from culver.errors import StorageFull
from culver.matching import Entry, Index, IndexWriter
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.segments import container
from culver.matching.index.storage.compaction import Compaction
from culver.matching.index.storage.partitioner import Partitioner
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from culver.model.values import Value
from support.events import random_event
from support.filters import random_filter

SEED = 78


def batch_of(*events: Mapping[str, Value]) -> pa.RecordBatch:
    return concat(encode([Event({}, data, b"{}") for data in events], 0))


def rows(directory: Path, version: int, batch: pa.RecordBatch, first_offset: int = 0) -> list[list[int]]:
    with Index.open(directory, version) as index:
        matches = index.match(batch, first_offset)
    return [
        sorted(matches.numbers[matches.offsets[row] : matches.offsets[row + 1]].tolist())
        for row in range(batch.num_rows)
    ]


def found(directory: Path, version: int) -> list[int]:
    return rows(directory, version, batch_of({"x": 1}), 100)[0]


def entries(first: int, count: int) -> list[Entry]:
    predicate = parse("x = 1")
    return [Entry(number, predicate) for number in range(first, first + count)]


def writer_with_four_segments(directory: Path) -> IndexWriter:
    """Numbers 0 .. 1200 in four segments of a tier that holds three."""
    writer = IndexWriter(directory)
    for version in range(1, 5):
        writer.publish(version, entries(300 * version - 300, 300), [], 0)
    assert writer.segments == 4
    return writer


def planned(writer: IndexWriter, horizon: int = 0, quiet: bool = False) -> Compaction:
    compaction = writer.plan_compaction(horizon, quiet)
    assert compaction is not None
    return compaction


def test_a_compaction_makes_one_segment_and_a_version_with_the_same_changes(tmp_path: Path) -> None:
    writer = writer_with_four_segments(tmp_path)
    compaction = planned(writer)
    assert len(compaction) == 1_200
    compaction.run()
    assert writer.version == 4, "nothing changes before it is installed"
    writer.install(compaction)
    assert (writer.version, writer.registry_version, writer.segments) == (5, 4, 1)
    assert found(tmp_path, 5) == found(tmp_path, 4) == list(range(1_200))
    assert writer.plan_compaction(0) is None
    writer.publish(5, entries(5_000, 1), [], 0)
    assert (writer.version, writer.registry_version) == (6, 5)
    again = IndexWriter(tmp_path)
    assert (again.version, again.registry_version, again.problems) == (6, 5, [])
    again.publish(9, [], [], 0)
    assert (again.version, again.registry_version) == (9, 9)


def test_publishing_goes_on_while_a_compaction_runs_and_its_ends_are_carried_over(tmp_path: Path) -> None:
    writer = writer_with_four_segments(tmp_path)
    writer.publish(5, [], [(0, 50), (1, 500)], 0)
    compaction = planned(writer, horizon=50)
    assert writer.plan_compaction(50) is None, "one at a time"
    writer.publish(6, entries(5_000, 2), [(2, 90), (3, 500), (5_000, 90)], 50)
    compaction.run()
    writer.publish(7, [], [(4, 90), (1, 90)], 50)
    before = found(tmp_path, 7)
    writer.install(compaction)
    assert (writer.version, writer.registry_version, writer.segments) == (8, 7, 2)
    assert found(tmp_path, 8) == before == [3, *range(5, 1_200), 5_001]
    with Index.open(tmp_path, 8) as index:
        assert index.count == 1_196, "five of the first have ended, and one of two"
    assert rows(tmp_path, 8, batch_of({"x": 1}), 60)[0] == [*range(1, 1_200), 5_000, 5_001]
    assert IndexWriter(tmp_path).problems == []


def test_small_segments_that_a_compaction_has_taken_are_not_rewritten_by_publishing(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(0, 300), [], 0)
    writer.publish(2, entries(300, 5), [], 0)
    compaction = planned(writer, quiet=True)
    writer.publish(3, entries(305, 5), [(300, 0), (301, 0), (302, 0), (303, 0), (304, 0)], 10)
    writer.publish(4, entries(310, 5), [], 10)
    compaction.run()
    writer.install(compaction)
    assert writer.segments == 2
    assert found(tmp_path, writer.version) == [*range(300), *range(305, 315)]


def test_a_compaction_of_which_nothing_is_left_leaves_no_segment(tmp_path: Path) -> None:
    writer = writer_with_four_segments(tmp_path)
    compaction = planned(writer)
    writer.publish(5, [], [(number, 50) for number in range(1_200)], 60)
    compaction.run()
    writer.install(compaction)
    compaction = planned(writer, horizon=60)
    compaction.run()
    writer.install(compaction)
    writer.retire(100)
    assert (writer.segments, list(tmp_path.glob("*.segment"))) == (0, [])
    assert found(tmp_path, writer.version) == []


def test_retiring_spares_the_file_that_waits_to_be_installed(tmp_path: Path) -> None:
    writer = writer_with_four_segments(tmp_path)
    compaction = planned(writer)
    compaction.run()
    writer.retire(4)
    writer.install(compaction)
    writer.retire(5)
    assert [path.name for path in tmp_path.glob("*.segment")] == [compaction.file]
    assert found(tmp_path, 5) == list(range(1_200))


@pytest.mark.parametrize("step", ["planned", "writing the segment", "run", "writing the version"])
def test_a_process_that_ends_in_the_middle_leaves_a_usable_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    def half_write(path: Path, chunks: list[bytes]) -> None:
        path.with_name(path.name + ".1.tmp").write_bytes(b"".join(chunks)[:100])
        raise Killed

    writer = writer_with_four_segments(tmp_path)
    compaction = planned(writer)
    if step == "writing the segment":
        monkeypatch.setattr(container, "write", half_write)
        with pytest.raises(Killed):
            compaction.run()
    elif step != "planned":
        compaction.run()
        if step == "writing the version":
            monkeypatch.setattr(container, "write", half_write)
            with pytest.raises(Killed):
                writer.install(compaction)
    monkeypatch.undo()

    again = IndexWriter(tmp_path)
    assert (again.version, again.registry_version, again.problems, again.segments) == (4, 4, [], 4)
    again.retire(4)
    assert len(list(tmp_path.iterdir())) == 5, "four segments and a version"
    compaction = planned(again)
    compaction.run()
    again.install(compaction)
    assert found(tmp_path, 5) == list(range(1_200))


def test_a_cancelled_compaction_writes_nothing_and_makes_room_for_another(tmp_path: Path) -> None:
    writer = writer_with_four_segments(tmp_path)
    before = set(tmp_path.iterdir())
    compaction = planned(writer)
    compaction.cancel()
    compaction.run()
    assert set(tmp_path.iterdir()) == before
    with pytest.raises(ValueError, match="done"):
        writer.install(compaction)
    writer.abandon(compaction)
    another = planned(writer)
    another.run()
    with pytest.raises(ValueError, match="planned last"):
        writer.install(compaction)
    writer.install(another)
    assert found(tmp_path, writer.version) == list(range(1_200))


def test_a_disk_that_refuses_leaves_the_index_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, chunks: list[bytes]) -> None:
        raise OSError(28, "refused")

    writer = writer_with_four_segments(tmp_path)
    compaction = planned(writer)
    with monkeypatch.context() as patched:
        patched.setattr(container, "write", refuse)
        with pytest.raises(OSError, match="refused"):
            compaction.run()
    writer.abandon(compaction)
    compaction = planned(writer)
    compaction.run()
    with monkeypatch.context() as patched:
        patched.setattr(container, "write", refuse)
        with pytest.raises(StorageFull):
            writer.install(compaction)
    assert (writer.version, writer.segments) == (4, 4)
    writer.install(compaction)
    assert found(tmp_path, 5) == list(range(1_200))


@pytest.mark.slow(seconds=3)
def test_random_registrations_match_like_the_reference_whenever_compactions_come(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    batch = concat(encode(events := [random_event(rng) for _ in range(20)], 0))
    present: dict[int, tuple[list[bool], int, int]] = {}
    writer = IndexWriter(tmp_path)
    compaction: Compaction | None = None
    number = installed = 0
    for version in range(1, 41):
        position = 40 * version
        added, ended = [], []
        for _ in range(rng.choice([1, 5, 60])):
            number += rng.randrange(1, 4)
            predicate = parse(random_filter(rng))
            truth = [evaluate(predicate.condition, event) is True for event in events]
            present[number] = (truth, position, 2**63 - 1)
            added.append(Entry(number, predicate, position))
        for leaving in rng.sample(sorted(present), len(present) // 12):
            truth, since, until = present[leaving]
            if until == 2**63 - 1:
                present[leaving] = (truth, since, position + 10)
                ended.append((leaving, position + 10))
        writer.publish(version, added, ended, position - 40)
        if compaction is None:
            compaction = writer.plan_compaction(position - 40, quiet=rng.random() < 0.3)
        elif not compaction.done:
            compaction.run()
        elif rng.random() < 0.7:
            writer.install(compaction)
            compaction, installed = None, installed + 1
        if rng.random() < 0.2:
            writer.retire(writer.version)
        first = position + rng.choice([0, 15])
        for row, numbers in enumerate(rows(tmp_path, writer.version, batch, first)):
            expected = [
                each
                for each, (truth, since, until) in present.items()
                if truth[row] and since <= first + row < until
            ]
            assert numbers == expected, (SEED, version, row)
    assert installed > 5


def test_sets_that_share_a_segment_are_compacted_one_by_one(tmp_path: Path) -> None:
    """Registrations that every set holds make the same segment in each, and a new process opens it once."""

    class Everywhere(Partitioner):
        name = "everywhere"

        def __init__(self) -> None:
            self.slices = 2
            self.homes = np.arange(2)

        def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
            return np.ones((len(table.numbers), 2), np.bool_)

        def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
            return np.ones((len(numbers), 2), np.bool_)

        def state(self) -> dict[str, Any]:
            return {}

    writer = IndexWriter(tmp_path)
    writer.divide(Everywhere())
    writer.publish(1, entries(0, 100), [], 0)
    again = IndexWriter(tmp_path)
    again.divide(Everywhere())
    again.publish(2, [], [(number, 50) for number in range(40)], 60)
    while (compaction := again.plan_compaction(60)) is not None:
        compaction.run()
        again.install(compaction)
    for own in range(2):
        with Index.open(tmp_path, again.version, own) as index:
            matches = index.match(batch_of({"x": 1}), 100)
        assert sorted(matches.numbers.tolist()) == list(range(40, 100)), own
