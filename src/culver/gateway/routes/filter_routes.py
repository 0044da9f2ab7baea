"""`/v1/filters/test` and `/v1/filters/explain`: try a filter out."""

from starlette.requests import Request

from culver.errors import CulverError
from culver.gateway.api.operations import Operations
from culver.gateway.api.request_reader import prefixed
from culver.gateway.gateway_context import compute, gateway_of
from culver.gateway.routes.subscription_routes import parse_filter, warnings_of
from culver.messages import Clauses, FilterTest, FilterText, FilterTrial
from culver.model import Event
from culver.model.formats import event_from_object
from culver.model.language import Predicate, clause_text, evaluate, matching_clause

operations = Operations("filters", "Trying filters out")


@operations.add("POST /v1/filters/test", event_member="event")
async def test_filter(request: Request, body: FilterTrial) -> FilterTest:
    """Try a filter on a sample event."""
    gateway = gateway_of(request)
    try:
        event = event_from_object(body.event, gateway.settings.events)
    except CulverError as exc:
        raise prefixed(exc, "event") from exc
    predicate = await parse_filter(gateway, body.filter)
    return await compute(_weight(predicate), _judge, predicate, event)


@operations.add("POST /v1/filters/explain")
async def explain_filter(request: Request, body: FilterText) -> Clauses:
    """Show the clauses that a filter comes down to."""
    predicate = await parse_filter(gateway_of(request), body.filter)
    clauses = await compute(_weight(predicate), _clause_texts, predicate)
    return Clauses(clauses=clauses, warnings=warnings_of(predicate))


def _judge(predicate: Predicate, event: Event) -> FilterTest:
    result = evaluate(predicate.condition, event)
    return FilterTest(
        matches=result is True,
        result=result,
        clause=matching_clause(predicate, event),
        clauses=_clause_texts(predicate),
        warnings=warnings_of(predicate),
    )


def _clause_texts(predicate: Predicate) -> tuple[str, ...]:
    return tuple(clause_text(clause) for clause in predicate.clauses)


def _weight(predicate: Predicate) -> int:
    return 64 * sum(map(len, predicate.clauses))
