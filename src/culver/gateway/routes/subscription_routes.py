"""`/v1/subscriptions`: make, list, read, replace and remove durable subscriptions."""

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from culver.errors import Conflict, CulverError, InvalidFilter, InvalidRequest, TooLarge
from culver.gateway.api.delivery_encoding import encode, timestamp_text
from culver.gateway.api.request_fields import Fields, Query, check_subscription_id, parse_json, prefixed
from culver.gateway.cpu_work import compute
from culver.gateway.gateway_context import Gateway, gateway_of
from culver.gateway.redirection import check_here
from culver.gateway.routes.request_bodies import read_body, require_json
from culver.model import COLUMNAR
from culver.model.language import Predicate, parse
from culver.plugins import FILTERS
from culver.registry import Registration, SubscriptionSpec, check_id

_JSON = "application/json"
_DEFAULT_PAGE = 100
_MAX_PAGE = 1_000
_LONGEST_LIFE_SECONDS = 100 * 365 * 24 * 3600
_PARSE_WEIGHT = 8  # a character of a filter costs about as much as this many bytes of an event


async def create(request: Request) -> Response:
    gateway = gateway_of(request)
    Query(request.query_params, ())
    content = await _read_json(request, gateway)
    if isinstance(content, list):
        return await _create_all(gateway, content)
    spec = await _read_spec(gateway, content, with_id=True)
    (registration,) = await gateway.site.subscriptions.add([spec])
    location = f"/v1/subscriptions/{quote(registration.id)}"
    return answer(subscription_members(gateway, registration, 0), 201, {"Location": location})


async def list_page(request: Request) -> Response:
    gateway = gateway_of(request)
    query = Query(request.query_params, ("after", "limit"))
    limit = query.integer("limit", _DEFAULT_PAGE, 1, _MAX_PAGE)
    after = query.text("after")
    if after is not None:
        check_subscription_id(after, "after")
    page = await gateway.site.subscriptions.page(after, limit)
    pending = await gateway.site.sessions.pending(page)
    members = [subscription_members(gateway, *each) for each in zip(page, pending, strict=True)]
    return answer({"subscriptions": members, "next": page[-1].id if len(page) == limit else None})


async def read(request: Request) -> Response:
    gateway = gateway_of(request)
    Query(request.query_params, ())
    return await _answer_one(gateway, await gateway.site.subscriptions.get(_path_id(request)))


async def replace(request: Request) -> Response:
    gateway = gateway_of(request)
    Query(request.query_params, ())
    subscription = _path_id(request)
    content = await _read_json(request, gateway)
    spec = await _read_spec(gateway, content, with_id=False, subscription=subscription)
    return await _answer_one(gateway, await gateway.site.subscriptions.replace(spec))


async def remove(request: Request) -> Response:
    gateway = gateway_of(request)
    Query(request.query_params, ())
    await gateway.site.subscriptions.remove(_path_id(request))
    return Response(status_code=204)


async def durable_registration(request: Request) -> Registration:
    """The durable subscription that the path names. Raises NotFound, Elsewhere, or Conflict for a live one: it
    belongs to the connection that made it, and ends with it."""
    subscription = _path_id(request)
    check_here(request, subscription)
    return check_durable(await gateway_of(request).site.subscriptions.get(subscription))


def check_durable(registration: Registration) -> Registration:
    if not registration.durable:
        raise Conflict(
            f"subscription {registration.id!r} is live: only the connection that made it receives its events",
            field="id",
        )
    return registration


async def parse_filter(gateway: Gateway, text: str) -> Predicate:
    """The predicate of a filter's text. Raises InvalidFilter with the field `filter`."""
    return await compute(len(text) * _PARSE_WEIGHT, _parse, gateway, text)


async def live_spec(gateway: Gateway, subscription: str, text: str, scheme: str | None) -> SubscriptionSpec:
    """`scheme` is as it was sent. Raises InvalidRequest, InvalidFilter."""
    chosen = check_scheme(scheme)
    return SubscriptionSpec(await parse_filter(gateway, text), subscription, durable=False, scheme=chosen)


def check_scheme(name: str | None) -> str:
    """The filtering scheme of that name, or the one that goes without saying. Raises InvalidRequest."""
    if name is not None and name not in FILTERS:
        known = sorted(FILTERS)
        raise InvalidRequest(
            f"there is no filtering scheme {name[:100]!r}; known: {', '.join(known)}",
            field="scheme",
            known=known,
        )
    return COLUMNAR if name is None else name


def subscription_members(gateway: Gateway, registration: Registration, pending: int) -> dict[str, Any]:
    """A SUBSCRIPTION as clients see it."""
    expires_at = registration.expires_at_us
    members: dict[str, Any] = {
        "id": registration.id,
        "filter": registration.filter,
        "scheme": registration.scheme,
        "durable": registration.durable,
        "since": registration.since,
        "created_at": timestamp_text(registration.created_at_us),
        "expires_at": None if expires_at is None else timestamp_text(expires_at),
        "mailbox": None,
        "pending": pending,
    }
    if registration.durable:
        defaults = gateway.settings.delivery
        members["mailbox"] = {
            "max_count": _either(registration.mailbox_count, defaults.mailbox_count),
            "max_bytes": _either(registration.mailbox_bytes, defaults.mailbox_bytes),
            "max_age_seconds": _either(registration.mailbox_age_seconds, defaults.mailbox_age_seconds),
        }
    return members


async def _create_all(gateway: Gateway, content: list[Any]) -> Response:
    limit = gateway.settings.registry.max_batch
    if not content:
        raise InvalidRequest("the array holds no subscription", field="body")
    if len(content) > limit:
        raise TooLarge(
            f"at most {limit} subscriptions fit one request; send several", field="body", limit=limit
        )
    # Weighed together: many small filters take as long as one huge one.
    specs = await compute(len(content) * 256, _read_specs, gateway, content)
    registrations = await gateway.site.subscriptions.add(specs)
    answers = [{"id": registration.id, "since": registration.since} for registration in registrations]
    return answer({"subscriptions": answers}, 201)


def _read_specs(gateway: Gateway, content: list[Any]) -> list[SubscriptionSpec]:
    specs: list[SubscriptionSpec] = []
    for index, item in enumerate(content):
        try:
            text, options = _read_options(gateway, item, with_id=True)
            specs.append(SubscriptionSpec(_parse(gateway, text), **options))
        except CulverError as exc:
            raise prefixed(exc, f"[{index}]") from exc
    return specs


async def _read_spec(
    gateway: Gateway, content: Any, *, with_id: bool, subscription: str | None = None
) -> SubscriptionSpec:
    text, options = _read_options(gateway, content, with_id=with_id)
    if subscription is not None:
        options["id"] = subscription
    return SubscriptionSpec(await parse_filter(gateway, text), **options)


def _read_options(gateway: Gateway, content: Any, *, with_id: bool) -> tuple[str, dict[str, Any]]:
    """The filter's text and the other members of a SubscriptionSpec."""
    fields = Fields(content)
    text = fields.text("filter")
    options = read_lifetime_and_limits(gateway, fields)
    options["scheme"] = check_scheme(fields.optional_text("scheme"))
    if with_id and (subscription := fields.optional_text("id")) is not None:
        options["id"] = check_id(subscription, durable=True)
    fields.close()
    return text, options


def read_lifetime_and_limits(gateway: Gateway, fields: Fields) -> dict[str, Any]:
    """The members of a SubscriptionSpec, or a BlockSpec, about its expiry and its mailbox."""
    options: dict[str, Any] = {}
    life = fields.optional_number("expires_in_seconds", 0, _LONGEST_LIFE_SECONDS)
    if life is not None:
        options["expires_at_us"] = gateway.now_us() + int(life * 1_000_000)
    mailbox = fields.optional_object("mailbox")
    if mailbox is not None:
        limits = gateway.settings.delivery
        options["mailbox_count"] = mailbox.optional_integer("max_count", 1, limits.mailbox_count)
        options["mailbox_bytes"] = mailbox.optional_integer("max_bytes", 1, limits.mailbox_bytes)
        options["mailbox_age_seconds"] = mailbox.optional_integer(
            "max_age_seconds", 1, limits.mailbox_age_seconds
        )
        mailbox.close()
    return options


def _parse(gateway: Gateway, text: str) -> Predicate:
    try:
        return parse(text, gateway.settings.filters)
    except InvalidFilter as exc:
        raise InvalidFilter(exc.message, field="filter", **exc.details) from exc


async def _read_json(request: Request, gateway: Gateway) -> Any:
    require_json(request.headers)
    body = await read_body(request, gateway.settings.gateway.max_body_bytes)
    return await compute(len(body), parse_json, body)


async def _answer_one(gateway: Gateway, registration: Registration) -> Response:
    (pending,) = await gateway.site.sessions.pending([registration])
    return answer(subscription_members(gateway, registration, pending))


def _path_id(request: Request) -> str:
    return check_subscription_id(request.path_params["id"])


def answer(members: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(members), status, headers, _JSON)


def _either(value: int | None, default: int) -> int:
    return default if value is None else value
