"""The frame around every HTTP operation: it reads the request, calls the handler and encodes the answer.

The signature of a handler is its contract, for this frame and for the OpenAPI document alike:

    @operations.add("GET /v1/subscriptions")
    async def list_subscriptions(request: Request, query: PageQuery) -> SubscriptionPage: ...

`query` and `body` come as the structs that are named there; a handler without `query` takes no parameters. Parameters
in the path are checked before the handler sees them. The docstrings of the handler and of its answer describe them in
the document. A handler that needs more (headers, a body that is not JSON, a stream) returns a `Response` and says
in `answer`, `result` and `contents` what the document is to tell.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from culver.channels import check_channel_name
from culver.errors import NotFound
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.request_reader import (
    REQUEST_DEPTH,
    check_subscription_id,
    read_body,
    read_body_as,
    read_query_as,
    require_json,
)
from culver.gateway.gateway_context import Gateway, compute, gateway_of
from culver.messages import ChannelName, Count, SetName, SubscriptionId
from culver.registry import check_set_name

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

JSON = "application/json"
_LARGEST_NUMBER = 2**31 - 1


class NoParameters(msgspec.Struct, forbid_unknown_fields=True):
    """The query of an operation that takes none."""


def _check_slice_number(text: str) -> None:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _LARGEST_NUMBER):
        raise NotFound(
            f"there is no slice {text[:100]!r}; GET /v1/slices lists those there are", field="number"
        )


# The type of each parameter, for the document, and its check.
PATH_PARAMETERS: dict[str, tuple[Any, Callable[[str], object]]] = {
    "id": (SubscriptionId, check_subscription_id),
    "name": (SetName, check_set_name),
    "channel": (ChannelName, lambda text: check_channel_name(text.encode())),
    "number": (Annotated[Count, msgspec.Meta(examples=[1])], _check_slice_number),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`result` describes the answer with `status`. `answer` is its type, or the types that it may have, or what a
    Response may contain by media type. `contents` does the same for a body that the handler reads itself, and
    `messages` are the types in it. `problems` are statuses that do not follow from the rest."""

    method: str
    path: str
    name: str
    summary: str
    description: str
    result: str
    group: "Operations"
    handler: Callable[..., Awaitable[Any]]
    path_parameters: tuple[str, ...]
    reads_query: bool
    query: Any
    body: Any
    body_is_optional: bool
    answer: Any
    status: int = 200
    contents: Mapping[str, Any] | None = None
    messages: tuple[Any, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    headers: Mapping[str, Any] | None = None
    problems: tuple[int, ...] = ()
    other_answers: Mapping[int, str] | None = None
    max_body_bytes: int | None = None
    event_member: str | None = None

    async def respond(self, request: Request) -> Response:
        gateway = gateway_of(request)
        for name in self.path_parameters:
            PATH_PARAMETERS[name][1](request.path_params[name])
        arguments: dict[str, Any] = {}
        if self.reads_query:
            arguments["query"] = read_query_as(self.query, request.query_params)
        elif self.query is None and not self.group.takes_any_query:
            read_query_as(NoParameters, request.query_params)
        if self.body is not None:
            arguments["body"] = await self._read_body(request, gateway)
        answer = await self.handler(request, **arguments)
        if isinstance(answer, Response):
            return answer
        return Response(encode(answer), self.status, media_type=JSON)

    async def _read_body(self, request: Request, gateway: Gateway) -> Any:
        settings = gateway.settings
        if not self.body_is_optional:
            require_json(request.headers)
        limits = settings.gateway
        most = self.max_body_bytes or limits.max_body_bytes
        body = await read_body(request, most, limits.body_bytes_per_second)
        if self.body_is_optional:
            if not body:
                return None
            require_json(request.headers)
        event_depth = 0 if self.event_member is None else settings.events.max_depth + 1
        depth = max(REQUEST_DEPTH, event_depth)
        return await compute(len(body), read_body_as, self.body, body, depth, self.event_member)


class Operations:
    """The operations of one module, which is one tag of the OpenAPI document."""

    def __init__(self, tag: str, description: str, *, takes_any_query: bool = False) -> None:
        self.tag = tag
        self.description = description
        self.takes_any_query = takes_any_query
        self._all: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all)

    def add(self, request_line: str, **options: Any) -> Callable[[Handler], Handler]:
        """Declare the decorated handler; the options are those of an `Operation`."""
        method, path = request_line.split()

        def declare(handler: Handler) -> Handler:
            hints = get_type_hints(handler, include_extras=True)
            answer, body = options.get("answer", hints["return"]), hints.get("body")
            bodies = get_args(body)
            optional = NoneType in bodies
            first_word, *words = handler.__name__.split("_")
            summary, _, description = (inspect.getdoc(handler) or "").partition("\n\n")
            derived = {
                "name": first_word + "".join(word.capitalize() for word in words),
                "summary": " ".join(summary.split()),
                "description": " ".join(description.split()),
                "result": " ".join((answer.__doc__ or "").split()),
                "path_parameters": tuple(re.findall(r"{(\w+)}", path)),
                "reads_query": "query" in hints,
                "query": hints.get("query"),
                "body": bodies[0] if optional else body,
                "body_is_optional": optional,
                "answer": answer,
            }
            self._all.append(
                Operation(method=method, path=path, group=self, handler=handler, **(derived | options))
            )
            return handler

        return declare
