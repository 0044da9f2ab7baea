"""`/v1/sets`: many subscriptions of one form, as rows of values for a filter with parameters.

A body of rows comes as JSON (`rows`, or `columns`) or as an Arrow IPC stream with one column per parameter; the
latter carries the filter and the options as query parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from culver.errors import CulverError, InvalidFilter, InvalidRequest, TooLarge
from culver.gateway.api.request_fields import Fields, Query, parse_json
from culver.gateway.cpu_work import compute
from culver.gateway.gateway_context import Gateway, gateway_of
from culver.gateway.routes.arrow_bodies import read_table
from culver.gateway.routes.request_bodies import media_type, read_body
from culver.gateway.routes.subscription_routes import answer, read_lifetime_and_limits
from culver.matching import compiles_by_column
from culver.model.columns import Columns, column_of_array, column_of_values
from culver.model.language import Prepared, prepare
from culver.registry import BlockSpec, SetSummary, check_set_name

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_JSON = "application/json"
_QUERY = ("filter", "first", "expires_in_seconds", "max_count", "max_bytes", "max_age_seconds")
_DEFAULT_PAGE = 100
_MAX_PAGE = 1_000
_MAX_FIRST = 10**18


@dataclass(frozen=True, slots=True)
class _Form:
    """Where a value stands in the body, to name it."""

    by_column: bool = False

    def field(self, row: int | None, parameter: int | None) -> str:
        whole = "columns" if self.by_column else "rows"
        row_part = "" if row is None else f"[{row}]"
        column_part = "" if parameter is None else f"[{parameter - 1}]"
        return whole + (column_part + row_part if self.by_column else row_part + column_part)


async def add_rows(request: Request) -> Response:
    gateway = gateway_of(request)
    name = _path_name(request)
    is_arrow = _is_arrow(request.headers)
    query = Query(request.query_params, _QUERY if is_arrow else ())
    body = await read_body(request, gateway.settings.gateway.max_body_bytes)
    read = _read_arrow if is_arrow else _read_json
    spec, form = await compute(len(body), read, gateway, name, body, query)
    try:
        block = await gateway.site.subscriptions.add_block(spec)
    except (InvalidFilter, TooLarge) as exc:
        raise _located(exc, form) from exc
    members = {
        "set": block.name,
        "count": block.count,
        "first": block.first,
        "next": block.first + block.count,
        "since": block.since,
    }
    return answer(members, 201)


async def list_sets(request: Request) -> Response:
    gateway = gateway_of(request)
    query = Query(request.query_params, ("after", "limit"))
    limit = query.integer("limit", _DEFAULT_PAGE, 1, _MAX_PAGE)
    after = query.text("after")
    page = await gateway.site.subscriptions.sets(None if after is None else check_set_name(after), limit)
    return answer(
        {"sets": [_members(each) for each in page], "next": page[-1].name if len(page) == limit else None}
    )


async def remove_set(request: Request) -> Response:
    Query(request.query_params, ())
    count = await gateway_of(request).site.subscriptions.remove_set(_path_name(request))
    return answer({"removed": count})


def _members(summary: SetSummary) -> dict[str, Any]:
    return {
        "set": summary.name,
        "count": summary.count,
        "next": summary.next,
        "filters": list(summary.filters),
    }


def _path_name(request: Request) -> str:
    return check_set_name(request.path_params["name"])


def _is_arrow(headers: Headers) -> bool:
    kind = media_type(headers)
    if kind not in (_JSON, ARROW_STREAM):
        raise InvalidRequest(
            f"send the rows as {_JSON} or {ARROW_STREAM}, not {kind or 'without a content type'}",
            field="content-type",
            status=415,
        )
    return kind == ARROW_STREAM


def _read_json(gateway: Gateway, name: str, body: bytes, query: Query) -> tuple[BlockSpec, _Form]:
    fields = Fields(parse_json(body))
    options = read_lifetime_and_limits(gateway, fields)
    text, first = fields.text("filter"), fields.optional_integer("first", 0, _MAX_FIRST)
    rows, columns = fields.any("rows"), fields.any("columns")
    fields.close()
    if (rows is None) == (columns is None):
        raise InvalidRequest("give the values as either rows or columns", field="rows")
    form = _Form(by_column=rows is None)
    given: list[Any] = _lists(rows if columns is None else columns, form)
    prepared = prepare(text, gateway.settings.filters)
    if rows is not None:
        _check_count(gateway, prepared, len(given))
        given = _transposed(given, prepared.parameters)
    _check_shape(gateway, prepared, given, form)
    try:
        arrays = tuple(column_of_values(column, place + 1) for place, column in enumerate(given))
    except InvalidFilter as exc:
        raise _located(exc, form) from exc
    return BlockSpec(name, prepared, arrays, first, **options), form


def _read_arrow(gateway: Gateway, name: str, body: bytes, query: Query) -> tuple[BlockSpec, _Form]:
    mailbox = {
        limit: query.integer(limit, 0, 1, 2**62)
        for limit in ("max_count", "max_bytes", "max_age_seconds")
        if query.text(limit) is not None
    }
    members: dict[str, Any] = {"mailbox": mailbox} if mailbox else {}
    if query.text("expires_in_seconds") is not None:
        members["expires_in_seconds"] = query.seconds("expires_in_seconds", 0, float("inf"))
    options = read_lifetime_and_limits(gateway, Fields(members))
    first = None if query.text("first") is None else query.integer("first", 0, 0, _MAX_FIRST)
    prepared = prepare(query.required("filter"), gateway.settings.filters)
    table = read_table(body)
    form = _Form()
    _check_shape(gateway, prepared, table.columns, form)
    try:
        arrays: Columns = tuple(
            column_of_array(column, place + 1) for place, column in enumerate(table.columns)
        )
    except InvalidFilter as exc:
        raise _located(exc, form) from exc
    except (pa.ArrowException, UnicodeError) as exc:
        raise InvalidRequest(f"the columns cannot be read: {exc}", field="body") from exc
    return BlockSpec(name, prepared, arrays, first, **options), form


def _lists(value: Any, form: _Form) -> list[list[Any]]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{form.field(None, None)} must be an array", field=form.field(None, None))
    for place, item in enumerate(value):
        if not isinstance(item, list):
            field = form.field(None, place + 1) if form.by_column else form.field(place, None)
            raise InvalidRequest(f"{field} must be an array of values", field=field)
    return value


def _transposed(rows: list[list[Any]], parameters: int) -> list[Sequence[Any]]:
    for place, row in enumerate(rows):
        if len(row) != parameters:
            raise InvalidFilter(
                f"rows[{place}] has {len(row)} values, and the filter has {parameters} parameters",
                field=f"rows[{place}]",
                row=place,
            )
    return list(zip(*rows, strict=True))


def _check_shape(gateway: Gateway, prepared: Prepared, columns: Sequence[Any], form: _Form) -> None:
    parameters = prepared.parameters
    if not parameters:
        raise InvalidFilter("the filter has no parameter: put ? where the values go", field="filter")
    if len(columns) != parameters:
        raise InvalidFilter(
            f"there are {len(columns)} columns, and the filter has {parameters} parameters",
            field=form.field(None, None),
        )
    counts = [len(column) for column in columns]
    if len(set(counts)) > 1:
        place = next(place for place, count in enumerate(counts) if count != counts[0])
        raise InvalidRequest(
            f"{form.field(None, place + 1)} has {counts[place]} values, and the first column has {counts[0]}",
            field=form.field(None, place + 1),
        )
    _check_count(gateway, prepared, counts[0])


def _check_count(gateway: Gateway, prepared: Prepared, count: int) -> None:
    settings = gateway.settings.registry
    limit, setting = settings.max_rows, "max_rows"
    if not compiles_by_column(prepared):
        limit, setting = (
            min(limit, settings.max_batch),
            "max_batch: each row of this filter is compiled by itself",
        )
    if not count:
        raise InvalidRequest("there are no rows", field="rows")
    if count > limit:
        raise TooLarge(
            f"at most {limit} rows fit one request (registry.{setting}); send several",
            field="rows",
            limit=limit,
        )


def _located(error: CulverError, form: _Form) -> CulverError:
    """The same error with the place of the value as its field, where it is about one."""
    row, parameter = error.details.get("row"), error.details.get("parameter")
    if row is None:
        return error
    field = form.field(row, parameter)
    return type(error)(f"{field}: {error.message}", field=field, **error.details)
