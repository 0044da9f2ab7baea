"""Measures one server without slowing it: clients' reports, and once a second what the server tells of itself.

The paper's analyser subscribes to every channel (section III-A); this one never does. It asks for ``INFO``, for
``PUBSUB NUMSUB`` of the busiest channels and for ``CLIENT LIST``, all by the dispatcher's own connection, and stores
the load on the server, where the balancer reads it.
"""

import asyncio
import logging
import re

import msgspec

from culver.channels.core.channel_load import ClientLoadReport, LoadWindow, ServerFigures
from culver.channels.core.reserved_names import LOAD_KEY
from culver.channels.servers.redis_link import RedisLink

logger = logging.getLogger(__name__)

_COUNTED_CHANNELS = 256
#: CLIENT LIST grows with the clients, so it is asked less often.
_CLIENT_LIST_SECONDS = 5.0
_BUFFER_LIMIT = re.compile(rb"pubsub (\d+) ")


class LoadAnalyser:
    """Beside one server, in its dispatcher's process."""

    def __init__(self, server: int, now: float) -> None:
        self._server = server
        self._window = LoadWindow(server, now)
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

    async def measure(self, link: RedisLink, now: float) -> None:
        """Asks the server, and stores its load there.

        :raises CulverError: the server does not answer.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        await link.request((b"PING",))
        probe = loop.time() - began
        info = parse_info(await link.request((b"INFO",)))
        if now >= self._clients_at + _CLIENT_LIST_SECONDS:
            self._clients_at = now
            await self._look_at_buffers(link)
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
        busiest = self._window.busiest(now, _COUNTED_CHANNELS)
        if busiest:
            reply = await link.request((b"PUBSUB", b"NUMSUB", *busiest))
            if isinstance(reply, list):
                # Valkey 9.1 has channels for which it answers with nonsense; what PUBLISH returned counts for these.
                clients = int(info.get("connected_clients", 0))
                counts = zip(reply[::2], reply[1::2], strict=False)
                self._window.add_subscribers({name: count for name, count in counts if count <= clients})
        await link.request((b"SET", LOAD_KEY, msgspec.msgpack.encode(self._window.load(now))))

    async def _look_at_buffers(self, link: RedisLink) -> None:
        """Adds up what waits for slow subscribers, and warns of those whose buffer is half full."""
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
