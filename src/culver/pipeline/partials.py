"""Where the tasks of a range meet: the last one to finish joins what all have found.

    partials/START-END.5-8-1f00ba42-90c1d3aa.0-3.ntf    written by task 0 of 3, by a plan and a division
             START-END.5-8-1f00ba42-90c1d3aa.1-3.ntf    written by task 1                 with these marks
             START-END.5-8-1f00ba42-90c1d3aa.2-3.ntf    written by task 2, which finds the others there, joins them
    notifications/START-END.ntf                         into this, and deletes the three

Two tasks that finish at the same moment may both join: they write the same content under the same name. A worker that
has outlived its driver may still write; by another plan, or with an index that was made anew meanwhile under
the same version, it does so under other names. A partial result need not outlive a power cut, for the whole batch is
run again then.
"""

import contextlib
from pathlib import Path

from culver.pipeline import notifications, operators
from culver.pipeline.notifications import Notifications
from culver.pipeline.plan import Plan


def put(directory: Path, part: Notifications, task: int, plan: Plan) -> Notifications | None:
    """Store what one task has found. Where that completes the range: what all have found, which the caller puts on
    disk before it calls `clear`."""
    directory.mkdir(exist_ok=True)
    notifications.write(directory, part, durable=False, suffix=_suffixes(part, plan)[task])
    try:
        parts = [notifications.read(path, check_rows=False) for path in _paths(directory, part, plan)]
    except FileNotFoundError:
        return None
    return operators.join(parts)


def clear(directory: Path, joined: Notifications, plan: Plan) -> None:
    for path in _paths(directory, joined, plan):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _paths(directory: Path, part: Notifications, plan: Plan) -> list[Path]:
    stem = notifications.file_name(part.start, part.end).removesuffix(notifications.SUFFIX)
    return [directory / (stem + suffix) for suffix in _suffixes(part, plan)]


def _suffixes(part: Notifications, plan: Plan) -> list[str]:
    """By task. The mark takes a while, and is the same for all; the part tells how the index was divided."""
    mark = "-".join([plan.mark, *sorted({each.division for each in part.work})])
    return [f".{mark}.{task}-{plan.tasks}{notifications.SUFFIX}" for task in range(plan.tasks)]
