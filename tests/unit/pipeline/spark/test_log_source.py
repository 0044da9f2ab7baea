"""Into which tasks a batch is cut, by the cores that are there."""

import itertools
from pathlib import Path

import msgspec
import pytest

from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.spark.log_source import LogStreamReader, RangePartition


def tasks_of(tmp_path: Path, slices: int, events: int, load: LoadReport | None) -> list[tuple[int, int, int]]:
    reader = LogStreamReader(
        {
            "data_dir": str(tmp_path),
            "log": (tmp_path / "log").as_uri(),
            "signals": "nowhere",
            "batch_events": "1000000",
            "parallelism": "8",
            "forwarding": "adaptive",
        }
    )
    start = {"offset": 0, "index_version": 1, "slices": slices, "start_up": 1}
    end = {**start, "offset": events} | ({} if load is None else {"load": msgspec.to_builtins(load)})
    found = reader.partitions(start, end)
    assert all(isinstance(each, RangePartition) and each.plan.slices == slices for each in found)
    return [(each.start, each.end, each.task) for each in found if isinstance(each, RangePartition)]


@pytest.mark.parametrize(
    ("slices", "cores", "ranges", "tasks"),
    [
        pytest.param(1, 0, 8, 1, id="what is not known is guessed"),
        pytest.param(1, 3, 3, 1, id="a range for each core"),
        pytest.param(3, 3, 1, 3, id="a slice for each core"),
        pytest.param(3, 2, 1, 2, id="more slices than cores"),
        pytest.param(3, 4, 2, 3, id="more cores than slices"),
    ],
)
def test_a_batch_is_cut_for_the_cores_that_are_there(
    tmp_path: Path, slices: int, cores: int, ranges: int, tasks: int
) -> None:
    found = tasks_of(tmp_path, slices, 40_000, LoadReport(cores=cores))
    assert len(found) == ranges * tasks
    assert {task for _, _, task in found} == set(range(tasks))
    for task in range(tasks):
        own = sorted((start, end) for start, end, each in found if each == task)
        assert [own[0][0], own[-1][1]] == [0, 40_000]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(own))


def test_a_small_batch_has_one_range_and_an_offset_without_a_report_is_understood(tmp_path: Path) -> None:
    assert tasks_of(tmp_path, 1, 10, LoadReport(cores=3)) == [(0, 10, 0)]
    assert len(tasks_of(tmp_path, 1, 40_000, None)) == 8
