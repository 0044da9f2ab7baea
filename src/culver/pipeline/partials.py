"""Where the slices of a range meet: the last one to finish joins what all have found.

    partials/START-END.5-0-3.ntf    written by the task of slice 0 of 3, with index version 5
             START-END.5-1-3.ntf    written by the task of slice 1
             START-END.5-2-3.ntf    written by the task of slice 2, which finds the others there, joins them into
    notifications/START-END.ntf     and deletes the three

Two tasks that finish at the same moment may both join: they write the same content under the same name. A worker that
has outlived its driver may still write; with another version it does so under other names. A partial result need
not outlive a power cut, for the whole batch is run again then.
"""

import contextlib
from pathlib import Path

from culver.pipeline import notifications, operators
from culver.pipeline.notifications import Notifications


def put(directory: Path, part: Notifications, own: int, slices: int) -> Notifications | None:
    """Store what one slice has found. Where that completes the range: what all have found, which the caller puts on
    disk before it calls `clear`."""
    directory.mkdir(exist_ok=True)
    notifications.write(directory, part, durable=False, suffix=_suffix(part, own, slices))
    try:
        parts = [notifications.read(path, check_rows=False) for path in _paths(directory, part, slices)]
    except FileNotFoundError:
        return None
    return operators.join(parts)


def clear(directory: Path, joined: Notifications, slices: int) -> None:
    for path in _paths(directory, joined, slices):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _paths(directory: Path, part: Notifications, slices: int) -> list[Path]:
    stem = notifications.file_name(part.start, part.end).removesuffix(notifications.SUFFIX)
    return [directory / (stem + _suffix(part, own, slices)) for own in range(slices)]


def _suffix(part: Notifications, own: int, slices: int) -> str:
    return f".{part.index_version}-{own}-{slices}{notifications.SUFFIX}"
