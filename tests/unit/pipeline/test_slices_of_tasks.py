"""A process that matches in some slices has their sets mapped, and no others: looked up where the system knows it."""

import itertools
from pathlib import Path

import pytest

from culver.config import LogSettings
from culver.log.files import FileLog
from culver.matching import ClauseTable, IndexWriter
from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.head import Head
from culver.pipeline.range_processor import RangeProcessor
from culver.pipeline.site_files import SiteFiles
from culver.placement.mpartition import MPartition
from support.maps import files_of_slices, mapped_segments
from support.placed import scene

SLICES = 3


def write_index(index: Path) -> None:
    """Two versions."""
    played = scene("several applications")
    writer = IndexWriter(index)
    writer.divide(MPartition.learnt(ClauseTable.joined(played.portions), SLICES))
    writer.publish(1, [], [], 0, played.portions[:-1])
    writer.publish(2, [], [], 0, played.portions[-1:])


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_process_maps_the_sets_of_its_last_task_only(tasks: int, tmp_path: Path) -> None:
    files = SiteFiles(tmp_path)
    write_index(files.index)
    shares = {version: files_of_slices(files.index, version) for version in (1, 2)}
    assert all(one - other for one, other in itertools.permutations(shares[2], 2))
    assert mapped_segments(tmp_path) == {}, "the writer has let go of it"
    batch = scene("several applications").batch
    end, heads = batch.num_rows, [Head(batch.num_rows, 2, 0, SLICES)]
    with FileLog(files.log, LogSettings()) as log:
        log.append([batch])
        processor = RangeProcessor(files.index, log, lambda: heads[-1])

        def mapped_after(plan: BatchPlan, task: int) -> set[str]:
            found = list(processor.process_task(0, end, plan, task))
            mapped = set(mapped_segments(tmp_path))  # while what was found is still there, to be written
            assert found
            return mapped

        def share(plan: BatchPlan, task: int) -> set[str]:
            return set().union(*(shares[plan.index_version][own] for own in plan.slices_of(task)))

        for version in (1, 2):
            plan = BatchPlan(version, SLICES, tasks)
            for task in range(tasks):
                assert mapped_after(plan, task) == share(plan, task)
        elsewhere = [BatchPlan(9, SLICES, tasks), BatchPlan(2, SLICES + 1, tasks)]
        assert [mapped_after(each, 0) for each in elsewhere] == [set(), set()], (
            "matched for all, and let go of"
        )
        heads.append(Head(end, 2, 40, SLICES))
        assert mapped_after(plan, 0) == set(), "delivery has a part of it"
        heads.pop()
        assert mapped_after(plan, 0) == share(plan, 0)
        processor.close()
    assert mapped_segments(tmp_path) == {}
