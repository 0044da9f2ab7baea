"""The meeting of tasks: complete only with one plan, whoever comes last, and damage is not joined."""

import threading
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from culver.errors import StorageCorrupt
from culver.matching import Grouping, Groups, Matched, MatchList
from culver.pipeline import partial_exchange
from culver.pipeline.batch_plan import BatchPlan, LoadReport
from culver.pipeline.notifications import Notifications
from culver.pipeline.operator_work import SliceWork
from culver.pipeline.partial_exchange import (
    Partial,
    clear_partials,
    put_partial,
    read_partial,
    write_partial,
)
from support.notifications import offsets_of

PLAN = BatchPlan(5, 2, 2)


def part(version: int, *listed: int, gathered: tuple[int, ...] = ()) -> Partial:
    """Each registration gets event 10 of [10, 12), and those that were gathered both events."""
    found: list[Matched] = []
    if listed:
        offsets = np.array([0, len(listed)], np.int64)
        found.append(MatchList(0, (min(listed), max(listed)), offsets, np.array(listed, np.int64)))
    if gathered:
        bounds = 2 * np.arange(len(gathered) + 1, dtype=np.int64)
        rows = np.resize(np.arange(2), 2 * len(gathered)).astype(np.uint16)
        found.append(Groups(np.array(gathered, np.int64), bounds, rows))
    return Partial(10, 12, version, found, np.full(2, 20, np.uint32))


def put(directory: Path, own: Partial, task: int, plan: BatchPlan) -> Notifications | None:
    return put_partial(directory, own, task, plan, Grouping())


def as_lists(joined: Notifications | None) -> dict[int, list[int]]:
    assert joined is not None
    return {int(number): offsets_of(joined, int(number)) for number in joined.numbers}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((part(5, 4, 1), part(5, 2)), id="listed"),
        pytest.param((part(5, gathered=(1, 4)), part(5, gathered=(2,))), id="gathered"),
        pytest.param((part(5, 4, gathered=(1,)), part(5, 2)), id="both"),
        pytest.param((part(5), part(5, 1, 4, gathered=(2,))), id="nothing and all"),
        pytest.param((part(5, 2**40, 2**40 + 9), part(5, 1, 3)), id="far apart"),
        pytest.param((part(5, 1, 2**40), part(5, 3, 2**41)), id="farther apart than four bytes reach"),
        pytest.param((part(5), part(5)), id="nothing"),
    ],
)
def test_last_task_gets_what_all_have_found_and_writes_nothing(
    parts: tuple[Partial, Partial], order: tuple[int, int], tmp_path: Path
) -> None:
    directory = tmp_path / "partials"
    first, last = order
    assert put(directory, parts[first], first, PLAN) is None
    there = names(directory)
    joined = put(directory, parts[last], last, PLAN)
    assert joined is not None
    expected = {
        number: [10, 11] if isinstance(found, Groups) else [10]
        for each in parts
        for found in each.found
        for number in found.numbers.tolist()
    }
    assert as_lists(joined) == expected
    assert joined.sizes.tolist() == [20, 20]
    assert names(directory) == there
    assert len(there) == 1
    clear_partials(directory, joined, PLAN)
    assert names(directory) == []


def test_of_three_tasks_the_last_joins_all(tmp_path: Path) -> None:
    plan = BatchPlan(5, 3, 3)
    assert put(tmp_path, part(5, 3), 2, plan) is None
    assert put(tmp_path, part(5, 1), 0, plan) is None
    assert len(names(tmp_path)) == 2
    assert list(as_lists(put(tmp_path, part(5, 2), 1, plan))) == [1, 2, 3]


def test_tasks_that_finish_at_once_join_the_same_or_one_of_them_does(tmp_path: Path) -> None:
    results: dict[int, Notifications | None] = {}
    both = threading.Barrier(2)

    def finish(task: int) -> None:
        both.wait()
        results[task] = put(tmp_path, part(5, 1 + task, 7 + task), task, PLAN)

    for _ in range(50):
        threads = [threading.Thread(target=finish, args=(task,)) for task in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        joined = [each for each in results.values() if each is not None]
        assert joined
        assert all(list(as_lists(each)) == [1, 2, 7, 8] for each in joined)
        for each in joined:
            clear_partials(tmp_path, each, PLAN)
        assert names(tmp_path) == []


def test_both_join_where_neither_finds_the_other_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one finishes while the first one writes."""
    write, results = write_partial, list[Notifications | None]()

    def write_while_the_other_does(path: Path, own: Partial) -> None:
        monkeypatch.setattr(partial_exchange, "write_partial", write)
        results.append(put(tmp_path, part(5, 2), 1, PLAN))
        write(path, own)

    monkeypatch.setattr(partial_exchange, "write_partial", write_while_the_other_does)
    results.append(put(tmp_path, part(5, 1), 0, PLAN))
    assert results[0] is None
    assert list(as_lists(results[1])) == [1, 2]
    assert len(names(tmp_path)) == 2
    # Had the second one been a little slower to look again, it would have joined as well.
    assert list(as_lists(put(tmp_path, part(5, 2), 1, PLAN))) == [1, 2]


def test_task_that_is_tried_again_after_its_block_was_joined_waits_for_nobody(tmp_path: Path) -> None:
    assert put(tmp_path, part(5, 1), 0, PLAN) is None
    joined = put(tmp_path, part(5, 2), 1, PLAN)
    assert joined is not None
    clear_partials(tmp_path, joined, PLAN)
    assert put(tmp_path, part(5, 2), 1, PLAN) is None
    assert as_lists(put(tmp_path, part(5, 1), 0, PLAN)) == as_lists(joined), "both are tried again"


def test_task_that_died_before_its_join_was_on_disk_joins_again(tmp_path: Path) -> None:
    assert put(tmp_path, part(5, 1), 0, PLAN) is None
    first, second = (put(tmp_path, part(5, 2), 1, PLAN) for _ in range(2))
    assert as_lists(first) == as_lists(second)


def test_worker_of_an_earlier_run_does_not_take_the_place_of_a_task(tmp_path: Path) -> None:
    """It outlived its driver, and puts what it found with an older version between the two tasks of the new run."""
    assert put(tmp_path, part(5, 1), 0, PLAN) is None
    assert put(tmp_path, part(4, 9), 0, BatchPlan(4, 2, 2)) is None
    joined = put(tmp_path, part(5, 2), 1, PLAN)
    assert joined is not None
    assert (joined.index_version, joined.numbers.tolist()) == (5, [1, 2])


def test_tasks_that_were_told_of_another_load_are_not_joined(tmp_path: Path) -> None:
    """They have sent events elsewhere."""
    other = BatchPlan(5, 2, 2, LoadReport("a", rates=(1.0, 2.0)))
    assert put(tmp_path, part(5, 1), 0, PLAN) is None
    assert put(tmp_path, part(5, 2), 1, other) is None
    assert put(tmp_path, part(5, 3), 0, other) is not None


def test_tasks_that_chose_by_another_policy_are_not_joined(tmp_path: Path) -> None:
    """A site that starts again with another setting runs the last batch again, as it was planned else."""
    assert put(tmp_path, part(5, 1), 0, BatchPlan(5, 2, 2, forwarding="random")) is None
    assert put(tmp_path, part(5, 2), 1, PLAN) is None
    assert put(tmp_path, part(5, 3), 0, PLAN) is not None


def test_tasks_that_had_an_index_divided_otherwise_are_not_joined(tmp_path: Path) -> None:
    """An index that is made anew at the start may get the number of the version that was there before."""
    before, now = (
        SliceWork(0, 2, 2, 1, 0.0, 0.0, 0.0, "a:1", division=division) for division in ("old", "new")
    )
    assert put(tmp_path, replace(part(5, 1), work=(before,)), 0, PLAN) is None
    assert put(tmp_path, replace(part(5, 2), work=(now,)), 1, PLAN) is None
    joined = put(tmp_path, replace(part(5, 3), work=(now,)), 0, PLAN)
    assert joined is not None
    clear_partials(tmp_path, joined, PLAN)
    assert len(names(tmp_path)) == 1, "the one that stands alone"


@pytest.mark.parametrize(
    "stored", [part(5, 1, 4), part(5, gathered=(1, 4)), part(5)], ids=["listed", "gathered", "nothing"]
)
def test_torn_partial_result_is_named_and_not_joined(stored: Partial, tmp_path: Path) -> None:
    put(tmp_path, stored, 0, PLAN)
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    for torn in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        path.write_bytes(torn)
        with pytest.raises(StorageCorrupt, match=path.name):
            put(tmp_path, part(5, 2), 1, PLAN)
    path.write_bytes(whole)
    assert put(tmp_path, part(5, 2), 1, PLAN) is not None


def test_partial_result_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="No space"):
        put(tmp_path, part(5, 1), 0, PLAN)
    assert names(tmp_path) == []


def test_a_list_is_stored_without_the_events_that_match_nothing(tmp_path: Path) -> None:
    offsets, numbers = np.array([0, 2, 2, 2, 5]), np.array([1_007, 1_002, 1_002, 1_005, 1_009])
    listed = MatchList(40, (1_002, 1_009), offsets, numbers)
    write_partial(tmp_path / "a.part", replace(part(5), found=[listed]))
    stored = (tmp_path / "a.part").read_bytes()
    assert b'"runs":[[1002,1009,2,5]]' in stored
    rows, lengths = np.array([40, 43], np.uint16), np.array([2, 3], np.uint32)
    small = np.array([5, 0, 0, 3, 7], np.uint32)
    assert stored.endswith(rows.tobytes() + bytes(4) + lengths.tobytes() + small.tobytes() + bytes(4))
    (found,), _ = read_partial(tmp_path / "a.part")
    read, given = (Grouping().group([each]) for each in (found, listed))
    assert [array.tolist() for array in read] == [array.tolist() for array in given]
