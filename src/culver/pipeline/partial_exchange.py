"""Where the tasks of a range meet: the last one to finish joins what all have found.

    partials/START-END.5-8-1f00ba42-90c1d3aa.0-3.part   written by task 0 of 3, by a plan and a division
             START-END.5-8-1f00ba42-90c1d3aa.1-3.part   written by task 1                 with these marks
    notifications/START-END.ntf                         task 2 finds the others there, joins them with what it has in
                                                        memory into this, and deletes the two

A task that does not find the results of all others writes its own, and looks once more. So of two tasks that finish
at the same moment at least one finds all. Both may: then they write the same content under the same name. A task that
is tried again after its block was joined finds nothing of the others, and leaves its own result behind. The driver
removes it at its next start; if another task joins it before, the content is the same again.

A worker that has outlived its driver may still write. If it has another plan, or an index that was rebuilt meanwhile
under the same version, it writes under other names. A partial result need not survive a power cut, because Spark then
runs the whole batch again.
"""

import contextlib
from pathlib import Path
from time import perf_counter

from culver.matching import Grouping, Matched
from culver.pipeline import partial_file
from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.notifications import NOTIFICATION_SUFFIX, Notifications, notification_file_name
from culver.pipeline.operator_work import SliceWork, with_join_time
from culver.pipeline.partial_file import Partial

_SUFFIX = ".part"


def put_partial(
    directory: Path, part: Partial, task: int, plan: BatchPlan, grouping: Grouping
) -> Notifications | None:
    """Joins what all tasks have found, where this is the last of them: the caller puts the result on disk and then
    calls `clear_partials`. Any other task stores what it has found, and gets None. Raises StorageCorrupt where what
    another task has stored is torn."""
    paths = _paths(directory, part, plan)
    own = paths.pop(task)
    others = _read(paths)
    if others is None:
        directory.mkdir(exist_ok=True)
        partial_file.write(own, part)
        others = _read(paths)
    return None if others is None else _join(part, others, grouping)


def clear_partials(directory: Path, joined: Notifications, plan: BatchPlan) -> None:
    for path in _paths(directory, joined, plan):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _read(paths: list[Path]) -> list[tuple[list[Matched], tuple[SliceWork, ...]]] | None:
    """The contents of all of them; None where one is not there."""
    try:
        return [partial_file.read(path) for path in paths]
    except FileNotFoundError:
        return None


def _join(
    part: Partial, others: list[tuple[list[Matched], tuple[SliceWork, ...]]], grouping: Grouping
) -> Notifications:
    began = perf_counter()
    found, work = list(part.found), list(part.work)
    for each, done in others:
        found += each
        work += done
    groups = grouping.group(found)
    work.sort(key=lambda each: each.slice)
    return Notifications(
        part.start,
        part.end,
        part.index_version,
        *groups,
        part.sizes,
        with_join_time(tuple(work), perf_counter() - began),
    )


def _paths(directory: Path, part: Partial | Notifications, plan: BatchPlan) -> list[Path]:
    """By task. The mark takes a while, and is the same for all; the part tells how the index was divided."""
    stem = notification_file_name(part.start, part.end).removesuffix(NOTIFICATION_SUFFIX)
    mark = "-".join([plan.mark, *sorted({each.division for each in part.work})])
    return [directory / f"{stem}.{mark}.{task}-{plan.tasks}{_SUFFIX}" for task in range(plan.tasks)]
