"""Tables as a program has them: Arrow, pandas, Polars, and whatever else gives an Arrow stream.

Neither pandas nor Polars is imported before a program brings a frame of theirs.
"""

import contextlib
import importlib
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime
from typing import Any, Protocol

import pyarrow as pa

from culver.errors import InvalidEvent
from culver.inputs import is_a
from culver.matcher.column_mapping import meant_attributes

NAME = "matches"
"""What a column of results is called where it must have a name."""


class TableForm(Protocol):
    """One table, and the form in which its owner expects a column."""

    def table(self, names: Collection[str]) -> pa.Table:
        """The columns that may hold attributes of these names, at least. Raises InvalidEvent."""

    def column(self, lists: pa.ChunkedArray) -> Any:
        """A list of strings for each row."""


def frame_of(given: Any) -> TableForm | None:
    """None where `given` is no table."""
    if isinstance(given, pa.RecordBatch):
        return _Batch(given)
    if isinstance(given, pa.Table):
        return _Table(given)
    if is_a(given, "pandas", "DataFrame"):
        return _Pandas(given)
    if is_a(given, "polars", "DataFrame"):
        return _Polars(given)
    if is_a(given, "polars", "LazyFrame"):
        raise InvalidEvent("a LazyFrame has no rows yet: call .collect() first")
    if is_a(given, "pyspark", "DataFrame"):
        raise InvalidEvent("a DataFrame of Spark is matched by culver.spark.match")
    if hasattr(given, "__arrow_c_stream__"):
        with _reading():
            return _Table(pa.table(given))
    return None


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """What goes wrong inside is said of the frame."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        reason = " ".join(map(str, exc.args)).encode(errors="backslashreplace").decode()
        raise InvalidEvent(f"the frame cannot be read: {reason}") from exc


def _counted(table: pa.Table, rows: int) -> pa.Table:
    """The table, with its number of rows if it has no columns."""
    return table if table.num_columns else pa.table({"": pa.nulls(rows)})


class _Table:
    def __init__(self, given: pa.Table) -> None:
        self._given = given

    def table(self, names: Collection[str]) -> pa.Table:
        taken = self._given.select(_columns_for(names, self._given.column_names))
        return _counted(taken, self._given.num_rows)

    def column(self, lists: pa.ChunkedArray) -> Any:
        return lists


class _Batch(_Table):
    def __init__(self, given: pa.RecordBatch) -> None:
        super().__init__(pa.Table.from_batches([given]))

    def column(self, lists: pa.ChunkedArray) -> Any:
        return lists.combine_chunks()


class _Pandas:
    def __init__(self, given: Any) -> None:
        self._given = given

    def table(self, names: Collection[str]) -> pa.Table:
        frame = self._given
        taken = frame.iloc[:, _columns_for(names, frame.columns)]
        with _reading():
            table = pa.Table.from_pandas(taken, preserve_index=False)
        for place, field in enumerate(table.schema):
            if pa.types.is_temporal(field.type) and taken.dtypes.iloc[place].kind == "O":
                _check_times(field.name, taken.iloc[:, place])
        return _counted(table, len(frame))

    def column(self, lists: pa.ChunkedArray) -> Any:
        pandas = importlib.import_module("pandas")
        return pandas.Series(lists.to_pylist(), index=self._given.index, dtype=object, name=NAME)


class _Polars:
    def __init__(self, given: Any) -> None:
        self._given = given

    def table(self, names: Collection[str]) -> pa.Table:
        frame = self._given
        taken = frame[:, _columns_for(names, frame.columns)]
        with _reading():
            return _counted(taken.to_arrow(), len(frame))

    def column(self, lists: pa.ChunkedArray) -> Any:
        polars = importlib.import_module("polars")
        return polars.Series(NAME, lists, dtype=polars.List(polars.String))


def _check_times(name: str, values: Iterable[Any]) -> None:
    """Refuse objects of several kinds, which Arrow would turn into the kind of the first silently."""
    found: dict[str, int] = {}
    for row, value in enumerate(values):
        if isinstance(value, datetime):
            if value == value:  # unlike NaT of pandas
                zone = "without" if value.utcoffset() is None else "with"
                found.setdefault(f"timestamps {zone} a time zone", row)
        elif isinstance(value, date):
            found.setdefault("dates", row)
    if len(found) > 1:
        (first, _), (other, row), *_ = found.items()
        what = f"the column {name!r} holds {first} and, in row {row}, {other}: make them one kind"
        raise InvalidEvent(what, field=name, row=row)


def _columns_for(names: Collection[str], columns: Iterable[Any]) -> list[int]:
    """The places of the columns that are, or whose fields may be, what these names mean."""
    wanted = meant_attributes(names)
    wanted |= {name[:place] for name in wanted for place, each in enumerate(name) if each == "."}
    return [
        place for place, column in enumerate(columns) if unicodedata.normalize("NFC", str(column)) in wanted
    ]
