"""An index that is divided anew gives the same answers."""

import errno
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from culver.errors import StorageFull
from culver.matching import ClauseTable, Entry, Grouping, IndexWriter, SearchMemory
from culver.matching.index.segments import container
from culver.matching.index.storage.partitioner import Partitioner
from culver.model.language.parser import parse
from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.operators import events_for_slice, match_events
from culver.pipeline.range_processor import DividedIndex
from culver.placement.mpartition import MPartition, Redivision, redivide_anew
from culver.plugins import FORWARDINGS, forwarding_named
from support.placed import Scene, scene

ENDED_AT = 60


def answers(directory: Path, version: int, played: Scene, forwarding: str) -> list[tuple[int, int]]:
    """(registration, row) in all slices, each event sent where the policy says."""
    index = DividedIndex(directory, version)
    found: list[tuple[int, int]] = []
    routed = index.route(forwarding_named(forwarding)(), LoadReport(), 0, [played.batch])
    for own in range(index.slices):
        sent = None if routed is None else [events_for_slice(own, chosen) for chosen in routed]
        for each in match_events(index.set, 0, [played.batch], SearchMemory(), sent):
            groups = Grouping().group([each.part()])
            numbers = np.repeat(groups.numbers, np.diff(groups.bounds))
            found += zip(numbers.tolist(), groups.rows.tolist(), strict=True)
    index.close()
    return sorted(found)


def redivide(writer: IndexWriter, by: Redivision) -> None:
    writer.redivide(by.placement, by.kept.tolist(), by.sources.tolist(), by.changed.tolist(), 0)


@pytest.mark.slow(seconds=2)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=6), st.sampled_from(sorted(FORWARDINGS))
)
def test_answers_are_the_same_after_any_slices_came_and_went(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int]], forwarding: str
) -> None:
    played = scene("several applications")
    directory = tmp_path_factory.mktemp("index")
    writer = IndexWriter(directory)
    placement = MPartition.learnt(ClauseTable.joined(played.portions), 2)
    writer.divide(placement)
    writer.publish(1, [], [], 0, played.portions[:1])
    other = Entry(10**9, parse("absent IS NULL"), 0, "counting")  # in the rest, as text
    pattern = Entry(10**9 + 1, parse("symbol LIKE 'A%'"), 0, "counting")
    writer.publish(2, [other, pattern], [], 0, played.portions[1:])
    ended = int(played.portions[0].numbers[0])
    writer.publish(3, [], [(ended, ENDED_AT)], 0)
    before = answers(directory, writer.version, played, forwarding)
    expected = {(number, row) for row, number in played.pairs.tolist() if number != ended or row < ENDED_AT}
    assert {pair for pair in before if pair[0] < 10**9} == expected
    for add, which in steps:
        if add or placement.slices == 1:
            change = placement.with_slice_added(which % placement.slices)
        else:
            change = placement.with_slice_removed(which % placement.slices)
        redivide(writer, change)
        placement = change.placement
        assert writer.placement.slices == placement.slices
        assert answers(directory, writer.version, played, forwarding) == before
    # What is written then goes on from there, and another process finds it.
    writer.publish(4, [], [(int(played.portions[-1].numbers[1]), 0)], 0)
    assert IndexWriter(directory).placement == writer.placement


def test_a_division_that_has_nothing_in_common_with_the_one_before(tmp_path: Path) -> None:
    played = scene("several applications")
    table = ClauseTable.joined(played.portions)
    writer = IndexWriter(tmp_path)
    writer.divide(MPartition(3))
    writer.publish(1, [], [(int(table.numbers[0]), 10)], 0, played.portions)
    before = answers(tmp_path, 1, played, "adaptive")
    present: Partitioner | None = writer.partitioner
    assert isinstance(present, MPartition)
    redivide(writer, redivide_anew(present, MPartition.learnt(table, 3)))
    assert answers(tmp_path, writer.version, played, "adaptive") == before
    assert writer.contents()[0][0] < len(table.numbers) / 2, "most are in layers now"
    present = writer.partitioner
    assert isinstance(present, MPartition)
    redivide(writer, redivide_anew(present, MPartition(1)))
    assert answers(tmp_path, writer.version, played, "adaptive") == before
    assert [count for count, _ in writer.contents()] == [len(table.numbers) - 1], "one has ended"


def test_not_while_a_compaction_is_under_way(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.divide(MPartition(2))
    many = 300
    for version in range(1, 5):
        added = [Entry(version * many + i, parse(f"n > {i}")) for i in range(many)]
        writer.publish(version, added, [], 0)
    compaction = writer.plan_compaction(0, quiet=True)
    assert compaction is not None
    with pytest.raises(ValueError, match="compaction"):
        redivide(writer, redivide_anew(MPartition(2), MPartition(1)))
    writer.abandon(compaction)
    redivide(writer, redivide_anew(MPartition(2), MPartition(1)))
    assert writer.placement.slices == 1


def test_on_a_full_disk_nothing_changes_and_what_was_written_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = scene("several applications")
    writer = IndexWriter(tmp_path)
    writer.divide(MPartition(3))
    writer.publish(1, [], [], 0, played.portions)
    before = answers(tmp_path, 1, played, "adaptive")
    writer.retire(1)
    files = sorted(tmp_path.iterdir())
    room, write = 3, container.write

    def until_full(path: Path, chunks: Sequence[bytes]) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, "refused")
        write(path, chunks)

    change = redivide_anew(MPartition(3), MPartition.learnt(ClauseTable.joined(played.portions), 3))
    with monkeypatch.context() as patched:
        patched.setattr(container, "write", until_full)
        with pytest.raises(StorageFull):
            redivide(writer, change)
    assert len(list(tmp_path.iterdir())) == len(files) + 3
    writer.retire(1)
    assert sorted(tmp_path.iterdir()) == files
    assert (writer.version, writer.placement.state["layers"]) == (1, [])
    assert answers(tmp_path, 1, played, "adaptive") == before
    redivide(writer, change)
    assert answers(tmp_path, writer.version, played, "adaptive") == before
