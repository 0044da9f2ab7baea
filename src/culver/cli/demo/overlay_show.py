"""The demo of the overlay: starts a chain of sites, subscribes at two of them, publishes at the first what they want
and what nobody wants, and shows what crosses the links."""

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from culver.cli.demo.demo_sites import DemoSite, DemoSites, free_ports
from culver.cli.demo.site_chain import Arrival, SiteChain, way_lines
from culver.cli.failures import FAILURE, INTERRUPTED, SUCCESS
from culver.cli.shell_hints import invocation
from culver.cli.startup_progress import StartupProgress
from culver.client import Client, connect
from culver.errors import ConnectionFailed, Unavailable
from culver.messages import OverlayStatus

_WANTED = {"symbol": "XYZ", "price": 21.5}
_UNWANTED = {"symbol": "ABC", "price": 2.5}
_FILTERS = ("price > 20", "symbol = 'XYZ'")
_SUBSCRIPTION = "demo"

_LINK_SECONDS = 60.0
_ARRIVAL_SECONDS = 30.0
_POLL_SECONDS = 0.05
# Long enough for a packet that should not exist.
_SILENCE_SECONDS = 0.5


async def run_overlay_demo(count: int, engine: str, routing: str, once: bool) -> int:
    """Returns the exit code. Ctrl-C, SIGTERM and SIGHUP stop the sites at any moment. Raises Unavailable if a site
    ends by itself before the show is over."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for each in signals:
        loop.add_signal_handler(each, stop.set)
    try:
        with tempfile.TemporaryDirectory(prefix="culver-demo-") as directory:
            show = _OverlayShow(count, engine, routing, Path(directory))
            running, stopped = asyncio.create_task(show.run(once)), asyncio.create_task(stop.wait())
            await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not running.done():
                click.echo("stopping the sites", err=True)
                running.cancel()
            await asyncio.gather(running, stopped, return_exceptions=True)
            if running.cancelled():
                return SUCCESS if show.is_over else INTERRUPTED
            return running.result()
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


class _OverlayShow:
    def __init__(self, count: int, engine: str, routing: str, directory: Path) -> None:
        self._chain = SiteChain.of(count)
        self._routing = routing
        ports = free_ports(2 * count)
        self._addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(self._chain.names, ports[count:], strict=True)
        }
        self._sites = DemoSites(
            DemoSite(name, engine, directory, port, self._options(name))
            for name, port in zip(self._chain.names, ports[:count], strict=True)
        )
        self._engine = engine
        self._clients: dict[str, Client] = {}
        self.is_over = False
        """The show is over, and the sites go on until somebody stops them."""

    def _options(self, name: str) -> list[str]:
        options = ["--name", name, "--overlay", self._addresses[name], "--routing", self._routing]
        for peer, cost in self._chain.dialled_by(name):
            options += ["--peer", self._addresses[peer] + ("" if cost == 1 else f"?cost={cost}")]
        return options

    async def run(self, once: bool) -> int:
        async with AsyncExitStack() as stack:
            try:
                await self._show(stack)
            except ConnectionFailed:
                await asyncio.sleep(_SILENCE_SECONDS)  # until the end of a process is known
                self._sites.check()
                raise
            self.is_over = True
            if once:
                return SUCCESS
            self._show_hints()
            return await self._watch()

    async def _show(self, stack: AsyncExitStack) -> None:
        with StartupProgress() as startup:
            startup.progress(f"starting {len(self._chain.names)} sites")
            await stack.enter_async_context(self._sites)
            await self._sites.wait_until_ready(startup.progress)
            startup.progress("waiting for the links between them")
            for site in self._sites.sites:
                self._clients[site.name] = await stack.enter_async_context(connect(site.url))
            await self._wait_for_links()
            seconds = startup.finish()
        self._show_sites(seconds)
        subscribers = await self._subscribe()
        await self._show_way(subscribers)
        await self._show_silence()

    # --- start ----------------------------------------------------------------------------------------

    async def _wait_for_links(self) -> None:
        """Every site must know all links, so that the first event goes the way that is drawn."""
        links = 2 * (len(self._chain.names) - (self._chain.spare_cost is None))

        async def are_told() -> bool:
            return all(len(seen.routes) >= links for seen in (await self._observe()).values())

        await _until(are_told, _LINK_SECONDS, "the sites were not linked")

    async def _observe(self) -> dict[str, OverlayStatus]:
        return {name: await client.overlay() for name, client in self._clients.items()}

    def _show_sites(self, seconds: float) -> None:
        names = self._chain.names
        click.echo(
            f"{len(names)} sites run on this machine, on the {self._engine} engine ({seconds:.1f} s):\n"
        )
        for line in self._chain.drawing():
            click.echo(f"    {line}")
        click.echo()
        width = max(map(len, names))
        for site in self._sites.sites:
            dials = [f"{peer} ({self._addresses[peer]})" for peer, _ in self._chain.dialled_by(site.name)]
            listens = f"other sites: {self._addresses[site.name]}"
            dialled = f", dials {' and '.join(dials)}" if dials else ""
            click.echo(f"    {site.name:<{width}}  {site.url}  {listens}{dialled}")

    # --- show -----------------------------------------------------------------------------------------

    async def _subscribe(self) -> list[str]:
        """Subscribe at the site in the middle, and at the last one. Returns their names."""
        names = self._chain.names
        subscribers = list(dict.fromkeys((names[len(names) // 2], names[-1])))
        click.echo("\n1. Subscribe, and wait until the other sites know of it.\n")
        for name, condition in zip(subscribers, reversed(_FILTERS[: len(subscribers)]), strict=True):
            made = await self._clients[name].create_subscription(
                condition, id=_SUBSCRIPTION, wait_for_sites_seconds=_ARRIVAL_SECONDS / 3
            )
            known = made.sites if isinstance(made.sites, dict) else {}
            told = ", ".join(f"{site} {position}" for site, position in known.items())
            click.echo(f"    at {name}: {condition}")
            click.echo(f"        in effect from these positions in the other logs on: {told}")
        return subscribers

    async def _show_way(self, subscribers: list[str]) -> None:
        origin = self._chain.names[0]
        wants = f"{' and '.join(subscribers)} want{'s' if len(subscribers) == 1 else ''}"
        click.echo(f"\n2. Publish {json.dumps(_WANTED)} at {origin}, which {wants}.\n")
        before = await self._observe()
        streams = {name: self._clients[name].subscribe(durable=_SUBSCRIPTION) for name in subscribers}
        for stream in streams.values():
            await stream.start()

        async def arrive(stream: Any) -> Arrival:
            message = await anext(stream)
            return Arrival(time.perf_counter() - published, message.offset)

        published = time.perf_counter()
        waiting = {name: asyncio.create_task(arrive(stream)) for name, stream in streams.items()}
        try:
            await self._clients[origin].publish(_WANTED)
            acknowledged = time.perf_counter() - published
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                arrivals = {name: await task for name, task in waiting.items()}
        except TimeoutError:
            raise Unavailable(f"the event did not arrive within {_ARRIVAL_SECONDS:.0f} s") from None
        finally:
            for task in waiting.values():
                task.cancel()
        after = await self._observe()
        carriers = _carriers(after[origin])
        ways = {name: _way(after, origin, carriers.get(name), name) for name in subscribers}
        trips = {(name, link.peer): link.rtt_seconds for name, seen in after.items() for link in seen.links}
        for line in way_lines(origin, acknowledged, ways, trips, arrivals, set(carriers.values())):
            click.echo(f"    {line}")
        click.echo(f"\n    packets sent: {_packets(before, after)}")

    async def _show_silence(self) -> None:
        origin = self._chain.names[0]
        click.echo(f"\n3. Publish {json.dumps(_UNWANTED)} at {origin}, which nobody wants.\n")
        before = await self._observe()
        receipt = await self._clients[origin].publish(_UNWANTED)

        async def is_matched() -> bool:
            status = await self._clients[origin].status()
            return bool(status["delivered_offset"] > receipt.first_offset)

        await _until(is_matched, _ARRIVAL_SECONDS, "the event was not matched")
        await asyncio.sleep(_SILENCE_SECONDS)
        after = await self._observe()
        if self._routing == "clusters":
            click.echo("    the carrier of each cluster has matched it against what the members ask for")
        else:
            click.echo(f"    {origin} has matched it against what the others ask for")
        click.echo(f"    packets sent: {_packets(before, after)}")

    # --- afterwards -----------------------------------------------------------------------------------

    def _show_hints(self) -> None:
        command, sites = invocation(), self._sites.sites
        first, last, middle = sites[0], sites[-1], sites[len(sites) // 2]
        click.echo("\nThe sites go on. Try these in other terminals:\n")
        click.echo(f'    {command} sub "price > 20" --url {last.url}')
        click.echo(f"    {command} pub '{json.dumps(_WANTED)}' --url {first.url}")
        click.echo(f"    {command} overlay sites --url {first.url}")
        click.echo(f"    {command} overlay links --url {first.url}")
        click.echo(f"    {command} overlay predicates --url {first.url}")
        if self._chain.spare_cost is not None and len(sites) > 2:
            click.echo(f"\nKill {middle.name}, and events take the spare link:\n")
            click.echo(f"    kill {middle.process.pid}")
            click.echo(f"    {command} overlay routes --url {first.url}")
        click.echo("\nCtrl-C stops all of them and removes their data.")

    async def _watch(self) -> int:
        """Tell of sites that end, until there is none."""
        running = list(self._sites.sites)
        while running:
            await asyncio.sleep(_POLL_SECONDS)
            for site in [each for each in running if each.has_ended]:
                running.remove(site)
                code = site.process.returncode
                click.echo(f"site {site.name} has ended with code {code}; {len(running)} go on", err=True)
        click.echo("no site is left", err=True)
        return FAILURE


def _carriers(status: OverlayStatus) -> dict[str, str]:
    """The carrier through which each site gets what this one publishes; empty with a routing without carriers."""
    return {
        member: each.carrier
        for each in status.clusters
        if each.carrier is not None
        for member in each.members
    }


def _way(seen: dict[str, OverlayStatus], origin: str, carrier: str | None, destination: str) -> list[str]:
    """The sites that an event passes after its origin."""
    stops = [origin, destination] if carrier is None else [origin, carrier, destination]
    way: list[str] = []
    for start, end in pairwise(stops):
        way += next((each.path for each in seen[start].sites if each.name == end), [])
    return way


async def _until(condition: Callable[[], Awaitable[bool]], seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() >= deadline:
            raise Unavailable(f"{complaint} within {seconds:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)


def _packets(before: dict[str, OverlayStatus], after: dict[str, OverlayStatus]) -> str:
    """How many packets each site has sent, of its own or for others."""
    sent = {name: after[name].totals.packets_sent - before[name].totals.packets_sent for name in after}
    told = ", ".join(f"{name} {count}" for name, count in sent.items() if count)
    total = sum(sent.values())
    if not total:
        return "none on any link"
    return f"{total} on all links together ({told})"
