"""The schemas of the OpenAPI document: every JSON object that the API takes or gives."""

from collections.abc import Mapping
from typing import Any

import msgspec

from culver.config import Settings
from culver.control import SiteObservation, SlicesView
from culver.gateway.problems import KINDS
from culver.model import COLUMNAR
from culver.plugins import FILTERS

Schema = dict[str, Any]

EXAMPLE_EVENT = {"symbol": "ACME", "price": 21.5, "volume": 900}
EXAMPLE_FILTER = "symbol = 'ACME' AND price > 20"
EXAMPLE_ROWS = {"filter": "symbol = ? AND price >= ?", "rows": [["ACME", 20], ["EMCA", 7.5]]}
EXAMPLE_CLOUDEVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/exchange",
    "type": "quote",
    "data": {"symbol": "ACME", "price": 21.5},
}

SCHEME: Schema = {
    "type": "string",
    "enum": sorted(FILTERS),
    "default": COLUMNAR,
    "description": "The filtering scheme: the filter that matches it",
}
_OFFSET: Schema = {"type": "integer", "minimum": 0, "description": "A position in the log"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_EVENT: Schema = {"$ref": "#/components/schemas/Event"}
_DELIVERY_ID: Schema = {"type": "string", "examples": ["alerts:17"]}
_REASONS = ["overflow", "expired", "disconnected", "unavailable"]


def all_schemas(settings: Settings) -> dict[str, Schema]:
    return {
        "Event": _event(),
        "Accepted": _object({"accepted": _COUNT, "first_offset": _OFFSET, "next_offset": _OFFSET}),
        "MailboxLimits": _mailbox_limits(settings),
        "NewSubscription": _new_subscription(settings),
        "Replacement": _replacement(settings),
        "Subscription": _subscription(),
        "NewSubscriptions": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/NewSubscription"},
            "minItems": 1,
            "maxItems": settings.registry.max_batch,
        },
        "Created": _object(
            {
                "subscriptions": {
                    "type": "array",
                    "items": _object({"id": {"type": "string"}, "since": _OFFSET}),
                }
            }
        ),
        "SubscriptionPage": _object(
            {
                "subscriptions": {"type": "array", "items": {"$ref": "#/components/schemas/Subscription"}},
                "next": {
                    "type": ["string", "null"],
                    "description": "Give it as `after` to get the next page",
                },
            }
        ),
        "NewRows": _new_rows(settings),
        "Rows": _object({"set": _TEXT, "count": _COUNT, "first": _COUNT, "next": _COUNT, "since": _OFFSET}),
        "SetPage": _object(
            {
                "sets": {
                    "type": "array",
                    "items": _object({"set": _TEXT, "count": _COUNT, "next": _COUNT, "filters": _CLAUSES}),
                },
                "next": {
                    "type": ["string", "null"],
                    "description": "Give it as `after` to get the next page",
                },
            }
        ),
        "RemovedSet": _object({"removed": _COUNT}),
        "Item": {
            "oneOf": [{"$ref": "#/components/schemas/EventItem"}, {"$ref": "#/components/schemas/GapItem"}],
            "discriminator": {
                "propertyName": "type",
                "mapping": {
                    "event": "#/components/schemas/EventItem",
                    "gap": "#/components/schemas/GapItem",
                },
            },
        },
        "EventItem": _object(
            {"type": {"const": "event"}, "delivery_id": _DELIVERY_ID, "offset": _OFFSET, "event": _EVENT}
        ),
        "GapItem": _object(
            {
                "type": {"const": "gap"},
                "start": _OFFSET,
                "end": _OFFSET,
                "dropped": {"type": ["integer", "null"], "description": "How many, where that is known"},
                "reason": {"enum": _REASONS},
            },
            description="Events of [start, end) may be missing",
        ),
        "Items": _object({"items": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}}}),
        "Acknowledgement": _object({"delivery_id": _DELIVERY_ID}),
        "Acknowledged": _object({"acknowledged": _OFFSET}),
        "FilterTest": _object({"filter": _filter(settings), "event": _EVENT}),
        "FilterTestResult": _object(
            {
                "matches": {"type": "boolean"},
                "result": {"type": ["boolean", "null"], "description": "null is unknown"},
                "clause": {"type": ["integer", "null"], "description": "The first clause that matched"},
                "clauses": _CLAUSES,
            }
        ),
        "FilterText": _object({"filter": _filter(settings)}),
        "Clauses": _object({"clauses": _CLAUSES}),
        "NewSlice": _object(
            {
                "split": {
                    "type": ["integer", "null"],
                    "minimum": 0,
                    "description": "The slice to take half of",
                }
            },
            optional=("split",),
            additionalProperties=False,
        ),
        "Gateways": _object(
            {
                "gateways": {
                    "type": "array",
                    "items": _object(
                        {
                            "number": _COUNT,
                            "url": _TEXT,
                            "state": _TEXT | {"description": "running, or what is wrong"},
                            "subscriptions": _COUNT | {"description": "Of its share"},
                            "sessions": _COUNT | {"description": "That are connected to it"},
                        }
                    ),
                }
            }
        ),
        "Status": {
            "type": "object",
            "properties": {
                "engine": {"type": "string"},
                "state": {"type": "string"},
                "ready": {"type": "boolean"},
                "log_first_offset": _OFFSET,
                "log_next_offset": _OFFSET,
                "delivered_offset": _OFFSET,
                "subscriptions": _COUNT,
                "index_version": {"type": "integer"},
            },
            "required": ["ready"],
        },
        **_observation(),
        "Problem": _problem(),
    }


_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXT: Schema = {"type": "string"}
_CLAUSES: Schema = {"type": "array", "items": {"type": "string"}}


def _object(properties: Mapping[str, Schema], *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        **more,
    }


def _event() -> Schema:
    return {
        "type": "object",
        "description": "A plain event, or a structured CloudEvent where it has a member `specversion`",
        "additionalProperties": True,
        "examples": [EXAMPLE_EVENT, EXAMPLE_CLOUDEVENT],
    }


def _filter(settings: Settings) -> Schema:
    return {
        "type": "string",
        "maxLength": settings.filters.max_length,
        "description": "A condition as in SQL's WHERE",
        "examples": [EXAMPLE_FILTER],
    }


def _mailbox_limits(settings: Settings) -> Schema:
    delivery = settings.delivery
    limits = {
        "max_count": delivery.mailbox_count,
        "max_bytes": delivery.mailbox_bytes,
        "max_age_seconds": delivery.mailbox_age_seconds,
    }
    return {
        "type": "object",
        "properties": {
            name: {"type": "integer", "minimum": 1, "maximum": limit, "default": limit}
            for name, limit in limits.items()
        },
        "additionalProperties": False,
    }


def _new_subscription(settings: Settings) -> Schema:
    identifier = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"}
    properties = {"filter": _filter(settings), "id": identifier, "scheme": SCHEME, **_options()}
    return _object(
        properties,
        optional=("id", "scheme", *_options()),
        additionalProperties=False,
        examples=[{"id": "alerts", "filter": EXAMPLE_FILTER, "expires_in_seconds": 86400}],
    )


def _new_rows(settings: Settings) -> Schema:
    most = settings.registry.max_rows
    value: Schema = {"type": ["number", "string", "boolean", "object"]}
    values: Schema = {"type": "array", "items": value}
    properties = {
        "filter": _filter(settings) | {"description": "A filter with `?` in place of values"},
        "rows": {"type": "array", "items": values, "minItems": 1, "maxItems": most},
        "columns": {"type": "array", "items": values | {"minItems": 1, "maxItems": most}},
        "first": {
            "type": "integer",
            "minimum": 0,
            "description": "Refuse unless the first row gets this number",
        },
        **_options(),
    }
    return _object(
        properties,
        optional=("rows", "columns", "first", *_options()),
        additionalProperties=False,
        description="Either rows or columns",
        examples=[EXAMPLE_ROWS],
    )


def _replacement(settings: Settings) -> Schema:
    return _object(
        {"filter": _filter(settings), "scheme": SCHEME, **_options()},
        optional=("scheme", *_options()),
        additionalProperties=False,
        examples=[{"filter": "price > 30"}],
    )


def _options() -> dict[str, Schema]:
    return {
        "expires_in_seconds": {"type": "number", "exclusiveMinimum": 0},
        "mailbox": {"$ref": "#/components/schemas/MailboxLimits"},
    }


def _subscription() -> Schema:
    return _object(
        {
            "id": {"type": "string"},
            "filter": {"type": "string"},
            "scheme": SCHEME,
            "durable": {"type": "boolean", "description": "false for a connection's live subscription"},
            "since": _OFFSET | {"description": "Every matching event from this position on is delivered"},
            "created_at": _TIME,
            "expires_at": {"type": ["string", "null"], "format": "date-time"},
            "mailbox": {"oneOf": [{"$ref": "#/components/schemas/MailboxLimits"}, {"type": "null"}]},
            "pending": {"type": "integer", "description": "Deliveries waiting to be acknowledged"},
        }
    )


def _observation() -> dict[str, Schema]:
    records = [SiteObservation, SlicesView]
    _, schemas = msgspec.json.schema_components(records, ref_template="#/components/schemas/{name}")
    plain: dict[str, Schema] = msgspec.json.decode(msgspec.json.encode(schemas))  # lists, where it has tuples
    return plain


def _problem() -> Schema:
    return _object(
        {
            "type": {"type": "string", "examples": ["urn:culver:problem:invalid_filter"]},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What is wrong and what to do"},
            "code": {"type": "string", "enum": list(KINDS)},
            "field": {"type": "string", "description": "What it is about"},
            "retryable": {"type": "boolean", "description": "Whether the same request may succeed later"},
        },
        optional=("field",),
        description="RFC 9457; more members as the code has them",
    )
