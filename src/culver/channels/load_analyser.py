"""Measures one server without slowing it: clients' reports, and once a second what the server tells of itself.

The paper's analyser subscribes to every channel (section III-A). This one asks for ``INFO``, for ``PUBSUB NUMSUB`` of
the busiest channels and for ``CLIENT LIST``, all by one connection, and stores the load on the server, where the
balancer reads it. Only while the server carries out clearly more than clients report does it subscribe to a few
channels for a moment, by a connection of its own: ``core/balance/foreign_traffic`` decides when and for how long.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec

from culver.channels.core.balance.foreign_traffic import MOST_NAMED_CHANNELS, ForeignTraffic, PublishCounts
from culver.channels.core.channel_load import ClientLoadReport, LoadWindow, ServerFigures
from culver.channels.core.reserved_names import LOAD_KEY
from culver.channels.servers.redis_link import RedisLink
from culver.errors import CulverError

logger = logging.getLogger(__name__)

_COUNTED_CHANNELS = 256
#: CLIENT LIST grows with the clients, so it is asked less often.
_CLIENT_LIST_SECONDS = 5.0
#: How long a connection of another program that has published counts as a publisher.
_STRANGER_SECONDS = 30.0
_BUFFER_LIMIT = re.compile(rb"pubsub (\d+) ")
_PUBLISH_CALLS = re.compile(r"calls=(\d+)")

#: Makes a link that is not connected yet, for what the server pushes.
NewLink = Callable[[Callable[[list[list[Any]]], None]], RedisLink]


class LoadAnalyser:
    """Beside one server, in its dispatcher's process. Without ``new_link`` it observes nothing. Close it."""

    def __init__(self, server: int, now: float, new_link: NewLink | None = None) -> None:
        self._server = server
        self._window = LoadWindow(server, now)
        self._foreign = ForeignTraffic()
        self._new_link = new_link
        self._observer: RedisLink | None = None
        self._stranger_at: float | None = None
        self._clients_at = 0.0
        self._buffers = (0, 0)
        self._reports = msgspec.msgpack.Decoder(ClientLoadReport)
        self._warned: set[bytes] = set()

    def take_report(self, data: bytes, now: float) -> None:
        """Takes a client's report; what cannot be read is left out."""
        try:
            self._window.add_report(self._reports.decode(data), now)
        except msgspec.DecodeError as error:
            logger.warning("a load report to server %d was ignored: %s", self._server, error)

    def close(self) -> None:
        """Ends an observation that is under way."""
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    async def measure(self, link: RedisLink, now: float, heard: int = 0) -> None:
        """Asks the server, and stores its load there. ``heard`` counts the messages on reserved channels so far.

        :raises CulverError: the server does not answer.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        await link.request((b"PING",))
        probe = loop.time() - began
        info = parse_info(await link.request((b"INFO",)))
        if now >= self._clients_at + _CLIENT_LIST_SECONDS:
            self._clients_at = now
            await self._look_at_clients(link, now)
        self._window.add_figures(
            ServerFigures(
                outgoing_bytes=int(info.get("total_net_output_bytes", 0)),
                incoming_bytes=int(info.get("total_net_input_bytes", 0)),
                cpu_seconds=float(info.get("used_cpu_sys", 0)) + float(info.get("used_cpu_user", 0)),
                clients=int(info.get("connected_clients", 0)),
                output_buffer_bytes=self._buffers[0],
                waiting_clients=self._buffers[1],
                probe_seconds=probe,
            ),
            now,
        )
        clients = int(info.get("connected_clients", 0))
        await self._look_for_strangers(link, info, heard, now)
        busiest = self._window.busiest(now, _COUNTED_CHANNELS)
        if busiest:
            counts = await _count_subscribers(link, busiest, clients)
            observed = self._foreign.observed
            self._window.add_subscribers({name: counts[name] - (name in observed) for name in counts})
        await link.request((b"SET", LOAD_KEY, msgspec.msgpack.encode(self._window.load(now))))

    async def _look_for_strangers(
        self, link: RedisLink, info: dict[str, str], heard: int, now: float
    ) -> None:
        """Lets the core compare, and begins or ends an observation if it says so."""
        foreign = self._foreign
        statistics = parse_info(await link.request((b"INFO", b"commandstats")))
        calls = _PUBLISH_CALLS.search(statistics.get("cmdstat_publish", ""))
        foreign.look(
            PublishCounts(
                published=int(calls.group(1)) if calls else 0,
                reported=self._window.reported + heard,
                outgoing_bytes=int(info.get("total_net_output_bytes", 0)),
                reported_bytes=self._window.reported_bytes,
                stranger=self._stranger_at is not None and now < self._stranger_at + _STRANGER_SECONDS,
            )
        )
        if foreign.is_over(now):
            found = foreign.found()[:_COUNTED_CHANNELS]
            clients = int(info.get("connected_clients", 0))
            # An observer that has used up its bounds has left, and is not among the subscribers.
            has_left = self._observer is None
            counts = await _count_subscribers(link, found, clients) if found else {}
            foreign.finish({name: count + has_left for name, count in counts.items()}, now)
            self.close()
            if found:
                logger.info("other programs publish on %d channels of server %d", len(found), self._server)
        elif self._observer is not None and not self._observer.is_open:
            self.close()
            foreign.abandon(now)
        self._window.add_observed(foreign.take_uses(now), now)
        few = int(info.get("pubsub_channels", 0)) <= MOST_NAMED_CHANNELS
        if few and self._new_link is not None and foreign.wants_names(now):
            names = await link.request((b"PUBSUB", b"CHANNELS"))
            reported = frozenset(self._window.busiest(now))
            channels = foreign.choose(names if isinstance(names, list) else [], reported, now)
            if channels:
                await self._observe(self._new_link, channels)

    async def _observe(self, new_link: NewLink, channels: list[bytes]) -> None:
        observer = self._observer = new_link(self._observed)
        loop = asyncio.get_running_loop()
        try:
            await observer.connect()
            # Messages may come before the last confirmation.
            self._foreign.begin(channels, loop.time())
            await observer.request((b"SUBSCRIBE", *channels))
        except CulverError as error:
            logger.warning("server %d cannot be observed: %s", self._server, error)
            self.close()
            self._foreign.abandon(loop.time())

    def _observed(self, pushes: list[list[Any]]) -> None:
        now = asyncio.get_running_loop().time()
        for push in pushes:
            if push[0] == b"message" and not self._foreign.heard(push[1], push[2], now):
                self.close()
                return

    async def _look_at_clients(self, link: RedisLink, now: float) -> None:
        """Adds up what waits for slow subscribers, warns of those whose buffer is half full, and looks for publishers
        whose connections are not ours."""
        listing = await link.request((b"CLIENT", b"LIST"))
        limits = await link.request((b"CONFIG", b"GET", b"client-output-buffer-limit"))
        limit = _pubsub_limit(limits)
        total = waiting = 0
        for line in (listing if isinstance(listing, bytes) else b"").splitlines():
            fields = dict(part.partition(b"=")[::2] for part in line.split(b" "))
            size = int(fields.get(b"omem", b"0"))
            total += size
            waiting += size > 0
            name = fields.get(b"name", b"") or fields.get(b"id", b"")
            if fields.get(b"cmd") == b"publish" and not name.startswith(b"culver-"):
                self._stranger_at = now
            if limit and size > limit / 2:
                if name not in self._warned:
                    self._warned.add(name)
                    logger.warning(
                        "subscriber %s of server %d reads too slowly: %d of %d bytes wait for it, and at the limit "
                        "Redis cuts its connection",
                        name.decode(errors="replace"),
                        self._server,
                        size,
                        limit,
                    )
            else:
                self._warned.discard(name)
        self._buffers = (total, waiting)


async def _count_subscribers(link: RedisLink, channels: list[bytes], clients: int) -> dict[bytes, int]:
    """Valkey 9.1 has channels for which it answers with nonsense. These are left out."""
    reply = await link.request((b"PUBSUB", b"NUMSUB", *channels))
    pairs = zip(reply[::2], reply[1::2], strict=False) if isinstance(reply, list) else ()
    return {name: count for name, count in pairs if count <= clients}


def parse_info(reply: object) -> dict[str, str]:
    """The fields of INFO."""
    if not isinstance(reply, bytes):
        return {}
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines if ":" in line and not line.startswith("#"))


def _pubsub_limit(reply: object) -> int:
    value = reply.get(b"client-output-buffer-limit", b"") if isinstance(reply, dict) else b""
    found = _BUFFER_LIMIT.search(value)
    return int(found.group(1)) if found else 0
