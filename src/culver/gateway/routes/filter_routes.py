"""Trying filters out: `/v1/filters/test` and `/v1/filters/explain`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from culver.errors import CulverError
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.request_fields import REQUEST_DEPTH, Fields, Query, parse_json, prefixed
from culver.gateway.cpu_work import compute
from culver.gateway.gateway_context import gateway_of
from culver.gateway.routes.request_bodies import read_body, require_json
from culver.gateway.routes.subscription_routes import parse_filter
from culver.model import Event
from culver.model.formats import event_from_object
from culver.model.language import Predicate, clause_text, evaluate, matching_clause


async def test(request: Request) -> Response:
    """Whether a filter matches an event, without publishing it."""
    fields = await _read_fields(request)
    text, member = fields.text("filter"), fields.required("event")
    fields.close()
    gateway = gateway_of(request)
    try:
        event = event_from_object(member, gateway.settings.events)
    except CulverError as exc:
        raise prefixed(exc, "event") from exc
    predicate = await parse_filter(gateway, text)
    answer = await compute(_weight(predicate), _judge, predicate, event)
    return Response(encode(answer), media_type="application/json")


async def explain(request: Request) -> Response:
    """The clauses that a filter comes down to."""
    fields = await _read_fields(request)
    text = fields.text("filter")
    fields.close()
    predicate = await parse_filter(gateway_of(request), text)
    answer = {"clauses": await compute(_weight(predicate), _clause_texts, predicate)}
    return Response(encode(answer), media_type="application/json")


async def _read_fields(request: Request) -> Fields:
    Query(request.query_params, ())
    require_json(request.headers)
    settings = gateway_of(request).settings
    body = await read_body(request, settings.gateway.max_body_bytes)
    depth = max(REQUEST_DEPTH, settings.events.max_depth + 1)
    return Fields(await compute(len(body), parse_json, body, depth, "event"))


def _judge(predicate: Predicate, event: Event) -> dict[str, Any]:
    result = evaluate(predicate.condition, event)
    return {
        "matches": result is True,
        "result": result,
        "clause": matching_clause(predicate, event),
        "clauses": _clause_texts(predicate),
    }


def _clause_texts(predicate: Predicate) -> list[str]:
    return [clause_text(clause) for clause in predicate.clauses]


def _weight(predicate: Predicate) -> int:
    return 64 * sum(map(len, predicate.clauses))
