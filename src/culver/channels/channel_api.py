"""The HTTP interface of the channel service: where clients begin, what operators look at."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from culver.channels.channel_service import ChannelService, ServiceSettings
from culver.channels.channel_status import (
    DecisionStatus,
    ServerStatus,
    ServiceStatus,
    channel_statuses,
    directory,
    server_status,
)
from culver.channels.core.balance.channel_balancer import BalancerSettings
from culver.channels.core.balance.load_estimate import BalancedServer
from culver.channels.core.balance.server_capacity import DEFAULT_BANDWIDTH
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings, ServerCertificate
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.server_pool import GivenServers, ServerProvisioner
from culver.channels.servers.tls_files import TlsFiles
from culver.errors import InvalidConfiguration, InvalidRequest
from culver.host_names import HostNames

_STOP_SECONDS = 2


def status_of(service: ChannelService) -> ServiceStatus:
    plan, servers = service.plan, service.servers()
    counts = service.counts
    return ServiceStatus(
        plan.ring.version,
        [_server(service, server) for server in servers],
        channel_statuses(plan, servers),
        len(plan.entries),
        service.moves_in_progress,
        counts.moves,
        service.dispatchers.restarts,
        counts.server_restarts,
        counts.lost_servers,
        [
            DecisionStatus(past.at, past.reasons, past.moves, past.started, past.stopped)
            for past in reversed(service.decisions)
        ],
    )


def _server(service: ChannelService, server: BalancedServer) -> ServerStatus:
    url, up = service.address_of(server.number)
    return server_status(server, url, up=up)


def channel_app(service: ChannelService, hosts: HostNames) -> Starlette:
    """The application of a service that runs, which answers to the names in ``hosts``."""
    registry = CollectorRegistry()
    registry.register(_Metrics(service))

    async def servers(_: Request) -> Response:
        return _json(directory(service.told_ring, service.secret))

    async def plan(_: Request) -> Response:
        return _json(status_of(service))

    async def health(_: Request) -> Response:
        up = [server for server in service.servers() if service.address_of(server.number)[1]]
        return _json({"status": "ok" if up else "no server answers"}, 200 if up else 503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [
        Route("/v1/channels/servers", servers),
        Route("/v1/channels/plan", plan),
        Route("/healthz", health),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_OwnNames, hosts)])


class _OwnNames:
    """Refuses requests under other names: the answers hold the secret of the service."""

    def __init__(self, app: ASGIApp, hosts: HostNames) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        try:
            self._hosts.check(Headers(scope=scope).getlist("host"), (scope.get("server") or (None,))[0])
        except InvalidRequest as refusal:
            app = Response(
                f"{refusal.message}\n", refusal.details.get("status", 400), media_type="text/plain"
            )
        await app(scope, receive, send)


async def serve_channels(
    service: ChannelService,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    on_ready: Callable[[str, list[str]], None],
) -> None:
    """Serves until SIGINT or SIGTERM, which also end a start. ``on_ready`` gets the address where clients begin, and
    the servers. ``allowed_hosts`` are names of the service besides ``host``.

    :raises InvalidConfiguration: the address cannot be used.
    """
    try:
        listener = socket.create_server((host, port), reuse_port=False)
    except OSError as error:
        # Python repeats the address behind the system's words.
        reason = str(error.strerror).partition(" (while")[0]
        raise InvalidConfiguration(f"cannot listen on {host}:{port}: {reason}", field="port") from error
    with listener:
        hosts = HostNames(host, allowed_hosts, setting="--allow-host")
        serving = asyncio.ensure_future(_serve(service, listener, host, hosts, on_ready))
        # A second signal changes nothing: stopping takes seconds at most, and no server must be left behind.
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        waiting = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, serving):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def _serve(
    service: ChannelService,
    listener: socket.socket,
    host: str,
    hosts: HostNames,
    on_ready: Callable[[str, list[str]], None],
) -> None:
    config = uvicorn.Config(
        channel_app(service, hosts),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        lifespan="off",
    )
    server = EmbeddedServer(config)
    async with service:
        shown = f"http://{host}:{listener.getsockname()[1]}"
        on_ready(shown, [each.url for each in service.ring.servers])
        serving = asyncio.ensure_future(server.serve([listener]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = True
            await serving


class EmbeddedServer(uvicorn.Server):
    """Leaves signals to the program around it: uvicorn would end the process after SIGTERM, before the service has
    stopped its servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Metrics(Collector):
    def __init__(self, service: ChannelService) -> None:
        self._service = service

    def collect(self) -> list[Metric]:
        status = status_of(self._service)
        metrics: list[Metric] = []
        for name, text in (
            ("load_ratio", "The load of a server against what it bears."),
            ("outgoing_bytes", "Bytes that a server sends in a second."),
            ("allowed_bytes", "Bytes that a server may send in a second."),
            ("cpu", "The part of a core that a server uses."),
            ("clients", "Connections of a server."),
            ("output_buffer_bytes", "Bytes that wait for slow subscribers of a server."),
        ):
            gauge = GaugeMetricFamily(f"culver_channels_server_{name}", text, labels=["server"])
            for server in status.servers:
                gauge.add_metric([str(server.number)], float(getattr(server, name)))
            metrics.append(gauge)
        for name, text, value in (
            ("entries", "Channels that the plan names.", status.channels_with_entry),
            ("moves_in_progress", "Channels that are being moved.", status.moves_in_progress),
            ("servers", "Servers of the pool.", len(status.servers)),
        ):
            metrics.append(GaugeMetricFamily(f"culver_channels_{name}", text, value=float(value)))
        for name, text, value in (
            ("moves", "Moves of channels since the start.", status.moves),
            (
                "dispatcher_restarts",
                "Dispatchers that ended and were started again.",
                status.dispatcher_restarts,
            ),
            ("server_restarts", "Servers that ended and were started again.", status.server_restarts),
            ("lost_servers", "Servers that were given up.", status.lost_servers),
        ):
            metrics.append(CounterMetricFamily(f"culver_channels_{name}", text, value=float(value)))
        return metrics


def _json(answer: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


async def run_channel_service(
    *,
    servers: int,
    max_servers: int,
    given: tuple[str, ...],
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...],
    data_dir: Path,
    bandwidth: float | None,
    username: str | None,
    password: str | None,
    tls: TlsFiles,
    on_ready: Callable[[str, list[str]], None],
) -> None:
    """Puts a service together from the options of `culver channels serve`, and serves it. ``tls`` are the files of
    the service as a client of ``given`` servers; without these, they are what its own servers show to their clients.
    """
    provisioner: ServerProvisioner
    if given:
        access = ServerAccess.with_files(username, password, tls)
        provisioner = GivenServers(given, data_dir, access, servers)
    else:
        at = "127.0.0.1" if host == "localhost" else host
        certificate = None
        if tls.certificate is not None and tls.key is not None and tls.authorities is not None:
            certificate = ServerCertificate(tls.certificate, tls.key, tls.authorities)
        own = LocalServerSettings(host=at, password=password, certificate=certificate)
        provisioner = LocalServers(data_dir, own)
    settings = ServiceSettings(
        first_servers=servers,
        bandwidth=DEFAULT_BANDWIDTH if bandwidth is None else bandwidth * 1e6 / 8,
        bandwidth_is_limit=bandwidth is not None,
        balancer=BalancerSettings(min_servers=servers, max_servers=max_servers),
    )
    await serve_channels(ChannelService(provisioner, data_dir, settings), host, port, allowed_hosts, on_ready)
