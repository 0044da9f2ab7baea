"""Reads the rows of values that `culver subs load` makes subscriptions of.

The values of Parquet and NDJSON have types. Those of CSV are texts, and nothing here guesses: a column's type stands
in its heading (`price:real`) or in `--types`, or the filter requires it (`price * 2 > ?` takes numbers).
"""

import csv
import io
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culver.errors import CulverError, InvalidFilter, InvalidRequest, counted, did_you_mean
from culver.model import Domain, parse_timestamp
from culver.model.language import Prepared

if TYPE_CHECKING:
    from culver.model.columns import Columns

TYPES = ("integer", "real", "string", "boolean", "timestamp")

_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_BOOLEANS = {"true": True, "false": False}
# Integers up to here are reals as well.
_EXACT = 2**53


def read_rows(file: str, prepared: Prepared, types: Sequence[str] | None) -> "Columns":
    """The columns of a file, or of standard input, one for each parameter. `types` are for CSV, one for each column.
    Raises InvalidRequest, with a `suggestion` of types in its details where nothing says which they are."""
    import pyarrow as pa
    from pyarrow import parquet

    from culver.model.columns import column_of_array

    suffix = Path(file).suffix
    if types is not None and suffix != ".csv":
        raise InvalidRequest("--types is for CSV files: values of other files have types", field="types")
    try:
        if suffix == ".parquet":
            table = parquet.read_table(file)
            _check_width(table.num_columns, prepared)
            return tuple(column_of_array(each, place) for place, each in enumerate(table.columns, 1))
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise InvalidRequest(f"cannot read {file}: {exc.strerror or exc}", field="file") from exc
    except pa.ArrowException as exc:
        raise InvalidRequest(f"{file} is not a Parquet file: {exc}", field="file") from exc
    except InvalidFilter as exc:
        raise _placed(exc, f"row {exc.details.get('row')}") from exc
    return _csv_columns(data, prepared, types) if suffix == ".csv" else _line_columns(data, prepared)


# --- NDJSON ---------------------------------------------------------------------------------------------


def _line_columns(data: bytes, prepared: Prepared) -> "Columns":
    from culver.model.columns import column_of_values

    rows: list[list[Any]] = []
    numbers: list[int] = []
    decoder = msgspec.json.Decoder(list[Any])
    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError as exc:
            raise InvalidRequest(f"line {number} is not an array of values: {exc}", field="file") from exc
        _check_width(len(row), prepared, f"line {number}")
        rows.append(row)
        numbers.append(number)
    _check_any(rows)
    try:
        return tuple(column_of_values(each, place) for place, each in enumerate(zip(*rows, strict=True), 1))
    except InvalidFilter as exc:
        raise _placed(exc, f"line {numbers[exc.details['row']]}") from exc


# --- CSV ------------------------------------------------------------------------------------------------


def _csv_columns(data: bytes, prepared: Prepared, types: Sequence[str] | None) -> "Columns":
    from culver.model.columns import column_of_values

    heading, rows, lines = _csv_rows(data, prepared)
    names, kinds = _headed(heading)
    if types is not None:
        if len(types) != len(kinds):
            raise InvalidRequest(
                f"--types names {counted(len(types), 'type')}, and there are {counted(len(kinds), 'column')}",
                field="types",
            )
        kinds = [_known_type(kind, "--types") for kind in types]
    texts = list(zip(*rows, strict=True))
    wanted = [
        kind or (None if domain is None else _kind_within(domain, column))
        for kind, domain, column in zip(kinds, prepared.domains(), texts, strict=True)
    ]
    if None in wanted:
        raise _unknown_types(names, wanted, texts, lines)
    columns = []
    for place, (name, kind, column) in enumerate(zip(names, wanted, texts, strict=True), 1):
        assert kind is not None
        read = _READERS[kind]
        values = []
        for text, line in zip(column, lines, strict=True):
            try:
                values.append(read(text))
            except ValueError as exc:
                shown = text if len(text) <= 40 else text[:37] + "..."
                raise InvalidRequest(
                    f"line {line}, column {name}: {shown!r} {exc}", field="file", line=line
                ) from None
        try:
            columns.append(column_of_values(values, place))
        except InvalidFilter as exc:
            raise _placed(exc, f"line {lines[exc.details['row']]}") from exc
    return tuple(columns)


def _csv_rows(data: bytes, prepared: Prepared) -> tuple[list[str], list[list[str]], list[int]]:
    """The headings, the rows, and the line on which each row ends."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"the file is not UTF-8 at byte {exc.start}", field="file") from exc
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        heading = next(reader, [])
        _check_width(len(heading), prepared)
        for row in reader:
            if row:
                _check_width(len(row), prepared, f"line {reader.line_num}")
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as exc:
        raise InvalidRequest(f"line {reader.line_num} is not CSV: {exc}", field="file") from exc
    _check_any(rows)
    return heading, rows, lines


def _headed(heading: Sequence[str]) -> tuple[list[str], list[str | None]]:
    """The names of columns, and the types of those that name one."""
    names: list[str] = []
    kinds: list[str | None] = []
    for each in heading:
        name, colon, kind = each.rpartition(":")
        names.append((name if colon else each).strip())
        kinds.append(_known_type(kind, f"the heading {each}") if colon else None)
    return names, kinds


def _known_type(kind: str, where: str) -> str:
    kind = kind.strip().lower()
    if kind not in TYPES:
        raise InvalidRequest(
            f"{where}: there is no type {kind!r}; {did_you_mean(kind, TYPES)}", field="types"
        )
    return kind


def _kind_within(domain: Domain, column: Sequence[str]) -> str:
    """The type of a column whose values the filter compares with those of a domain."""
    if domain is Domain.NUMBER:
        return "integer" if all(map(_WHOLE.fullmatch, column)) else "real"
    return str(domain)


def _unknown_types(
    names: Sequence[str], kinds: Sequence[str | None], columns: Sequence[Sequence[str]], lines: Sequence[int]
) -> InvalidRequest:
    """The question of which types the columns are that have none, with an answer to choose and what speaks against
    it."""
    suggestion = [kind or _fitting(column) for kind, column in zip(kinds, columns, strict=True)]
    doubts = []
    for name, kind, found, column in zip(names, kinds, suggestion, columns, strict=True):
        if kind is None and found == "real":
            odd = next((place for place, text in enumerate(column) if not _REAL.fullmatch(text)), None)
            if odd is not None:
                doubts.append(f"; most of {name} are numbers, but not {column[odd]!r} on line {lines[odd]}")
    unknown = ", ".join(name for name, kind in zip(names, kinds, strict=True) if kind is None)
    heading = ",".join(f"{name}:{kind}" for name, kind in zip(names, suggestion, strict=True))
    return InvalidRequest(
        f"nothing says of which type the values of {unknown} are{''.join(doubts)}; if these types are right, write "
        f"the first line as {heading}, or give --types {','.join(suggestion)}",
        field="types",
        suggestion=suggestion,
    )


def _fitting(column: Sequence[str]) -> str:
    """A type that all values have, or numbers where most are, to suggest. A leading zero (a ZIP code) makes texts of
    numbers."""
    if not any(map(_LEADING_ZERO.match, column)):
        if all(map(_WHOLE.fullmatch, column)):
            return "integer"
        if 2 * sum(1 for text in column if _REAL.fullmatch(text)) >= len(column):
            return "real"
    return next((kind for kind in ("boolean", "timestamp") if _all_read(kind, column)), "string")


def _all_read(kind: str, column: Sequence[str]) -> bool:
    try:
        return all(_READERS[kind](text) is not None for text in column)
    except ValueError:
        return False


def _integer(text: str) -> int:
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError("is not an integer")
    if len(text) > 100 or not -(2**63) <= int(text) < 2**63:
        raise ValueError("does not fit in 64 bits; make the column real if that will do")
    return int(text)


def _real(text: str) -> float:
    if not _REAL.fullmatch(text.strip()):
        raise ValueError("is not a number")
    if len(text) <= 100 and _WHOLE.fullmatch(text.strip()) and abs(int(text)) > _EXACT:
        raise ValueError(
            "is an integer beyond 2^53, too large for a column of reals; write it as a real (1e16)"
        )
    real = float(text)
    if math.isinf(real):
        raise ValueError("is too large for a 64-bit real")
    return real


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError("is neither true nor false")
    return value


def _timestamp(text: str) -> dict[str, str]:
    try:
        parse_timestamp(text)
    except ValueError as exc:
        raise ValueError(f"cannot be used: {exc}") from None
    return {"$timestamp": text}


_READERS: dict[str, Callable[[str], Any]] = {
    "integer": _integer,
    "real": _real,
    "string": str,
    "boolean": _boolean,
    "timestamp": _timestamp,
}


# --- checks ---------------------------------------------------------------------------------------------


def _check_width(found: int, prepared: Prepared, where: str = "the file") -> None:
    wanted = prepared.parameters
    if not wanted:
        raise InvalidFilter("the filter has no parameter: put ? where the values go", field="filter")
    if found != wanted:
        what = counted(found, "column" if where == "the file" else "value")
        raise InvalidRequest(
            f"{where} has {what}, and the filter has {counted(wanted, 'parameter')}", field="file"
        )


def _check_any(rows: Sequence[Any]) -> None:
    if not rows:
        raise InvalidRequest("there are no rows", field="file")


def _placed(error: CulverError, where: str) -> InvalidRequest:
    return InvalidRequest(f"{where}: {error.message}", field="file", **error.details)
