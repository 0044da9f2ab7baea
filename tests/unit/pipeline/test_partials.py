"""The meeting of tasks: complete only with one plan, and damage is not joined."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from culver.errors import StorageCorrupt
from culver.pipeline import partials
from culver.pipeline.loads import LoadReport
from culver.pipeline.notifications import Notifications
from culver.pipeline.plan import Plan
from culver.pipeline.work import Work


def part(version: int, *numbers: int) -> Notifications:
    """Each registration gets event 10 of [10, 12)."""
    return Notifications(
        10,
        12,
        version,
        np.array(numbers, np.int64),
        np.arange(len(numbers) + 1, dtype=np.int64),
        np.zeros(len(numbers), np.uint16),
        np.full(2, 20, np.uint32),
    )


def test_last_task_gets_what_all_have_found(tmp_path: Path) -> None:
    directory = tmp_path / "partials"
    assert partials.put(directory, part(5, 1, 4), 0, Plan(5, 2, 2)) is None
    joined = partials.put(directory, part(5, 2), 1, Plan(5, 2, 2))
    assert joined is not None
    assert joined.numbers.tolist() == [1, 2, 4]
    partials.clear(directory, joined, Plan(5, 2, 2))
    assert list(directory.iterdir()) == []


def test_worker_of_an_earlier_run_does_not_take_the_place_of_a_task(tmp_path: Path) -> None:
    """It outlived its driver, and puts what it found with an older version between the two tasks of the new run."""
    assert partials.put(tmp_path, part(5, 1), 0, Plan(5, 2, 2)) is None
    assert partials.put(tmp_path, part(4, 9), 0, Plan(4, 2, 2)) is None
    joined = partials.put(tmp_path, part(5, 2), 1, Plan(5, 2, 2))
    assert joined is not None
    assert (joined.index_version, joined.numbers.tolist()) == (5, [1, 2])


def test_tasks_that_were_told_of_another_load_are_not_joined(tmp_path: Path) -> None:
    """They have sent events elsewhere."""
    other = Plan(5, 2, 2, LoadReport("a", rates=(1.0, 2.0)))
    assert partials.put(tmp_path, part(5, 1), 0, Plan(5, 2, 2)) is None
    assert partials.put(tmp_path, part(5, 2), 1, other) is None
    assert partials.put(tmp_path, part(5, 3), 0, other) is not None


def test_tasks_that_chose_by_another_policy_are_not_joined(tmp_path: Path) -> None:
    """A site that starts again with another setting runs the last batch again, as it was planned else."""
    assert partials.put(tmp_path, part(5, 1), 0, Plan(5, 2, 2, forwarding="random")) is None
    assert partials.put(tmp_path, part(5, 2), 1, Plan(5, 2, 2)) is None
    assert partials.put(tmp_path, part(5, 3), 0, Plan(5, 2, 2)) is not None


def test_tasks_that_had_an_index_divided_otherwise_are_not_joined(tmp_path: Path) -> None:
    """An index that is made anew at the start may get the number of the version that was there before."""
    before, now = (Work(0, 2, 2, 1, 0.0, 0.0, 0.0, "a:1", division=division) for division in ("old", "new"))
    assert partials.put(tmp_path, replace(part(5, 1), work=(before,)), 0, Plan(5, 2, 2)) is None
    assert partials.put(tmp_path, replace(part(5, 2), work=(now,)), 1, Plan(5, 2, 2)) is None
    joined = partials.put(tmp_path, replace(part(5, 3), work=(now,)), 0, Plan(5, 2, 2))
    assert joined is not None
    partials.clear(tmp_path, joined, Plan(5, 2, 2))
    assert len(list(tmp_path.iterdir())) == 1, "the one that stands alone"


def test_torn_partial_result_is_named_and_not_joined(tmp_path: Path) -> None:
    partials.put(tmp_path, part(5, 1, 4), 0, Plan(5, 2, 2))
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StorageCorrupt, match=path.name):
        partials.put(tmp_path, part(5, 2), 1, Plan(5, 2, 2))
