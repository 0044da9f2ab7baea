"""The OpenAPI 3.1 document of the API, built in code; `/docs` lists its operations."""

from typing import Any

from culver.config import Settings
from culver.gateway.api.api_schemas import (
    EXAMPLE_CLOUDEVENT,
    EXAMPLE_EVENT,
    EXAMPLE_FILTER,
    EXAMPLE_ROWS,
    SCHEME,
    all_schemas,
)
from culver.gateway.problems import KINDS, PROBLEM_TYPE, STATUS_OF_FIELD

Node = dict[str, Any]

_API_VERSION = "1"
_JSON = "application/json"
_ALWAYS = (404, 405, 429, 500, 503)


def document(settings: Settings) -> Node:
    """A new document each time; the limits in it are those of `settings`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Culver",
            "version": _API_VERSION,
            "description": "Content-based publish/subscribe: publish events with typed attributes, subscribe "
            "with conditions over them. The WebSocket protocol at /v1/ws does the same over one connection.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "events", "description": "Publishing"},
            {"name": "subscriptions", "description": "Durable subscriptions"},
            {"name": "sets", "description": "Many subscriptions of one form"},
            {"name": "receiving", "description": "Long polling and Server-Sent Events"},
            {"name": "filters", "description": "Trying filters out"},
            {"name": "operations", "description": "For operators"},
        ],
        "paths": _event_paths()
        | _subscription_paths()
        | _set_paths()
        | _receiving_paths(settings)
        | _slice_paths()
        | _other_paths(),
        "components": {"schemas": all_schemas(settings), "responses": _problem_responses()},
    }


def _event_paths() -> Node:
    formats: dict[str, Node] = {
        _JSON: {
            "schema": {"oneOf": [_ref("Event"), {"type": "array", "items": _ref("Event"), "minItems": 1}]},
            "examples": {
                "one": {"summary": "One event", "value": EXAMPLE_EVENT},
                "batch": {"summary": "A batch", "value": [EXAMPLE_EVENT, {"symbol": "EMCA", "price": 5}]},
            },
        },
        "application/x-ndjson": {
            "schema": {"type": "string", "description": "One event a line, published while it arrives"},
            "example": '{"symbol": "ACME", "price": 21.5}\n{"symbol": "ACME", "price": 22}\n',
        },
        "application/cloudevents+json": {"schema": _ref("Event"), "example": EXAMPLE_CLOUDEVENT},
        "application/cloudevents-batch+json": {
            "schema": {"type": "array", "items": _ref("Event")},
            "example": [EXAMPLE_CLOUDEVENT],
        },
    }
    publish = _operation(
        "publishEvents",
        "events",
        "Publish one event, a batch or a stream",
        {"200": _answer("The events are on disk", "Accepted")},
        (400, 403, 413, 415, 507),
        description="With a `ce-specversion` header the body is the data of a CloudEvent in binary mode. In a "
        "stream of lines an error's problem has `line` and `accepted`, the number of events acknowledged "
        "before it.",
        requestBody={"required": True, "content": formats},
    )
    return {"/v1/events": {"post": publish}}


def _subscription_paths() -> Node:
    create = _operation(
        "createSubscription",
        "subscriptions",
        "Make a durable subscription, or many",
        {
            "201": {
                "description": "Made; every matching event from `since` on is delivered",
                "headers": {"Location": {"schema": {"type": "string"}, "description": "For a single one"}},
                "content": {_JSON: {"schema": {"oneOf": [_ref("Subscription"), _ref("Created")]}}},
            }
        },
        (400, 403, 409, 413, 415),
        description="An array makes all of its subscriptions or none.",
        requestBody=_body(
            {"oneOf": [_ref("NewSubscription"), _ref("NewSubscriptions")]},
            {"id": "alerts", "filter": EXAMPLE_FILTER},
        ),
    )
    page = _operation(
        "listSubscriptions",
        "subscriptions",
        "List subscriptions by id",
        {"200": _answer("A page", "SubscriptionPage")},
        (400,),
        parameters=[
            _query("after", {"type": "string"}, "Begin after this id"),
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Page size"),
        ],
    )
    found = {"200": _answer("The subscription", "Subscription")}
    return {
        "/v1/subscriptions": {"post": create, "get": page},
        "/v1/subscriptions/{id}": {
            "parameters": [_PATH_ID],
            "get": _operation("readSubscription", "subscriptions", "Read a subscription", found, (400,)),
            "put": _operation(
                "replaceSubscription",
                "subscriptions",
                "Give a subscription another filter and other options",
                found,
                (400, 403, 409, 413, 415),
                requestBody=_body(_ref("Replacement"), {"filter": "price > 30"}),
            ),
            "delete": _operation(
                "removeSubscription",
                "subscriptions",
                "End a subscription",
                {"204": {"description": "Ended"}},
                (400, 403),
            ),
        },
    }


def _set_paths() -> Node:
    add = _operation(
        "addRows",
        "sets",
        "Add rows to a set: one durable subscription each",
        {"201": _answer("All of them are on disk, and in effect from `since` on", "Rows")},
        (400, 403, 409, 413, 415),
        description="Row i of the answer's `first`, `first` + 1, ... is subscription `NAME.i`. All rows are added or "
        "none. The parameters in the query are those of an Arrow stream; with JSON they are in the body.",
        parameters=[
            _query("filter", _TEXT_SCHEMA, "A filter with `?` in place of values"),
            _query("first", _COUNT_SCHEMA, "Refuse unless the first row gets this number"),
            _query("expires_in_seconds", {"type": "number"}, "When the subscriptions end by themselves"),
            _query("max_count", _COUNT_SCHEMA, "Of each mailbox"),
            _query("max_bytes", _COUNT_SCHEMA, "Of each mailbox"),
            _query("max_age_seconds", _COUNT_SCHEMA, "Of each mailbox"),
        ],
        requestBody={
            "required": True,
            "content": {
                _JSON: {"schema": _ref("NewRows"), "example": EXAMPLE_ROWS},
                "application/vnd.apache.arrow.stream": {
                    "schema": {
                        "type": "string",
                        "description": "An Arrow IPC stream, one column per parameter",
                    }
                },
            },
        },
    )
    page = _operation(
        "listSets",
        "sets",
        "List sets by name",
        {"200": _answer("A page", "SetPage")},
        (400,),
        parameters=[
            _query("after", _TEXT_SCHEMA, "Begin after this name"),
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Page size"),
        ],
    )
    remove = _operation(
        "removeSet",
        "sets",
        "End all subscriptions named NAME.0, NAME.1, ...",
        {"200": _answer("How many have ended", "RemovedSet")},
        (400, 403),
    )
    name = {"name": "name", "in": "path", "required": True, "schema": _TEXT_SCHEMA, "example": "quotes"}
    return {
        "/v1/sets": {"get": page},
        "/v1/sets/{name}": {"parameters": [name], "post": add, "delete": remove},
    }


def _receiving_paths(settings: Settings) -> Node:
    longest = settings.gateway.poll_seconds
    poll = _operation(
        "pollSubscription",
        "receiving",
        "Wait for what a durable subscription gets",
        {"200": _answer("What waited, or came first; empty when the time is up", "Items")},
        (307, 400, 409),
        parameters=[
            _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Most items"),
            _query(
                "wait",
                {"type": "number", "minimum": 0, "default": min(30.0, longest)},
                f"Seconds to wait for the first; more than {longest:g} counts as {longest:g}",
            ),
            _query("after", {"type": "string"}, "Skip up to this delivery id, without acknowledging it"),
        ],
    )
    acknowledge = _operation(
        "acknowledge",
        "receiving",
        "Be done with everything up to a delivery",
        {"200": _answer("Acknowledged, durably", "Acknowledged")},
        (307, 400, 403, 409, 413, 415),
        requestBody=_body(_ref("Acknowledgement"), {"delivery_id": "alerts:17"}),
    )
    last_id = {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": {"type": "string"},
        "description": "The last delivery id seen before a reconnection",
    }
    stream = {"200": {"description": "A stream", "content": {"text/event-stream": {"schema": _STREAM}}}}
    return {
        "/v1/subscriptions/{id}/events": {"parameters": [_PATH_ID], "get": poll},
        "/v1/subscriptions/{id}/ack": {"parameters": [_PATH_ID], "post": acknowledge},
        "/v1/subscriptions/{id}/stream": {
            "parameters": [_PATH_ID],
            "get": _operation(
                "streamSubscription",
                "receiving",
                "Server-Sent Events of a durable subscription",
                stream,
                (307, 400, 409),
                parameters=[last_id],
            ),
        },
        "/v1/stream": {
            "get": _operation(
                "streamFilter",
                "receiving",
                "Server-Sent Events of a live subscription",
                stream,
                (400, 403),
                description="The subscription lives as long as the connection.",
                parameters=[
                    _query("filter", {"type": "string"}, "The filter", required=True, example=EXAMPLE_FILTER),
                    _query("scheme", SCHEME, "The filter that matches it"),
                    last_id,
                ],
            )
        },
    }


def _slice_paths() -> Node:
    add = _operation(
        "addSlice",
        "operations",
        "Add a slice, which takes half of another",
        {"201": _answer("Added; every event from the next batch on is matched with it", "SlicesView")},
        (400, 403, 409, 413, 415),
        description="Without a body, or without `split`, the most loaded slice is split.",
        requestBody={**_body(_ref("NewSlice"), {"split": 0}), "required": False},
    )
    remove = _operation(
        "removeSlice",
        "operations",
        "Remove a slice; its neighbours take over what it has",
        {"200": _answer("Removed; others may have another number now", "SlicesView")},
        (400, 403, 409),
    )
    number = {"name": "number", "in": "path", "required": True, "schema": _COUNT_SCHEMA, "example": 1}
    seen: Node = {"200": _answer("What each slice holds and does", "SlicesView")}
    return {
        "/v1/slices": {"get": _bare("slices", "Which slices has the index?", seen), "post": add},
        "/v1/slices/{number}": {"parameters": [number], "delete": remove},
    }


def _other_paths() -> Node:
    test = _operation(
        "testFilter",
        "filters",
        "Try a filter on a sample event",
        {"200": _answer("Whether it matches, and by which clause", "FilterTestResult")},
        (400, 403, 413, 415),
        requestBody=_body(_ref("FilterTest"), {"filter": EXAMPLE_FILTER, "event": EXAMPLE_EVENT}),
    )
    explain = _operation(
        "explainFilter",
        "filters",
        "The clauses that a filter comes down to",
        {"200": _answer("An event matches when some clause does", "Clauses")},
        (400, 403, 413, 415),
        requestBody=_body(_ref("FilterText"), {"filter": EXAMPLE_FILTER}),
    )
    status = {_JSON: {"schema": _ref("Status")}}
    ready: Node = {
        "200": {"description": "Published events reach subscribers", "content": status},
        "503": {"description": "Not yet, or no longer", "content": status},
    }
    health = {"200": {"description": "The process lives", "content": {_JSON: {"schema": {"type": "object"}}}}}
    observed: Node = {"200": _answer("Counters since the start, and the queues now", "SiteObservation")}
    listed: Node = {"200": _answer("The first is the site's own", "Gateways")}
    text: Node = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "/v1/filters/test": {"post": test},
        "/v1/filters/explain": {"post": explain},
        "/v1/pipeline": {"get": _bare("pipeline", "What do the operators do, and what waits?", observed)},
        "/v1/gateways": {"get": _bare("gateways", "Which gateways has the site?", listed)},
        "/healthz": {"get": _bare("health", "Does the process live?", health)},
        "/readyz": {"get": _bare("readiness", "Do published events reach subscribers?", ready)},
        "/metrics": {
            "get": _bare(
                "metrics", "Metrics for Prometheus", {"200": {"description": "Metrics", "content": text}}
            )
        },
    }


_TEXT_SCHEMA: Node = {"type": "string"}
_COUNT_SCHEMA: Node = {"type": "integer", "minimum": 0}
_STREAM: Node = {
    "type": "string",
    "description": "Messages `subscribed`, `event` (with the delivery id), `gap`, `ended` and `error`; a "
    "comment as heartbeat",
}
_PATH_ID: Node = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "example": "alerts",
}


def _operation(
    name: str, tag: str, summary: str, answers: Node, problems: tuple[int, ...], **more: Any
) -> Node:
    responses = dict(answers)
    for status in sorted({*problems, *_ALWAYS}):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return {"operationId": name, "tags": [tag], "summary": summary, **more, "responses": responses}


def _bare(name: str, summary: str, responses: Node) -> Node:
    return {"operationId": name, "tags": ["operations"], "summary": summary, "responses": responses}


def _answer(description: str, schema: str) -> Node:
    return {"description": description, "content": {_JSON: {"schema": _ref(schema)}}}


def _body(schema: Node, example: Any) -> Node:
    return {"required": True, "content": {_JSON: {"schema": schema, "example": example}}}


def _query(name: str, schema: Node, description: str, *, required: bool = False, **more: Any) -> Node:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "schema": schema,
        "description": description,
        **more,
    }


def _ref(name: str) -> Node:
    return {"$ref": f"#/components/schemas/{name}"}


def _problem_responses() -> Node:
    """One response per status, naming the codes that come with it."""
    codes: dict[int, list[str]] = {status: ["invalid_request"] for status in STATUS_OF_FIELD.values()}
    for code, kind in KINDS.items():
        codes.setdefault(kind.status, []).append(code)
    retry = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    where = {"Location": {"schema": _TEXT_SCHEMA, "description": "The same, at the gateway that has it"}}
    headers = {307: where, 429: retry, 503: retry}
    responses: Node = {}
    for status, names in sorted(codes.items()):
        responses[f"Problem{status}"] = {
            "description": "Codes: " + ", ".join(names),
            "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}},
            **({"headers": headers[status]} if status in headers else {}),
        }
    return responses
