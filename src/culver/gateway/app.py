"""The application: every route, and the guard in front of them."""

import logging
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from culver.errors import CulverError, Elsewhere, InvalidRequest, NotFound
from culver.gateway.api.operations import Operation
from culver.gateway.connection_limits import check_admission
from culver.gateway.gateway_context import Gateway, Interrupted, client_of, gateway_of, location
from culver.gateway.origin_policy import preflight_headers
from culver.gateway.problems import InternalError, ProblemResponse, problem_document
from culver.gateway.routes import (
    channel_routes,
    event_routes,
    filter_routes,
    group_routes,
    log_routes,
    operation_routes,
    receiving_routes,
    set_routes,
    subscription_routes,
)
from culver.gateway.websocket.websocket_endpoint import serve_websocket
from culver.roles import Site

_logger = logging.getLogger(__name__)

# Operators need these most when everything else is too much.
_ALWAYS_ANSWERED = frozenset(
    {"/healthz", "/readyz", "/metrics", "/v1/pipeline", "/v1/slices", "/v1/gateways", "/v1/channels"}
)


def create_app(site: Site, *, heartbeat_seconds: float = 15.0) -> Starlette:
    """Make the ASGI application in front of a site. Whoever stops its server calls `app.state.gateway.stop()` first,
    which ends long requests; `GatewayServer` does so."""
    app = Starlette(
        routes=[
            *map(_route, OPERATIONS),
            Route("/openapi.json", operation_routes.describe, methods=["GET"]),
            Route("/docs", operation_routes.docs_page, methods=["GET"]),
            Route("/", operation_routes.home, methods=["GET"]),
            WebSocketRoute("/v1/ws", serve_websocket),
        ],
        middleware=[Middleware(_Guard)],
        exception_handlers={CulverError: _answer_error, HTTPException: _answer_http_error},
    )
    app.router.redirect_slashes = False
    app.router.default = _unknown_path
    app.state.operations = OPERATIONS
    app.state.gateway = Gateway(site, heartbeat_seconds)
    return app


OPERATIONS = (
    *event_routes.operations,
    *subscription_routes.operations,
    *set_routes.operations,
    *receiving_routes.operations,
    *group_routes.operations,
    *log_routes.operations,
    *channel_routes.operations,
    *filter_routes.operations,
    *operation_routes.slice_operations,
    *operation_routes.operations,
)


def _route(operation: Operation) -> Route:
    route = Route(operation.path, operation.respond, methods=[operation.method], name=operation.name)
    if operation.path.startswith("/v1/"):
        # Starlette adds HEAD to GET; a HEAD of a stream or a long poll would do its work for nothing.
        route.methods = {operation.method}
    return route


class _Guard:
    """Refuses requests beyond a limit, to a foreign name or of a foreign page before they cost anything, and answers
    an unexpected exception with a 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        gateway, headers = gateway_of(connection), connection.headers
        origin = gateway.origins.foreign_origin(headers)
        shared_headers = gateway.origins.answer_headers(origin)
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *shared_headers]}
            await send(message)

        try:
            gateway.origins.hosts.check(headers.getlist("host"), (scope.get("server") or (None,))[0])
            if scope["path"] not in _ALWAYS_ANSWERED:
                check_admission(scope)
                await gateway.requests.wait(client_of(connection), longest_seconds=0)
            method = scope["method"] if scope["type"] == "http" else None
            gateway.origins.check(headers, method)
            if origin is not None and method == "OPTIONS" and (granted := preflight_headers(headers)):
                await Response(status_code=204, headers=granted)(scope, receive, watched_send)
                return
            await self._app(scope, receive, watched_send)
        except CulverError as exc:
            await _problem(gateway, exc)(scope, receive, watched_send)
        except (ClientDisconnect, Interrupted):
            return  # the client has left
        except Exception:
            path = quote(scope["path"])[:200]  # it may hold control characters
            _logger.exception("%s %s failed", scope.get("method", "WEBSOCKET"), path)
            problem = _problem(gateway, InternalError())
            if not started:
                await problem(scope, receive, watched_send)


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound(f"there is nothing at {scope['path'][:200]}; see /docs")


async def _answer_error(connection: Request | WebSocket, error: Exception) -> Response:
    if not isinstance(error, CulverError):
        raise error
    gateway = gateway_of(connection)
    headers = {}
    # A browser would follow the redirection of another origin's page as if it came from nowhere (`Origin: null`).
    if isinstance(error, Elsewhere) and gateway.origins.foreign_origin(connection.headers) is None:
        headers["Location"] = location(connection, error)
    return _problem(gateway, error, headers)


async def _answer_http_error(connection: Request | WebSocket, error: Exception) -> Response:
    """Answer an error that Starlette raises itself, which it does only for a wrong method."""
    if not isinstance(error, HTTPException) or error.status_code != 405:
        raise error
    path = connection.scope["path"]
    routes = [route for route in connection.app.routes if isinstance(route, Route)]
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    allowed = ", ".join(sorted(methods))
    refusal = InvalidRequest(
        f"{path[:200]} does not take this method; it takes {allowed}", field="method", status=405
    )
    return _problem(gateway_of(connection), refusal, {"Allow": allowed})


def _problem(gateway: Gateway, error: CulverError, headers: dict[str, str] | None = None) -> Response:
    gateway.metrics.errors.labels(error.code).inc()
    return ProblemResponse(problem_document(error), headers)
