"""Reads requests within bounds, and into their structs.

What a struct does not allow is refused with the path of the member at fault.
"""

import asyncio
import functools
import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request

from culver.delivery import parse_delivery_id
from culver.errors import CulverError, InvalidEvent, InvalidRequest, TooLarge
from culver.model import DELIVERY_ID, SUBSCRIPTION_ID
from culver.model.formats import parse_media_type, strict_json, unsupported

MAX_OFFSET = 2**63 - 1
REQUEST_DEPTH = 8
STALL_SECONDS = 30.0
WHOLE_BODY = "body"

_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")

Message = TypeVar("Message")


def check_encoding(headers: Headers) -> None:
    """Raises InvalidRequest (status 415) for a compressed body: the gateway decompresses nothing, so no small body
    can become a huge one."""
    encoding = ", ".join(headers.getlist("content-encoding")).strip().lower()
    if encoding not in ("", "identity"):
        raise InvalidRequest(
            f"send the body as it is, not with Content-Encoding {encoding[:100]!r}",
            field="content-encoding",
            status=415,
        )


async def read_body(
    request: Request, limit: int, bytes_per_second: int = 0, stall_seconds: float = STALL_SECONDS
) -> bytes:
    """Read the whole body, at most `limit` bytes. Raises TooLarge as soon as the declared or the received length
    passes it; InvalidRequest where the body is compressed, when nothing arrives for `stall_seconds`, and when after
    that time it has come more slowly than `bytes_per_second` on average."""
    check_encoding(request.headers)
    too_large = TooLarge(
        f"the body is larger than {limit} bytes; send less at once, or raise gateway.max_body_bytes",
        field="body",
        limit=limit,
    )
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise too_large
    chunks: list[bytes] = []
    total = 0
    stream, loop = request.stream(), asyncio.get_running_loop()
    began = loop.time()
    while True:
        deadline = loop.time() + stall_seconds
        if bytes_per_second:
            deadline = min(deadline, began + stall_seconds + total / bytes_per_second)
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(stream, b"")
        except TimeoutError:
            raise InvalidRequest(
                f"the body stopped arriving for {stall_seconds:g} seconds, or came more slowly than "
                f"{bytes_per_second} bytes a second (gateway.body_bytes_per_second); send it again",
                field="body",
            ) from None
        if not chunk:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        total += len(chunk)
        if total > limit:
            raise too_large
        chunks.append(chunk)


def media_type(headers: Headers) -> str:
    """The media type in lower case without parameters; empty where the header is missing. Raises
    InvalidRequest for a charset that is not UTF-8."""
    # An empty header is no JSON: a page of another origin may send one without asking first.
    media = parse_media_type(headers.get("content-type", "").strip() or ";")
    if media.charset not in (None, "utf-8", "utf8"):
        raise unsupported("the charset must be utf-8")
    return media.name


def require_json(headers: Headers) -> None:
    """Raises InvalidRequest (status 415) unless the body says it is JSON. A page of another origin cannot
    say so without asking first, which keeps such pages from sending anything."""
    kind = media_type(headers)
    if kind != "application/json":
        raise unsupported(f"send the body as application/json, not {kind or 'without a content type'}")


def read_body_as(
    kind: type[Message], body: bytes, max_depth: int = REQUEST_DEPTH, event_member: str | None = None
) -> Message:
    """Read the request in a JSON body. Raises InvalidRequest; within the member that holds an event, InvalidEvent."""
    try:
        value = strict_json(body, max_depth)
    except InvalidEvent as exc:
        raise as_request_error(exc, event_member) from exc
    return read_as(kind, value)


def read_query_as(kind: type[Message], parameters: QueryParams) -> Message:
    """Read the request in a query string, and refuse a repeated parameter unless it is a list. Raises
    InvalidRequest."""
    members: dict[str, Any] = {}
    kinds = _parameter_kinds(cast(Any, kind)) if parameters else {}
    for name, value in parameters.multi_items():
        if isinstance(kinds.get(name), inspect.ListType):
            members.setdefault(name, []).append(value)
        elif name in members:
            raise InvalidRequest(f"parameter {name[:100]!r} is given twice", field=name)
        else:
            members[name] = _scalar(value, kinds.get(name))
    return read_as(kind, members, "parameter")


def read_as(kind: type[Message], value: Any, what: str = "member") -> Message:
    """Convert a decoded value to a struct. Raises InvalidRequest."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise _explained(kind, value, exc, what) from None


def as_request_error(error: InvalidEvent, event_member: str | None) -> CulverError:
    """The InvalidRequest for an error of the JSON reader; inside the member for events it stays an InvalidEvent."""
    if event_member and error.field and re.match(rf"{event_member}([.\[]|$)", error.field):
        return error
    return InvalidRequest(error.message, field=error.field or WHOLE_BODY, **error.details)


def prefixed(error: CulverError, prefix: str) -> CulverError:
    """The same error with its field inside `prefix`: `[3]` and `price` give `[3].price`."""
    field = error.field
    if not field or field == WHOLE_BODY:
        field = prefix
    elif field.startswith("["):
        field = prefix + field
    else:
        field = f"{prefix}.{field}"
    return type(error)(error.message, field=field, **error.details)


def check_subscription_id(text: str, field: str = "id") -> str:
    if not re.fullmatch(SUBSCRIPTION_ID, text):
        raise InvalidRequest(
            "a subscription id is 1 to 128 letters, digits and . _ ~ -, and begins with a letter or digit",
            field=field,
        )
    return text


def check_delivery_id(text: str, field: str = "delivery_id") -> tuple[str, int]:
    """Split a delivery id into (subscription, offset). Raises InvalidRequest."""
    parsed = parse_delivery_id(text) if re.fullmatch(DELIVERY_ID, text) else None
    if parsed is None or parsed[1] > MAX_OFFSET:
        raise InvalidRequest(f"{text[:100]!r} is not a delivery id, which looks like alerts:17", field=field)
    return parsed


def offset_within(subscription: str, text: str, field: str) -> int:
    """The offset of a delivery id, which must be one of `subscription`."""
    owner, offset = check_delivery_id(text, field)
    if owner != subscription:
        raise InvalidRequest(
            f"delivery {text!r} does not belong to subscription {subscription!r}", field=field
        )
    return offset


@functools.cache
def _parameter_kinds(kind: Any) -> dict[str, inspect.Type]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: _present(field.type) for field in info.fields}


def _scalar(text: str, kind: inspect.Type | None) -> Any:
    """The value of a parameter as JSON has it. Text that is no number stays text, and the struct refuses it."""
    if isinstance(kind, inspect.IntType | inspect.FloatType) and _NUMBER.fullmatch(text):
        value = int(text) if text.lstrip("-").isdigit() else float(text)
        return value if math.isfinite(value) else text
    return text


def _present(kind: inspect.Type, value: Any = None) -> inspect.Type:
    """The type of a member that is present, without its metadata; of a union, the type that fits the value."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        others = [_present(each) for each in kind.types if not isinstance(each, inspect.NoneType)]
        arrays = [each for each in others if isinstance(each, inspect.ListType)]
        return arrays[0] if arrays and isinstance(value, list) else others[0]
    return kind


def _explained(kind: Any, value: Any, error: msgspec.ValidationError, what: str) -> InvalidRequest:
    """The error for a value that msgspec refused, in our words and with our paths."""
    info = _present(inspect.type_info(kind), value)
    for unknown in _unknown_members(info, value, "", what):
        return unknown
    # msgspec names the place at the end of its message: "Expected `int`, got `str` - at `$.mailbox.max_count`".
    place = re.search(r" - at `\$\.?([^`]*)`$", str(error))
    path = place[1] if place else ""
    for index, name in re.findall(r"\[(\d+)\]|(\w+)", path):
        if isinstance(info, inspect.StructType):
            value = value.get(name)
            info = next(field.type for field in info.fields if field.encode_name == name)
        elif isinstance(info, inspect.ListType):
            value, info = value[int(index)], info.item_type
        info = _present(info, value)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        missing = next(
            each.encode_name for each in info.fields if each.required and each.encode_name not in value
        )
        path = f"{path}.{missing}" if path else missing
        value = None
    problem = "is missing" if value is None else f"must be {_description(info)}"
    return InvalidRequest(f"{path or 'the body'} {problem}", field=path or WHOLE_BODY)


def _unknown_members(info: inspect.Type, value: Any, path: str, what: str) -> Iterator[InvalidRequest]:
    info = _present(info, value)
    if isinstance(info, inspect.ListType) and isinstance(value, list):
        for place, item in enumerate(value):
            yield from _unknown_members(info.item_type, item, f"{path}[{place}]", what)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        prefix = f"{path}." if path else ""
        known: dict[str, inspect.Type] = {each.encode_name: each.type for each in info.fields}
        if info.tag_field is not None:
            known[info.tag_field] = inspect.AnyType()
        for name, member in value.items():
            if name not in known:
                yield InvalidRequest(
                    f"unknown {what} {name[:100]!r}; known here: {', '.join(sorted(known)) or 'none'}",
                    field=prefix + name,
                )
            else:
                yield from _unknown_members(known[name], member, prefix + name, what)


def _description(info: inspect.Type) -> str:
    match info:
        case inspect.StrType(min_length=shortest, max_length=longest) if longest is not None:
            return f"a string of {shortest or 0} to {longest} characters"
        case inspect.StrType():
            return "a string"
        case inspect.IntType(ge=low, le=high):
            return f"a whole number from {low}" + (" on" if high is None else f" to {high}")
        case inspect.FloatType(gt=above, ge=low, le=high):
            least = f"from {low:g}" if above is None else f"above {above:g}"
            return f"a number {least}" + ("" if high is None else f" and at most {high:g}")
        case inspect.ListType(min_length=fewest, max_length=most) if most is not None:
            return f"an array of {fewest or 0} to {most} items"
        case inspect.ListType():
            return "an array"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case _:
            return "a JSON object"
