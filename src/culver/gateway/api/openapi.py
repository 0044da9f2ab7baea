"""Builds the OpenAPI 3.1 document from the operations and their messages; `/docs` shows it."""

from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from starlette.responses import Response

from culver.config import Settings
from culver.gateway.api.operations import JSON, PATH_PARAMETERS, Operation
from culver.gateway.problems import KINDS, PROBLEM_TYPE, STATUS_OF_FIELD
from culver.messages import ClientMessage, EventObject, Problem, ServerMessage
from culver.model import COLUMNAR
from culver.plugins import EXACT_FILTERS
from culver.version import __version__

Node = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"


def document(settings: Settings, operations: Iterable[Operation]) -> Node:
    operations = list(operations)
    schemas = _Schemas(operations, settings)
    paths: dict[str, Node] = {}
    for operation in operations:
        item = paths.setdefault(operation.path, {})
        if operation.path_parameters:
            item["parameters"] = [
                _parameter(name, "path", msgspec.json.schema(PATH_PARAMETERS[name][0]), is_required=True)
                for name in operation.path_parameters
            ]
        item[operation.method.lower()] = _operation(operation, schemas)
    tags = {each.group.tag: each.group.description for each in operations}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Culver",
            "version": __version__,
            "description": "Content-based publish/subscribe: publish events with typed attributes, subscribe "
            "with conditions over them. The WebSocket protocol at /v1/ws does the same over one connection: it "
            "takes each `ClientMessage` and sends each `ServerMessage` among the schemas.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": description} for name, description in tags.items()],
        "paths": paths,
        "components": {"schemas": schemas.components, "responses": _problem_responses()},
    }


class _Schemas:
    """The schema of every type that an operation takes or gives, with the limits of the settings in it."""

    def __init__(self, operations: Iterable[Operation], settings: Settings) -> None:
        kinds: dict[Any, None] = dict.fromkeys([Problem, ClientMessage, ServerMessage])
        queries = {each.query: None for each in operations if each.query is not None}
        for each in operations:
            answers = each.answer if isinstance(each.answer, tuple) else (each.answer,)
            kinds |= dict.fromkeys(
                kind for kind in (each.body, *answers, *each.messages) if _is_message(kind)
            )
        every = [*kinds, *queries]
        found, components = msgspec.json.schema_components(every, ref_template=_REFERENCE)
        # msgspec gives tuples where JSON has lists.
        plain = msgspec.json.decode(msgspec.json.encode([found, components]))
        self._schemas: dict[Any, Node] = dict(zip(every, plain[0], strict=True))
        self.components: dict[str, Node] = plain[1]
        self.components["Problem"]["properties"]["code"]["enum"] = list(KINDS)
        self.components["ClientMessage"] = self._schemas[ClientMessage]
        self.components["ServerMessage"] = self._schemas[ServerMessage]
        self.components["Event"] = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(EventObject)))
        _add_limits(self.components, settings)
        self._queries = {kind: self.components.pop(kind.__name__) for kind in queries}

    def of(self, kind: Any) -> Node:
        if isinstance(kind, tuple):
            return {"anyOf": [self._schemas[each] for each in kind]}
        return self._schemas[kind]

    def example(self, kind: Any) -> Any:
        struct = next((each for each in get_args(kind) if hasattr(each, "__struct_fields__")), kind)
        properties = self.components[struct.__name__]["properties"]
        return {
            name: _present(schema)["examples"][0]
            for name, schema in properties.items()
            if "examples" in _present(schema)
        }

    def parameters(self, kind: Any) -> list[Node]:
        query = self._queries[kind]
        return [
            _parameter(name, "query", schema, is_required=name in query["required"])
            for name, schema in query["properties"].items()
        ]


def _is_message(kind: Any) -> bool:
    return kind not in (None, Response, type(None)) and not isinstance(kind, dict)


def _present(schema: Node) -> Node:
    """The schema of a member that is present: null only stands for leaving the member out."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return options[0] if len(options) == 1 else schema


def _parameter(name: str, place: str, schema: Node, *, is_required: bool) -> Node:
    own = dict(_present(schema))
    examples = own.pop("examples", [])
    node = {"name": name, "in": place, "required": is_required, "schema": own}
    if "description" in own:
        node["description"] = own.pop("description")
    if is_required:
        node["example"] = examples[0]
    if schema.get("default") is not None:
        own["default"] = schema["default"]
    return node


def _add_limits(components: dict[str, Node], settings: Settings) -> None:
    """Add the limits of the settings to requests, which are the structs that allow no other members."""
    events, registry, delivery = settings.events, settings.registry, settings.delivery
    keywords: dict[str, Node] = {
        "filter": {"maxLength": settings.filters.max_length},
        "scheme": {"enum": list(EXACT_FILTERS), "default": COLUMNAR},
        "rows": {"minItems": 1, "maxItems": registry.max_rows},
        "columns": {"minItems": 1},
        "events": {"minItems": 1, "maxItems": events.max_batch},
        "max_count": {"maximum": delivery.mailbox_count, "default": delivery.mailbox_count},
        "max_bytes": {"maximum": delivery.mailbox_bytes, "default": delivery.mailbox_bytes},
        "max_age_seconds": {
            "maximum": delivery.mailbox_age_seconds,
            "default": delivery.mailbox_age_seconds,
        },
    }
    for component in components.values():
        if component.get("additionalProperties") is False:
            for name in component["properties"].keys() & keywords.keys():
                schema, limits = component["properties"][name], dict(keywords[name])
                if "default" in limits:
                    schema["default"] = limits.pop("default")
                _present(schema).update(limits)


def _operation(operation: Operation, schemas: _Schemas) -> Node:
    node: Node = {
        "operationId": operation.name,
        "tags": [operation.group.tag],
        "summary": operation.summary,
    }
    if operation.description:
        node["description"] = operation.description
    query = [] if operation.query is None else schemas.parameters(operation.query)
    if query or operation.parameters:
        node["parameters"] = [*query, *operation.parameters]
    if operation.body is not None:
        content = {"schema": schemas.of(operation.body), "example": schemas.example(operation.body)}
        node["requestBody"] = {"required": not operation.body_is_optional, "content": {JSON: content}}
    if operation.contents is not None:
        node["requestBody"] = {"required": True, "content": operation.contents}
    node["responses"] = _responses(operation, schemas)
    return node


def _responses(operation: Operation, schemas: _Schemas) -> Node:
    responses: Node = {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted(_problem_statuses(operation))
    }
    for status, result in {operation.status: operation.result, **(operation.other_answers or {})}.items():
        answer = responses[str(status)] = {"description": result}
        if isinstance(operation.answer, dict):
            answer["content"] = operation.answer
        elif _is_message(operation.answer):
            answer["content"] = {JSON: {"schema": schemas.of(operation.answer)}}
        if operation.headers is not None:
            answer["headers"] = operation.headers
    return dict(sorted(responses.items()))


def _problem_statuses(operation: Operation) -> set[int]:
    statuses = {400, 403, 405, 429, 500, 503, *operation.problems}
    if operation.path_parameters:
        statuses.add(404)
    if operation.body is not None or operation.contents is not None:
        statuses |= {413, 415}
    return statuses


def _problem_responses() -> Node:
    """One response per status, naming the codes that come with it."""
    codes: dict[int, list[str]] = {status: ["invalid_request"] for status in STATUS_OF_FIELD.values()}
    for code, kind in KINDS.items():
        codes.setdefault(kind.status, []).append(code)
    retry = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    where = {
        "Location": {"schema": {"type": "string"}, "description": "The same, at the gateway that has it"}
    }
    headers = {307: where, 429: retry, 503: retry}
    responses: Node = {}
    for status, names in sorted(codes.items()):
        responses[f"Problem{status}"] = {
            "description": "Codes: " + ", ".join(names),
            "content": {PROBLEM_TYPE: {"schema": {"$ref": _REFERENCE.format(name="Problem")}}},
            **({"headers": headers[status]} if status in headers else {}),
        }
    return responses
