"""The application: every route, and the guard in front of them."""

import logging
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from culver.errors import CulverError, Elsewhere, InvalidRequest, NotFound, Unavailable
from culver.gateway.api.operations import Operation
from culver.gateway.gateway_context import Gateway, Interrupted, client_of, gateway_of, location
from culver.gateway.problems import InternalError, ProblemResponse, problem_document
from culver.gateway.routes import (
    channel_routes,
    event_routes,
    filter_routes,
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

# Methods that change nothing; a page of another origin cannot read their answers.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


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
    """Refuses requests beyond a limit before they cost anything, and answers an unexpected exception with a 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        connection = HTTPConnection(scope)
        gateway = gateway_of(connection)
        try:
            if scope["path"] not in _ALWAYS_ANSWERED:
                limit = gateway.settings.gateway.max_connections
                if gateway.open_connections() > limit:
                    text = f"{limit} connections are open already; try again soon"
                    raise Unavailable(text, field="max_connections")
                await gateway.requests.wait(client_of(connection), longest_seconds=0)
            if scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS:
                _check_origin(connection.headers)
            await self._app(scope, receive, watched_send)
        except CulverError as exc:
            await _problem(gateway, exc)(scope, receive, send)
        except (ClientDisconnect, Interrupted):
            return  # the client has left
        except Exception:
            _logger.exception("%s %s failed", scope.get("method", "WEBSOCKET"), scope["path"])
            problem = _problem(gateway, InternalError())
            if not started:
                await problem(scope, receive, send)


def _check_origin(headers: Headers) -> None:
    """Raises InvalidRequest (status 403) where another host or port served the page that sends the request: browsers
    let pages of other origins open WebSockets and send some requests. Only browsers send `Origin`, and a page cannot
    choose its value, so the check does not affect other clients."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if origins and not (len(origins) == len(hosts) == 1 and is_same_origin(origins[0], hosts[0])):
        raise InvalidRequest(
            f"the page of {origins[0][:200]!r} may not do this: its host and port are not those of this site; "
            "a proxy in between must pass the Host header on",
            field="origin",
            status=403,
        )


def is_same_origin(origin: str, host: str) -> bool:
    """Tell whether the values of `Origin` and `Host` name the same host and port. Both are read with the origin's
    scheme, because the gateway does not see the browser's behind a proxy that ends TLS."""
    try:
        page = urlsplit(origin)
        default = _DEFAULT_PORTS.get(page.scheme)
        site = urlsplit(f"{page.scheme}://{host}")
        return (
            default is not None
            and bool(page.hostname)
            and page.hostname == site.hostname
            and (page.port or default) == (site.port or default)
        )
    except ValueError:
        return False


async def _unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound(f"there is nothing at {scope['path'][:200]}; see /docs")


async def _answer_error(connection: Request | WebSocket, error: Exception) -> Response:
    if not isinstance(error, CulverError):
        raise error
    headers = {"Location": location(connection, error)} if isinstance(error, Elsewhere) else None
    return _problem(gateway_of(connection), error, headers)


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
