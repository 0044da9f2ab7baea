"""A process that matches in some slices has their sets mapped, and no others: looked up where the system knows it."""

from pathlib import Path

import pytest

from culver.config import LogSettings
from culver.log.files import FileLog
from culver.matching.index import IndexWriter
from culver.matching.index.table import concatenate
from culver.pipeline.files import SiteFiles
from culver.pipeline.head import Head
from culver.pipeline.plan import Plan
from culver.pipeline.ranges import RangeProcessor
from culver.placement.mpartition import MPartition
from culver.placement.placement import sets_of
from support.maps import mapped_segments, set_of
from support.placed import scene

SLICES = 3


def write_index(index: Path) -> list[set[int]]:
    """Two versions; returns the sets of each slice that have any."""
    played = scene("several applications")
    writer = IndexWriter(index)
    placement = MPartition.learnt(concatenate(played.portions)[0], SLICES)
    writer.divide(placement)
    writer.publish(1, [], [], 0, played.portions[:-1])
    writer.publish(2, [], [], 0, played.portions[-1:])
    held = {number for number, (count, _) in enumerate(writer.contents()) if count}
    return [held & set(sets_of(placement.homes, own)) for own in range(SLICES)]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_process_maps_the_sets_of_its_last_task_only(tasks: int, tmp_path: Path) -> None:
    files = SiteFiles(tmp_path)
    shares = write_index(files.index)
    assert all(
        shares[own] - shares[other] for own in range(SLICES) for other in range(SLICES) if own != other
    )
    assert mapped_segments(tmp_path) == {}, "the writer has let go of it"
    batch = scene("several applications").batch
    end, heads = batch.num_rows, [Head(batch.num_rows, 2, 0, SLICES)]
    with FileLog(files.log, LogSettings()) as log:
        log.append(log.prepare([batch]))
        processor = RangeProcessor(files.index, log, lambda: heads[-1])

        def sets_after(plan: Plan, task: int) -> set[int]:
            found = list(processor.process_share(0, end, plan, task))
            names = mapped_segments(tmp_path)  # while what was found is still there, to be written
            assert found
            assert len(names) == len({set_of(name) for name in names}), "those of one version"
            return {set_of(name) for name in names}

        def share(plan: Plan, task: int) -> set[int]:
            return set().union(*(shares[own] for own in plan.share(task)))

        for version in (1, 2):
            plan = Plan(version, SLICES, tasks)
            for task in range(tasks):
                assert sets_after(plan, task) == share(plan, task)
        elsewhere = [Plan(9, SLICES, tasks), Plan(2, SLICES + 1, tasks)]
        assert [sets_after(each, 0) for each in elsewhere] == [set(), set()], "matched for all, and let go of"
        heads.append(Head(end, 2, 40, SLICES))
        assert sets_after(plan, 0) == set(), "delivery has a part of it"
        heads.pop()
        assert sets_after(plan, 0) == share(plan, 0)
        processor.close()
    assert mapped_segments(tmp_path) == {}
