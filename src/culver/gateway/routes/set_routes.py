"""`/v1/sets`: many subscriptions of one form, as rows of values for a filter with parameters.

A body of rows comes as JSON (`rows`, or `columns`) or as an Arrow IPC stream with one column per parameter; the
latter carries the filter and the options as query parameters.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from starlette.datastructures import QueryParams
from starlette.requests import Request

from culver.errors import CulverError, InvalidFilter, InvalidRequest, TooLarge, counted
from culver.gateway.api.operations import JSON, NoParameters, Operations
from culver.gateway.api.request_reader import media_type, read_body, read_body_as, read_query_as
from culver.gateway.gateway_context import Gateway, compute, gateway_of
from culver.gateway.routes.arrow_bodies import read_table
from culver.gateway.routes.subscription_routes import lifetime_and_limits, warning_messages
from culver.matching import compiles_by_column
from culver.messages import (
    AcceptedRows,
    NewRows,
    RemovedSet,
    RowsQuery,
    SetPage,
    SetPageQuery,
    SubscriptionSet,
)
from culver.model.columns import Columns, column_of_array, column_of_values
from culver.model.formats import unsupported
from culver.model.language import Prepared, prepare
from culver.registry import BlockSpec, check_set_name

ARROW_STREAM = "application/vnd.apache.arrow.stream"

operations = Operations("sets", "Many subscriptions of one form")
_CONTENTS = {
    JSON: {
        "schema": {
            "$ref": "#/components/schemas/NewRows",
            "oneOf": [
                {"properties": {name: {"type": "array"}}, "required": [name]} for name in ("rows", "columns")
            ],
        },
        "example": {"filter": "symbol = ? AND price >= ?", "rows": [["ACME", 20], ["EMCA", 7.5]]},
    },
    ARROW_STREAM: {
        "schema": {"type": "string", "description": "An Arrow IPC stream, one column per parameter"}
    },
}


@operations.add(
    "POST /v1/sets/{name}",
    status=201,
    query=RowsQuery,
    contents=_CONTENTS,
    messages=(NewRows,),
    problems=(409,),
)
async def add_rows(request: Request) -> AcceptedRows:
    """Add rows to a set: one durable subscription each.

    Row i of the answer's `first`, `first` + 1, ... is subscription `NAME.i`. All rows are added or none. The
    parameters in the query are those of an Arrow stream; with JSON they are in the body.
    """
    gateway = gateway_of(request)
    name = request.path_params["name"]
    kind = media_type(request.headers)
    if kind not in (JSON, ARROW_STREAM):
        raise unsupported(
            f"send the rows as {JSON} or {ARROW_STREAM}, not {kind or 'without a content type'}"
        )
    if kind == JSON:
        read_query_as(NoParameters, request.query_params)
    limits = gateway.settings.gateway
    body = await read_body(request, limits.max_body_bytes, limits.body_bytes_per_second)
    read = _read_json if kind == JSON else _read_arrow
    spec, by_column = await compute(len(body), read, gateway, name, body, request.query_params)
    try:
        block = await gateway.site.subscriptions.add_block(spec)
    except (InvalidFilter, TooLarge) as exc:
        raise _located(exc, by_column) from exc
    warnings = warning_messages(spec.prepared.condition, None)
    return AcceptedRows(
        block.name, block.first, block.count, block.since, warnings, next=block.first + block.count
    )


@operations.add("GET /v1/sets")
async def list_sets(request: Request, query: SetPageQuery) -> SetPage:
    """List sets by name."""
    after = None if query.after is None else check_set_name(query.after, "after")
    page = await gateway_of(request).site.subscriptions.sets(after, query.limit)
    return SetPage(
        sets=[
            SubscriptionSet(set=each.name, count=each.count, next=each.next, filters=tuple(each.filters))
            for each in page
        ],
        next=page[-1].name if len(page) == query.limit else None,
    )


@operations.add("DELETE /v1/sets/{name}")
async def remove_set(request: Request) -> RemovedSet:
    """End all subscriptions named NAME.0, NAME.1, ..."""
    count = await gateway_of(request).site.subscriptions.remove_set(request.path_params["name"])
    return RemovedSet(removed=count)


def _read_json(gateway: Gateway, name: str, body: bytes, query: QueryParams) -> tuple[BlockSpec, bool]:
    rows = read_body_as(NewRows, body)
    options = lifetime_and_limits(gateway, rows.expires_in_seconds, rows.mailbox)
    if (rows.rows is None) == (rows.columns is None):
        raise InvalidRequest("give the values as either rows or columns", field="rows")
    by_column = rows.rows is None
    given: Sequence[Sequence[Any]] = rows.columns or ()
    prepared = prepare(rows.filter, gateway.settings.filters)
    if rows.rows is not None:
        _check_count(gateway, prepared, len(rows.rows))
        given = _transposed(rows.rows, prepared.parameters)
    _check_shape(gateway, prepared, given, by_column)
    try:
        arrays = tuple(column_of_values(column, place + 1) for place, column in enumerate(given))
    except InvalidFilter as exc:
        raise _located(exc, by_column) from exc
    return BlockSpec(name, prepared, arrays, rows.first, **options), by_column


def _read_arrow(gateway: Gateway, name: str, body: bytes, query: QueryParams) -> tuple[BlockSpec, bool]:
    rows = read_query_as(RowsQuery, query)
    options = lifetime_and_limits(gateway, rows.expires_in_seconds, rows, prefix="")
    prepared = prepare(rows.filter, gateway.settings.filters)
    table = read_table(body)
    _check_shape(gateway, prepared, table.columns, by_column=False)
    try:
        arrays: Columns = tuple(
            column_of_array(column, place + 1) for place, column in enumerate(table.columns)
        )
    except InvalidFilter as exc:
        raise _located(exc, by_column=False) from exc
    except (pa.ArrowException, UnicodeError) as exc:
        raise InvalidRequest(f"the columns cannot be read: {exc}", field="body") from exc
    return BlockSpec(name, prepared, arrays, rows.first, **options), False


def _transposed(rows: Sequence[Sequence[Any]], parameters: int) -> list[Sequence[Any]]:
    for place, row in enumerate(rows):
        if len(row) != parameters:
            raise InvalidFilter(
                f"rows[{place}] has {counted(len(row), 'value')}, and the filter has "
                + counted(parameters, "parameter"),
                field=f"rows[{place}]",
                row=place,
            )
    return list(zip(*rows, strict=True))


def _check_shape(gateway: Gateway, prepared: Prepared, columns: Sequence[Any], by_column: bool) -> None:
    parameters = prepared.parameters
    if not parameters:
        raise InvalidFilter("the filter has no parameter: put ? where the values go", field="filter")
    if len(columns) != parameters:
        raise InvalidFilter(
            f"the rows have {counted(len(columns), 'column')}, and the filter has "
            + counted(parameters, "parameter"),
            field=_place(by_column),
        )
    counts = [len(column) for column in columns]
    if len(set(counts)) > 1:
        place = next(place for place, count in enumerate(counts) if count != counts[0])
        column = _place(by_column, parameter=place + 1)
        raise InvalidRequest(
            f"{column} has {counted(counts[place], 'value')}, and the first column has {counts[0]}",
            field=column,
        )
    _check_count(gateway, prepared, counts[0])


def _check_count(gateway: Gateway, prepared: Prepared, count: int) -> None:
    settings = gateway.settings.registry
    limit, setting = settings.max_rows, "max_rows"
    if not compiles_by_column(prepared):
        limit = min(limit, settings.max_batch)
        setting = "max_batch: each row of this filter is compiled by itself"
    if not count:
        raise InvalidRequest("there are no rows", field="rows")
    if count > limit:
        raise TooLarge(
            f"at most {limit} rows fit one request (registry.{setting}); send several",
            field="rows",
            limit=limit,
        )


def _located(error: CulverError, by_column: bool) -> CulverError:
    """The same error with the place of the value as its field, where it is about one."""
    row, parameter = error.details.get("row"), error.details.get("parameter")
    if row is None:
        return error
    field = _place(by_column, row, parameter)
    return type(error)(f"{field}: {error.message}", field=field, **error.details)


def _place(by_column: bool, row: int | None = None, parameter: int | None = None) -> str:
    """Name a value, or a part of the values, by its place in the body."""
    row_part = "" if row is None else f"[{row}]"
    column_part = "" if parameter is None else f"[{parameter - 1}]"
    return f"columns{column_part}{row_part}" if by_column else f"rows{row_part}{column_part}"
