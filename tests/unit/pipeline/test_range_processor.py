"""A slice matches a block as a whole where it cannot count on the others to do the same."""

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pyarrow as pa
import pytest

from culver.config import LogSettings
from culver.errors import StorageCorrupt
from culver.log.files import FileLog
from culver.log.files.log_segment import corrupt
from culver.matching import ClauseTable, Entry, Grouping, IndexWriter
from culver.matching.index.storage import index_reader
from culver.model.columns import event_batch as batches
from culver.model.language.parser import parse
from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications
from culver.pipeline.partial_exchange import Partial, clear_partials, put_partial
from culver.pipeline.range_processor import RangeProcessor
from culver.pipeline.site_files import SiteFiles
from culver.placement.fixed_placements import Hashed
from culver.placement.mpartition import MPartition
from support.events import random_event
from support.logs import damage_record, last_segment, records_of
from support.notifications import offsets_of
from support.placed import scene

EVENTS = 90


def as_pairs(found: Notifications | Partial | None, start: int = 0) -> set[tuple[int, int]]:
    assert isinstance(found, Notifications)
    return {
        (int(number), int(offset))
        for number in found.numbers
        for offset in offsets_of(found, int(number))
        if offset >= start
    }


def is_partial(found: Notifications | Partial) -> TypeGuard[Partial]:
    return isinstance(found, Partial)


@pytest.fixture
def files(tmp_path: Path) -> SiteFiles:
    found = SiteFiles(tmp_path)
    writer = IndexWriter(found.index)
    writer.divide(Hashed(3))
    writer.publish(1, [Entry(number, parse(f"n >= {number}")) for number in range(1, 60)], [], 0)
    rng = random.Random(4)
    with FileLog(found.log, LogSettings()) as log:
        log.append(batches.encode([random_event(rng) for _ in range(EVENTS)], 0))
    return found


@pytest.mark.parametrize(
    ("version", "slices", "frontier", "is_whole"),
    [
        pytest.param(1, 3, 0, False, id="as planned"),
        pytest.param(1, 1, 0, True, id="planned for fewer slices"),
        pytest.param(1, 4, 0, True, id="planned for more slices"),
        pytest.param(9, 3, 0, True, id="the version is gone"),
        pytest.param(1, 3, 40, True, id="delivery has a part of the block"),
        pytest.param(1, 3, EVENTS, None, id="delivery has all of it"),
    ],
)
def test_what_a_slice_does(
    files: SiteFiles, version: int, slices: int, frontier: int, is_whole: bool | None
) -> None:
    with FileLog(files.log, LogSettings()) as log:
        processor = RangeProcessor(files.index, log, lambda: Head(EVENTS, 1, frontier, 3))
        for own in range(slices):
            found = list(processor.process_task(0, EVENTS, BatchPlan(version, slices, slices), own))
            assert [isinstance(each, Notifications) for each in found] == (
                [] if is_whole is None else [is_whole]
            )
        [whole] = RangeProcessor(files.index, log, lambda: Head(EVENTS, 1, 0, 3)).process(
            0, EVENTS, BatchPlan(1, 3)
        )
        if is_whole:
            assert as_pairs(found[0]) == as_pairs(whole, frontier)
        processor.close()


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_damaged_batches_are_announced_to_all_registrations_and_the_rest_is_matched(
    tmp_path: Path, tasks: int
) -> None:
    """Every task that finds damage matches for all, because another may have read the block before it was damaged."""
    played = scene("several applications")
    files = SiteFiles(tmp_path)
    writer = IndexWriter(files.index)
    writer.divide(MPartition.learnt(ClauseTable.joined(played.portions), 3))
    writer.publish(1, [], [], 0, played.portions)
    registered = {int(number) for table in played.portions for number in table.numbers}
    ended = min(registered)
    writer.publish(2, [], [(ended, 25)], 0)
    with FileLog(files.log, LogSettings()) as log:
        for start in range(0, 90, 10):
            log.append([played.batch.slice(start, 10)])
    path = last_segment(files.log)
    records = records_of(path)
    lost = [damage_record(path, records[place]) for place in (2, 3, 7)]
    with FileLog(files.log, LogSettings()) as log:
        processor = RangeProcessor(files.index, log, lambda: Head(90, 2, 0, 3))
        plan = BatchPlan(2, 3, tasks)
        for task in range(tasks):
            found = list(
                processor.process(5, 85, plan) if tasks == 1 else processor.process_task(5, 85, plan, task)
            )
            assert [(each.start, each.end) for each in found] == [
                (5, 20), (20, 40), (40, 70), (70, 80), (80, 85)
            ]  # fmt: skip
            first, second = lost[0]._replace(end=40), lost[2]
            assert [each.damage for each in found if isinstance(each, Notifications)] == [
                (), (first,), (), (second,), ()
            ]  # fmt: skip
            pairs = {(number, row) for row, number in played.pairs.tolist() if number != ended or row < 25}
            for each in (found[0], found[2], found[4]):
                assert as_pairs(each) == {pair for pair in pairs if each.start <= pair[1] < each.end}
            everybody = {(number, 39) for number in registered - {ended}}
            assert as_pairs(found[1]) == {*everybody, (ended, 24)}
            assert as_pairs(found[3]) == {(number, 79) for number in registered - {ended}}
        processor.close()


@pytest.mark.parametrize("tasks", [1, 2])
def test_nothing_is_announced_as_long_as_nobody_can_tell_where_the_damage_ends(
    files: SiteFiles, tasks: int
) -> None:
    with FileLog(files.log, LogSettings()) as log:
        path = last_segment(files.log)
        log._recent = ()
        damage_record(path, records_of(path)[0])
        processor = RangeProcessor(files.index, log, lambda: Head(EVENTS, 1, 0, 3))
        with pytest.raises(StorageCorrupt, match=re.escape(str(path))):
            list(processor.process_task(0, EVENTS, BatchPlan(1, 3, tasks), 0))
        with pytest.raises(StorageCorrupt, match=re.escape(str(path))):
            list(processor.process(0, EVENTS, BatchPlan(1, 3)))
        processor.close()


class MisreadOnce(FileLog):
    """A log of which the first read fails, as if a part of it were damaged."""

    is_misread = True

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self.is_misread:
            self.is_misread = False
            raise corrupt(Path("00.log"), 8, "a record fails its checksum", start=start, end=start + 2)
        return super().read(start, end)


def test_misread_is_no_damage(files: SiteFiles) -> None:
    with MisreadOnce(files.log, LogSettings()) as log:
        processor = RangeProcessor(files.index, log, lambda: Head(EVENTS, 1, 0, 3))
        found = list(processor.process(0, EVENTS, BatchPlan(1, 3)))
        assert [(each.start, each.end, each.damage) for each in found] == [(0, EVENTS, ())]
        processor.close()


@pytest.mark.slow(seconds=0.2)
@pytest.mark.parametrize("sparse", ["by itself", "all listed", "all gathered", "mixed"])
@pytest.mark.parametrize(("slices", "tasks"), [(1, 1), (2, 2), (3, 2), (3, 3), (3, 1)])
def test_slices_with_several_sets_find_what_the_reference_finds(
    slices: int, tasks: int, sparse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pairs that are listed event by event, gathered by registration, or both in one block."""
    if sparse != "by itself":
        turns = {"all listed": [True], "all gathered": [False], "mixed": [True, False, False]}[sparse]
        turn = itertools.cycle(turns)
        monkeypatch.setattr(index_reader, "_is_sparse", lambda parts, count: next(turn))
    played = scene("several applications")
    files = SiteFiles(tmp_path)
    writer = IndexWriter(files.index)
    placement = MPartition.learnt(ClauseTable.joined(played.portions), slices)
    assert slices == 1 or len(placement.homes) > 3 * slices
    writer.divide(placement)
    for version, table in enumerate(played.portions, 1):
        writer.publish(version, [], [], 0, [table])
    ended = int(played.portions[-1].numbers[0])
    writer.publish(writer.version + 1, [], [(ended, 60)], 0)
    expected = {(number, row) for row, number in played.pairs.tolist() if number != ended or row < 60}
    with FileLog(files.log, LogSettings()) as log:
        log.append([played.batch])
        count = played.batch.num_rows
        processor = RangeProcessor(files.index, log, lambda: Head(count, writer.version, 0, slices))
        plan = BatchPlan(writer.version, slices, tasks)
        [whole] = processor.process(0, count, plan)
        parts = [found for task in range(tasks) for found in processor.process_task(0, count, plan, task)]
        processor.close()
    assert as_pairs(whole) == expected
    for order in itertools.permutations(range(tasks)):
        met = [(task, parts[task]) for task in order]
        joined = [
            put_partial(tmp_path / "p", part, task, plan, Grouping())
            for task, part in met
            if is_partial(part)
        ]
        assert [each is None for each in joined] == [True] * (tasks - 1) + [False]
        last = joined[-1]
        assert last is not None
        assert as_pairs(last) == expected
        assert len(last.rows) == len(expected), "nothing is there twice"
        assert last.sizes.tolist() == whole.sizes.tolist()
        assert [each.slice for each in last.work] == list(range(slices))
        clear_partials(tmp_path / "p", last, plan)
    assert all(part.work[0].sent <= count for part in parts)
    assert len(writer.contents()) == len(placement.homes)
    assert len(writer.contents_of_slices()) == slices
    # A registration is at least in one set of each dimension of its layer, so in some slice, or in all of them.
    assert sum(held for held, _ in writer.contents_of_slices()) >= sum(held for held, _ in writer.contents())
