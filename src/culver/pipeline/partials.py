"""Where the slices of a range meet: the last one to finish joins what all have found.

    partials/START-END.0-3.ntf    written by the task of slice 0
             START-END.1-3.ntf    written by the task of slice 1
             START-END.2-3.ntf    written by the task of slice 2, which finds the others there, joins them into
    notifications/START-END.ntf   and deletes the three

Two tasks that finish at the same moment may both join: they write the same content under the same name. A partial
result need not outlive a power cut, for the whole batch is run again then.
"""

import contextlib
from pathlib import Path

from culver.pipeline import notifications, operators
from culver.pipeline.notifications import Notifications


def put(directory: Path, part: Notifications, own: int, slices: int) -> Notifications | None:
    """Store what one slice has found. Where that completes the range: what all have found, which the caller puts on
    disk before it calls `clear`."""
    directory.mkdir(exist_ok=True)
    notifications.write(directory, part, durable=False, suffix=_suffix(own, slices))
    try:
        parts = [notifications.read(path, check_rows=False) for path in _paths(directory, part, slices)]
    except FileNotFoundError:
        return None
    # What a run before this one has left may be made with another version; its slice is on its way.
    if any(other.index_version != part.index_version for other in parts):
        return None
    return operators.join(parts)


def clear(directory: Path, joined: Notifications, slices: int) -> None:
    for path in _paths(directory, joined, slices):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _paths(directory: Path, part: Notifications, slices: int) -> list[Path]:
    stem = notifications.file_name(part.start, part.end).removesuffix(notifications.SUFFIX)
    return [directory / (stem + _suffix(own, slices)) for own in range(slices)]


def _suffix(own: int, slices: int) -> str:
    return f".{own}-{slices}{notifications.SUFFIX}"
