"""Errors as RFC 9457 problem documents, with the one table from error codes to statuses."""

import json
import math
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from culver.errors import CulverError

PROBLEM_TYPE = "application/problem+json"
INTERNAL = "internal_error"

# The extension of ASGI with which a server sends a response instead of accepting a WebSocket.
_DENIAL = "websocket.http.response"
_POLICY_VIOLATION = 1008

_MAX_DETAIL = 2_000
_MAX_MEMBER = 500


class InternalError(CulverError):
    """Stands for an unexpected exception, and tells a client nothing about the inside."""

    def __init__(self) -> None:
        super().__init__("The gateway failed unexpectedly; its log has the reason.")


class ProblemKind(NamedTuple):
    status: int
    title: str


KINDS: dict[str, ProblemKind] = {
    "invalid_input": ProblemKind(400, "The input is invalid"),
    "invalid_event": ProblemKind(400, "An event is invalid"),
    "invalid_filter": ProblemKind(400, "The filter is invalid"),
    "invalid_request": ProblemKind(400, "The request is invalid"),
    "invalid_configuration": ProblemKind(400, "A setting is invalid"),
    "limit_exceeded": ProblemKind(400, "A limit is exceeded"),
    "too_large": ProblemKind(413, "The content is too large"),
    "too_many_subscriptions": ProblemKind(403, "The site has too many subscriptions"),
    "rate_limited": ProblemKind(429, "Requests come too fast"),
    "not_found": ProblemKind(404, "Not found"),
    "gone": ProblemKind(410, "No longer kept"),
    "elsewhere": ProblemKind(307, "Another gateway has the subscription"),
    "conflict": ProblemKind(409, "The request conflicts with what exists"),
    "storage_error": ProblemKind(500, "The site cannot store data"),
    "storage_full": ProblemKind(507, "The site's disk is full"),
    "storage_corrupt": ProblemKind(500, "The site's data is damaged"),
    "unavailable": ProblemKind(503, "The site is not available"),
    "server_error": ProblemKind(502, "A channel server cannot be used"),
    "server_unreachable": ProblemKind(503, "A channel server is not reachable"),
    "server_busy": ProblemKind(503, "A channel server is busy"),
    "server_access_denied": ProblemKind(502, "A channel server denies access"),
    "server_unsuitable": ProblemKind(502, "A channel server is unsuitable"),
    "server_tls_failed": ProblemKind(502, "A channel server cannot be trusted"),
    "server_not_started": ProblemKind(500, "A channel server does not start"),
    "command_refused": ProblemKind(502, "A channel server refused a command"),
    INTERNAL: ProblemKind(500, "The gateway failed"),
}

# An invalid request about one of these fields has a status of its own in HTTP. The error carries it as a detail,
# because a member of a body may be called `method` too.
STATUS_OF_FIELD = {"content-type": 415, "content-encoding": 415, "method": 405, "origin": 403, "host": 403}


def status_of(error: CulverError) -> int:
    own = STATUS_OF_FIELD.get(error.field or "")
    if own is not None and error.code == "invalid_request" and error.details.get("status") == own:
        return own
    return KINDS.get(error.code, KINDS[INTERNAL]).status


def problem_document(error: CulverError) -> dict[str, Any]:
    """Make the members of a problem; the error's own details never hide the standard ones."""
    document = {
        name: value[:_MAX_MEMBER] if isinstance(value, str) else value
        for name, value in error.details.items()
    }
    document |= {
        "type": f"urn:culver:problem:{error.code}",
        "title": KINDS.get(error.code, KINDS[INTERNAL]).title,
        "status": status_of(error),
        "detail": error.message[:_MAX_DETAIL],
        "code": error.code,
        "retryable": error.retryable,
    }
    if error.field is not None:
        document["field"] = error.field[:_MAX_MEMBER]
    return document


def encode_problem(document: dict[str, Any]) -> bytes:
    # ASCII with escapes: a message may quote text that has no UTF-8 form, such as a lone surrogate.
    return json.dumps(document, ensure_ascii=True, default=str, separators=(",", ":")).encode()


class ProblemResponse(Response):
    """Answers a request or refuses a WebSocket handshake, with a close where the server cannot send a response."""

    media_type = PROBLEM_TYPE

    def __init__(self, document: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        headers = dict(headers or {})
        retry_after = document.get("retry_after_seconds", 1)
        if document["code"] in ("rate_limited", "unavailable") and isinstance(retry_after, int | float):
            headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
        super().__init__(encode_problem(document), document["status"], headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and _DENIAL not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": ""})
        else:
            await super().__call__(scope, receive, send)
