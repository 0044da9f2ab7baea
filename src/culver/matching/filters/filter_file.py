"""A columnar filter in one file: its subscriptions compiled, and what its owner keeps beside them.

container of kind "saved filter"
  meta     {"segment": the meta of a segment, or null where there are no subscriptions, "owner": the owner's}
  arrays   those of the segment, and the owner's, whose names begin with "owner."
"""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from culver.errors import NotFound, StorageCorrupt, StorageError, StorageFull
from culver.matching.filters.columnar import ColumnarFilter
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.segments import container
from culver.matching.index.segments.columnar_segment import contents, segment_of

_KIND = "saved filter"
_OWNER = "owner."


class FilterFile(NamedTuple):
    filter: ColumnarFilter
    meta: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def write_filter(
    path: Path, table: ClauseTable, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write the file, which appears as a whole and replaces one that is there. Raises StorageFull and StorageError
    with nothing changed."""
    segment, own = contents(table) if len(table.numbers) else (None, {})
    every = {**own, **{_OWNER + name: array for name, array in arrays.items()}}
    try:
        container.write(path, container.encode(_KIND, {"segment": segment, "owner": dict(meta)}, every))
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk that holds {path} is full") from exc
        raise StorageError(f"cannot write {path}: {exc.strerror}") from exc


def read_filter(path: Path) -> FilterFile:
    """Map the file. Processes share its pages, and the filter copies what it changes. Raises NotFound, StorageError,
    and StorageCorrupt for a file that is damaged or no such file at all."""
    try:
        opened = container.read(path)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as exc:
        raise StorageError(f"cannot read {path}: {exc.strerror}") from exc
    except StorageCorrupt as exc:
        raise StorageCorrupt(f"{path} {exc.details['damage']}; save it again") from exc
    if opened.kind != _KIND:
        raise StorageCorrupt(f"{path} is a {opened.kind} of an index, and no saved filter")
    meta, arrays = opened.meta, opened.arrays
    segment = None if meta["segment"] is None else segment_of(meta["segment"], arrays)
    own = {name.removeprefix(_OWNER): array for name, array in arrays.items() if name.startswith(_OWNER)}
    return FilterFile(ColumnarFilter(segment), meta["owner"], own)
