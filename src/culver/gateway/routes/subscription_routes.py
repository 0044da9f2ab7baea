"""`/v1/subscriptions`: make, list, read, replace and remove durable subscriptions."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from culver.channels import check_channel_name
from culver.errors import Conflict, CulverError, InvalidFilter, InvalidRequest, TooLarge, Unavailable
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.operations import JSON, Operations
from culver.gateway.api.request_reader import check_subscription_id, prefixed
from culver.gateway.gateway_context import Gateway, check_here, compute, gateway_of
from culver.messages import (
    CreatedSubscription,
    CreatedSubscriptions,
    DeliveryTarget,
    FilterWarning,
    Mailbox,
    NewSubscription,
    NewSubscriptions,
    PageQuery,
    Replacement,
    Subscription,
    SubscriptionPage,
    Warnings,
)
from culver.model import COLUMNAR
from culver.model.language import Clause, Condition, Predicate, parse, warnings_about
from culver.plugins import EXACT_FILTERS
from culver.registry import Registration, SubscriptionSpec, check_id
from culver.roles import Session, Site, no_channel_service

Sites = dict[str, int | None] | UnsetType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A character of a filter costs about as much as this many bytes of an event.
_PARSE_WEIGHT = 8

operations = Operations("subscriptions", "Durable subscriptions")
_CREATED: dict[str, Any] = {
    "answer": (Subscription, CreatedSubscriptions),
    "result": "Made; every matching event from `since` on is delivered",
    "headers": {"Location": {"schema": {"type": "string"}, "description": "For a single one"}},
}


@operations.add("POST /v1/subscriptions", status=201, problems=(409,), **_CREATED)
async def create_subscription(request: Request, body: NewSubscription | NewSubscriptions) -> Response:
    """Make a durable subscription, or many.

    An array makes all of its subscriptions or none. With `wait`, the answer comes when the subscription is in effect
    at every other site that can be reached, or when the time is up: `sites` tells which.
    """
    gateway = gateway_of(request)
    if isinstance(body, list):
        return Response(encode(await _create_all(gateway, body)), 201, media_type=JSON)
    options = _spec_options(gateway, body)
    spec = SubscriptionSpec(await parse_filter(gateway, body.filter), **options)
    (registration,) = await gateway.site.subscriptions.add([spec])
    location = {"Location": f"/v1/subscriptions/{quote(registration.id)}"}
    (sites,) = await _sites(gateway, [registration], [body])
    made = _subscription(gateway, registration, 0, sites, warnings_of(spec.predicate))
    return Response(encode(made), 201, location, JSON)


@operations.add("GET /v1/subscriptions")
async def list_subscriptions(request: Request, query: PageQuery) -> SubscriptionPage:
    """List subscriptions by id."""
    gateway = gateway_of(request)
    if query.after is not None:
        check_subscription_id(query.after, "after")
    page = await gateway.site.subscriptions.page(query.after, query.limit)
    pending = await gateway.site.sessions.pending(page)
    return SubscriptionPage(
        subscriptions=[_subscription(gateway, *each) for each in zip(page, pending, strict=True)],
        next=page[-1].id if len(page) == query.limit else None,
    )


@operations.add("GET /v1/subscriptions/{id}")
async def read_subscription(request: Request) -> Subscription:
    """Read a subscription."""
    gateway = gateway_of(request)
    registration = await gateway.site.subscriptions.get(request.path_params["id"])
    (sites,) = await _sites(gateway, [registration])
    return await _with_pending(gateway, registration, sites, UNSET)


@operations.add("PUT /v1/subscriptions/{id}", problems=(409,))
async def replace_subscription(request: Request, body: Replacement) -> Subscription:
    """Give a subscription another filter and other options.

    With `wait`, the answer comes when that is in effect at every other site that can be reached, or when the time is
    up.
    """
    gateway = gateway_of(request)
    options = _spec_options(gateway, body) | {"id": request.path_params["id"]}
    spec = SubscriptionSpec(await parse_filter(gateway, body.filter), **options)
    registration = await gateway.site.subscriptions.replace(spec)
    (sites,) = await _sites(gateway, [registration], [body])
    return await _with_pending(gateway, registration, sites, warnings_of(spec.predicate))


@operations.add("DELETE /v1/subscriptions/{id}", status=204, answer=None, result="Ended")
async def remove_subscription(request: Request) -> Response:
    """End a subscription."""
    await gateway_of(request).site.subscriptions.remove(request.path_params["id"])
    return Response(status_code=204)


async def durable_registration(request: Request) -> Registration:
    """The durable subscription that the path names. Raises NotFound, Elsewhere, or Conflict for a live one: it
    belongs to the connection that made it, and ends with it."""
    subscription = request.path_params["id"]
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


def warnings_of(predicate: Predicate) -> Warnings | UnsetType:
    return warning_messages(predicate.condition, predicate.clauses)


def warning_messages(condition: Condition, clauses: tuple[Clause, ...] | None) -> Warnings | UnsetType:
    """The doubts about a filter as answers have them; UNSET, which answers leave out, where there are none."""
    return [FilterWarning(*each) for each in warnings_about(condition, clauses)] or UNSET


async def live_spec(gateway: Gateway, subscription: str, text: str, scheme: str | None) -> SubscriptionSpec:
    """Specify a live subscription; `scheme` is unchecked. Raises InvalidRequest, InvalidFilter."""
    chosen = check_scheme(scheme)
    return SubscriptionSpec(await parse_filter(gateway, text), subscription, durable=False, scheme=chosen)


async def open_live(site: Site, spec: SubscriptionSpec, after: int | None) -> Session:
    """Register a live subscription and connect to it. Where that fails half-way, or the caller is cancelled, the
    subscription ends before this raises."""
    registration = await add_live(site, spec)
    try:
        return await site.sessions.open(registration, after)
    except BaseException:
        with suppress(CulverError):
            await site.subscriptions.remove(registration.id)
        raise


async def add_live(site: Site, spec: SubscriptionSpec) -> Registration:
    """Register a live subscription. Where the caller is cancelled, it ends before this raises."""
    adding = asyncio.ensure_future(site.subscriptions.add([spec]))
    try:
        (registration,) = await asyncio.shield(adding)
    except asyncio.CancelledError:
        with suppress(CulverError):
            (registration,) = await adding
            await site.subscriptions.remove(registration.id)
        raise
    return registration


def check_scheme(name: str | None) -> str:
    """The filtering scheme of that name, or the default. Raises InvalidRequest."""
    if name is not None and name not in EXACT_FILTERS:
        known = list(EXACT_FILTERS)
        raise InvalidRequest(
            f"there is no filtering scheme {name[:100]!r}; known: {', '.join(known)}",
            field="scheme",
            known=known,
        )
    return COLUMNAR if name is None else name


def lifetime_and_limits(
    gateway: Gateway, lifetime_seconds: float | None, mailbox: Mailbox | None, prefix: str = "mailbox."
) -> dict[str, Any]:
    """The members of a SubscriptionSpec, or a BlockSpec, about its expiry and its mailbox. Raises InvalidRequest."""
    options: dict[str, Any] = {}
    if lifetime_seconds is not None:
        options["expires_at_us"] = time.time_ns() // 1000 + int(lifetime_seconds * 1_000_000)
    if mailbox is not None:
        for name in Mailbox.__struct_fields__:
            member = name.replace("max", "mailbox")
            wanted, most = getattr(mailbox, name), getattr(gateway.settings.delivery, member)
            if wanted is not None and wanted > most:
                raise InvalidRequest(
                    f"{prefix}{name} must be a whole number from 1 to {most}", field=prefix + name
                )
            options[member] = wanted
    return options


def _spec_options(gateway: Gateway, body: Replacement) -> dict[str, Any]:
    options = lifetime_and_limits(gateway, body.expires_in_seconds, body.mailbox)
    options["scheme"] = check_scheme(body.scheme)
    if body.deliver is not None:
        check_channel_name(body.deliver.channel.encode(), "deliver.channel")
        if not gateway.settings.channels.url:
            raise no_channel_service("deliver.channel")
        options["channel"] = body.deliver.channel
    if isinstance(body, NewSubscription) and body.id is not None:
        options["id"] = check_id(body.id, durable=True)
    return options


def _subscription(
    gateway: Gateway,
    registration: Registration,
    pending: int,
    sites: Sites = UNSET,
    warnings: Warnings | UnsetType = UNSET,
) -> Subscription:
    mailbox, limits = None, gateway.settings.delivery
    if registration.durable:
        mailbox = Mailbox(
            max_count=registration.mailbox_count or limits.mailbox_count,
            max_bytes=registration.mailbox_bytes or limits.mailbox_bytes,
            max_age_seconds=registration.mailbox_age_seconds or limits.mailbox_age_seconds,
        )
    expires_at_us = registration.expires_at_us
    return Subscription(
        id=registration.id,
        filter=registration.filter,
        scheme=registration.scheme,
        durable=registration.durable,
        since=registration.since,
        created_at=timestamp_text(registration.created_at_us),
        expires_at=None if expires_at_us is None else timestamp_text(expires_at_us),
        mailbox=mailbox,
        pending=pending,
        deliver=None if registration.channel is None else DeliveryTarget(channel=registration.channel),
        sites=sites,
        warnings=warnings,
    )


def timestamp_text(microseconds: int) -> Any:
    """A moment in RFC 3339, in UTC. It is text because msgspec leaves out microseconds that are 0."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


async def _with_pending(
    gateway: Gateway, registration: Registration, sites: Sites, warnings: Warnings | UnsetType
) -> Subscription:
    (pending,) = await gateway.site.sessions.pending([registration])
    return _subscription(gateway, registration, pending, sites, warnings)


async def _sites(
    gateway: Gateway, registrations: Sequence[Registration], asked: Iterable[Replacement] = ()
) -> Sequence[Sites]:
    """The positions of subscriptions at other sites, once they are in effect there if a request asks for that. A
    gateway that stops waits no longer."""
    if not gateway.settings.overlay.is_on:
        return [UNSET] * len(registrations)
    overlay = gateway.site.overlay
    seconds = [each.wait_seconds for each in asked if each.wait is not None]
    if seconds:
        with suppress(Unavailable):
            async with gateway.long_request("wait"):
                await overlay.wait(registrations, max(seconds))
    return await overlay.positions(registrations)


async def _create_all(gateway: Gateway, body: list[NewSubscription]) -> CreatedSubscriptions:
    limit = gateway.settings.registry.max_batch
    if not body:
        raise InvalidRequest("the array holds no subscription", field="body")
    if len(body) > limit:
        raise TooLarge(
            f"at most {limit} subscriptions fit one request; send several", field="body", limit=limit
        )
    # Weighed together: many small filters take as long as one huge one.
    specs, warnings = await compute(len(body) * 256, _specs, gateway, body)
    registrations = await gateway.site.subscriptions.add(specs)
    sites = await _sites(gateway, registrations, body)
    return CreatedSubscriptions(
        subscriptions=[
            CreatedSubscription(id=each.id, since=each.since, sites=known, warnings=doubts)
            for each, known, doubts in zip(registrations, sites, warnings, strict=True)
        ]
    )


def _specs(
    gateway: Gateway, body: list[NewSubscription]
) -> tuple[list[SubscriptionSpec], list[Warnings | UnsetType]]:
    specs: list[SubscriptionSpec] = []
    for index, each in enumerate(body):
        try:
            options = _spec_options(gateway, each)
            specs.append(SubscriptionSpec(_parse(gateway, each.filter), **options))
        except CulverError as exc:
            raise prefixed(exc, f"[{index}]") from exc
    return specs, [warnings_of(spec.predicate) for spec in specs]


def _parse(gateway: Gateway, text: str) -> Predicate:
    try:
        return parse(text, gateway.settings.filters)
    except InvalidFilter as exc:
        raise InvalidFilter(exc.message, field="filter", **exc.details) from exc
