"""`culver.Matcher`: the matcher by itself, in any Python program, without a site."""

import contextlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.config import UNLIMITED_FILTERS
from culver.errors import Conflict, CulverError, InvalidFilter, InvalidRequest, NotFound, TooLarge, counted
from culver.inputs import RowsLike, as_table
from culver.matcher.column_mapping import ColumnMapping
from culver.matcher.event_values import event_of, events_of
from culver.matcher.frames import TableForm, frame_of
from culver.matcher.id_table import IdTable, checked_ids, shown_id
from culver.matcher.match_lists import LISTS, PAIRS, in_order, lists_of, pairs_of, split
from culver.matcher.packed_texts import PackedTexts
from culver.matcher.text_table import TextTable
from culver.matching import BatchColumns, ColumnarFilter, ColumnarMatcher, Matches, read_filter, write_filter
from culver.model import Domain
from culver.model.columns import column_of_array, pack
from culver.model.language import Explanation, explain, parse, prepare

_FIRST_ROWS, _MOST_ROWS = 1024, 1 << 16
# Matches that are worked on at a time, roughly.
_MOST_MATCHES = 1 << 24
# So many numbers of removed filters are not worth a renumbering.
_FEW_HOLES = 4096


class Matcher:
    """Finds the filters that events satisfy.

        matcher = culver.Matcher()
        matcher.add("a1", "price > 20 AND symbol = 'XYZ'")
        matcher.match({"symbol": "XYZ", "price": 21})  # ["a1"]

    Threads may share it: any number may match at once, beside one that adds and removes. A match sees every change
    that was complete when it began. `close`, or the end of a `with`, waits for the thread that merges what was added.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._filter = ColumnarFilter()
        self._ids = IdTable()
        self._texts = TextTable()
        self._closed = False

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map what `save` has written. Processes that open the same file share its memory; what one of them changes
        afterwards is its own. Raises NotFound, StorageError, StorageCorrupt and InvalidRequest."""
        stored = read_filter(_path(path))
        matcher = cls()
        matcher._filter = stored.filter
        matcher._ids = IdTable(PackedTexts(stored.arrays["id_start"], stored.arrays["id_bytes"]))
        matcher._texts = TextTable.unpacked(stored.meta, stored.arrays)
        return matcher

    # --- filters ------------------------------------------------------------------------------------------

    def add(self, id: str, filter: str) -> None:  # noqa: A002 (what users write)
        """Add a filter. Raises InvalidFilter with the id, and Conflict where the id is taken."""
        try:
            predicate = parse(_text(filter, "a filter"))
        except CulverError as exc:
            raise _about(exc, f"filter {shown_id(id)}", id=id) from exc
        with self._opened():
            listed = checked_ids([id])
            self._check_new(listed)
            number = self._ids.append(listed)
            self._texts.add(number, filter)
            self._filter.add([(number, predicate)])

    def add_many(self, filter: str, rows: RowsLike, ids: Iterable[str] | str = "row") -> list[str]:  # noqa: A002
        """Add one filter for each row of values, which take the places of the filter's `?`. Hundreds of thousands a
        second, where the filter is a conjunction of comparisons, or a disjunction of those.

        `rows` is a list of rows, a dictionary of columns, an Arrow table or a data frame. `ids` has an id for each
        row, or a text that begins each: "row" makes row.0, row.1 and so on, after those that there are.

        Returns the ids. Raises InvalidFilter, TooLarge and InvalidRequest, with `row` where it is about one, and
        Conflict; then it has added none.
        """
        prepared = prepare(_text(filter, "a filter"))
        if not prepared.parameters:
            raise InvalidFilter("the filter has no parameter: put ? where the values go", field="filter")
        table = as_table(rows)
        if table.num_columns != prepared.parameters and table.num_rows:
            given, wanted = counted(table.num_columns, "column"), counted(prepared.parameters, "parameter")
            raise InvalidRequest(f"the rows have {given}, and the filter has {wanted}", field="rows")
        try:
            columns = tuple(column_of_array(each, place) for place, each in enumerate(table.columns, 1))
            with self._opened():
                listed = self._ids_for(ids, table.num_rows)
                self._check_new(listed)
                if not listed:
                    return []
                first = self._ids.count
                self._filter.add_rows(prepared, np.arange(first, first + len(listed)), columns)
                self._ids.append(listed)
                self._texts.add_rows(first, prepared.text, columns)
                return listed
        except (InvalidFilter, TooLarge) as exc:
            row = exc.details.get("row")
            raise (exc if row is None else _about(exc, f"row {row}")) from exc
        except (pa.ArrowException, UnicodeDecodeError) as exc:
            raise InvalidRequest(f"these are no rows of values: {exc}", field="rows") from exc

    def remove(self, id: str) -> None:  # noqa: A002
        """Remove a filter. Raises NotFound where there is none with this id."""
        with self._opened():
            number = self._number(id)
            self._ids.remove(id)
            self._filter.remove([number])
            self._texts.remove(number)
            if self._ids.count > 2 * len(self._ids) + _FEW_HOLES:
                self._renumber()

    def filter(self, id: str) -> str:  # noqa: A002
        """The text of a filter. Raises NotFound."""
        with self._opened():
            return self._texts.text(self._number(id))

    def __len__(self) -> int:
        with self._opened():
            return len(self._ids)

    def __contains__(self, id: object) -> bool:  # noqa: A002
        with self._opened():
            return isinstance(id, str) and id in self._ids.numbers()

    def __iter__(self) -> Iterator[str]:
        """The ids, in the order of adding."""
        with self._opened():
            return iter(list(self._ids.numbers()))

    @property
    def attributes(self) -> frozenset[str]:
        """The names of attributes that the filters mention."""
        return self._with_array()[0].attributes

    @property
    def domains(self) -> frozenset[tuple[str, Domain | None]]:
        """The attributes, each with a domain of values that a filter compares it with, or None for any; perhaps some
        of filters that were removed."""
        return self._with_array()[0].domains

    # --- matching -----------------------------------------------------------------------------------------

    def match(self, events: Any, *, timezone: str | None = None) -> Any:
        """The ids of the filters that each event satisfies, in the order in which they were added.

            an event (a dictionary)            a list of ids
            a list of events                   a list of such lists
            an Arrow table, a record batch     a chunked array, an array: of lists of strings
            a frame of pandas or Polars        a Series of lists, for pandas with the frame's index

        An event means what it means when it is published. docs/matcher.md says what the types of columns mean;
        `timezone` is the zone of timestamps that have none. Raises InvalidEvent.
        """
        if type(events) is dict:
            return self._match_one(events)
        frame = frame_of(events)
        if frame is not None:
            return frame.column(self._lists(frame, timezone))
        if isinstance(events, Mapping) or _is_row(events):
            return self._match_one(events)
        matcher, names = self._with_strings()
        found: list[list[str]] = []
        for packed in pack(events_of(_iterable(events)), 0):
            matches = in_order(matcher.match(BatchColumns(packed.batch), 0))
            listed = names[matches.numbers].tolist()
            bounds = matches.offsets.tolist()
            found += [listed[begin:end] for begin, end in pairwise(bounds)]
        return found

    def explain(self, id: str, event: Any) -> Explanation:  # noqa: A002
        """Why an event matches a filter, or why not: constraint by constraint. `print` shows it. Raises NotFound and
        InvalidEvent."""
        return explain(parse(self.filter(id), UNLIMITED_FILTERS), event_of(event))

    def match_pairs(self, events: Any, *, timezone: str | None = None) -> pa.Table:
        """An Arrow table with a row for each match: `row`, the place of the event among those given, and `id`. In
        the order of events, then of adding. Takes what `match` takes."""
        frame = frame_of(events)
        matcher, ids = self._with_array()
        if frame is not None:
            found = self._found(frame, timezone, matcher)
        else:
            single = isinstance(events, Mapping) or _is_row(events)
            packed = pack([event_of(events)] if single else events_of(_iterable(events)), 0)
            found = (in_order(matcher.match(BatchColumns(each.batch), 0)) for each in packed)
        batches: list[pa.RecordBatch] = []
        row = 0
        for part in (part for matches in found for part in split(matches, ids)):
            batches.append(pairs_of(part, ids, row))
            row += len(part.offsets) - 1
        return pa.Table.from_batches(batches, PAIRS)

    def _match_one(self, event: Any) -> list[str]:
        matcher, names = self._with_strings()
        numbers = matcher.match_event(event_of(event))
        numbers.sort()
        listed: list[str] = names[numbers].tolist()
        return listed

    def _lists(self, frame: TableForm, timezone: str | None) -> pa.ChunkedArray:
        matcher, ids = self._with_array()
        chunks = [
            lists_of(part, ids)
            for matches in self._found(frame, timezone, matcher)
            for part in split(matches, ids)
        ]
        return pa.chunked_array(chunks, LISTS)

    def _found(self, frame: TableForm, timezone: str | None, matcher: ColumnarMatcher) -> Iterator[Matches]:
        """The matches of a table, some rows at a time."""
        table = frame.table(matcher.attributes)
        mapping = ColumnMapping(table.schema, matcher.attributes, timezone)
        begin, step = 0, _FIRST_ROWS
        while begin < table.num_rows:
            for rows in _batches(table.slice(begin, step)):
                try:
                    batch = mapping.batch(rows)
                except CulverError as exc:
                    raise _shifted(exc, begin) from exc
                yield in_order(matcher.match(BatchColumns(batch), 0))
                begin += rows.num_rows
            step = max(1, min(_MOST_ROWS, int(_MOST_MATCHES / max(1.0, matcher.matches_per_row()))))

    # --- files --------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything into one file for `open`, which appears as a whole and replaces one that is there. Raises
        StorageFull, StorageError and InvalidRequest with nothing changed."""
        target = _path(path)
        with self._opened():
            kept, table = self._ids.kept(), self._filter.table()
            texts, ids = self._texts.renumbered(kept), self._ids.renumbered().packed()
        meta, arrays = texts.packed()
        arrays |= {"id_start": ids.starts, "id_bytes": ids.data}
        table = replace(table, numbers=np.searchsorted(kept, table.numbers))
        write_filter(target, table, meta, arrays)

    def close(self) -> None:
        """Let go of files and memory. Harmless to call again; every other use then raises ValueError."""
        with self._lock:
            self._filter.close()
            self._closed = True
            self._filter, self._ids, self._texts = ColumnarFilter(), IdTable(), TextTable()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------

    def _with_strings(self) -> tuple[ColumnarMatcher, NDArray[np.object_]]:
        """The matcher of now, and the ids by number. Both stay as they are for whoever has them."""
        with self._lock:
            self._check_open()
            return self._filter.settled(), self._ids.objects()

    def _with_array(self) -> tuple[ColumnarMatcher, pa.Array]:
        """The same, with the ids as an Arrow array."""
        with self._lock:
            self._check_open()
            return self._filter.settled(), self._ids.array()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        """Nobody changes or closes the matcher meanwhile."""
        with self._lock:
            self._check_open()
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the matcher is closed")

    def _number(self, id_: Any) -> int:
        number = self._ids.numbers().get(_text(id_, "an id"))
        if number is None:
            raise NotFound(f"there is no filter {shown_id(id_)}", field="id")
        return number

    def _check_new(self, ids: Collection[str]) -> None:
        known = self._ids.numbers()
        if not known.keys().isdisjoint(ids):
            taken = next(each for each in ids if each in known)
            raise Conflict(f"there is a filter {shown_id(taken)} already; remove it first", field="id")

    def _ids_for(self, ids: Iterable[str] | str, count: int) -> list[str]:
        if isinstance(ids, str):
            return checked_ids(self._ids.unused(checked_ids([ids])[0], count))
        if not isinstance(ids, Iterable):
            wanted = "a list of strings, or a string that begins each"
            raise InvalidRequest(f"ids are {wanted}, not {type(ids).__name__}", field="ids")
        given = ids.to_pylist() if isinstance(ids, pa.Array | pa.ChunkedArray) else list(ids)
        try:
            listed = checked_ids(given)
        except InvalidRequest as exc:
            row = exc.details["place"]
            raise InvalidRequest(f"row {row}: {exc.message}", field="ids", row=row) from exc
        if len(listed) != count:
            raise InvalidRequest(
                f"there are {counted(len(listed), 'id')} for {counted(count, 'row')}", field="ids"
            )
        if len(set(listed)) < count:
            seen: set[str] = set()
            for each in listed:
                if each in seen:
                    raise Conflict(f"the id {shown_id(each)} is given to two rows", field="ids")
                seen.add(each)
        return listed

    def _renumber(self) -> None:
        """Forget the numbers of removed filters."""
        kept = self._ids.kept()
        table = self._filter.table()
        self._filter.close()
        self._filter = ColumnarFilter.of_table(replace(table, numbers=np.searchsorted(kept, table.numbers)))
        self._ids, self._texts = self._ids.renumbered(), self._texts.renumbered(kept)


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise InvalidRequest(f"{what} is a string, not {type(given).__name__}", field=what.split()[1])
    return given


def _path(given: Any) -> Path:
    try:
        path = Path(os.fsdecode(given))
        if path.name and b"\0" not in os.fsencode(path):
            return path
    except (TypeError, UnicodeEncodeError):
        pass
    raise InvalidRequest(f"{ascii(given)[:100]} is no path of a file", field="path")


def _about(error: CulverError, what: str, **details: Any) -> CulverError:
    return type(error)(f"{what}: {error.message}", field=error.field, **error.details, **details)


def _shifted(error: CulverError, rows: int) -> CulverError:
    """The error about a slice of a table, with the row counted in the table."""
    row = error.details.get("row")
    if row is None or not rows:
        return error
    message = error.message.replace(f"in row {row}", f"in row {row + rows}")
    return type(error)(message, field=error.field, **{**error.details, "row": row + rows})


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows in as few batches as Arrow can make: strings of more than 2 GiB do not fit into one, and some
    dictionaries that differ cannot be joined."""
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        table = table.combine_chunks()
    batches: list[pa.RecordBatch] = table.to_batches()
    return batches


def _is_row(given: Any) -> bool:
    return isinstance(given, tuple) and hasattr(given, "asDict")


def _iterable(given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        wanted = "an event, a list of events, an Arrow table, or a frame of pandas or Polars"
        raise InvalidRequest(f"what is matched is {wanted}, not {type(given).__name__}", field="events")
    return given
