"""A Valkey cluster whose slots an operator migrates between its servers.

``SETSLOT`` is the sequence of commands that ``valkey-cli --cluster reshard`` sends for each slot, and what Redis and
older Valkey servers offer. ``MIGRATESLOTS`` is Valkey 9's atomic migration, which its documentation recommends.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.channels.limited_servers import LimitedServers
from culver.bench.channels.server_networks import ServerNetwork
from culver.channels.servers.redis_link import RedisLink
from culver.errors import ServerError

SLOTS = 16_384
CLUSTER_OPTIONS = (
    *("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"),
    *("--cluster-config-file", "nodes-{number}.conf", "--cluster-port", "{cluster_port}"),
)

_MEETING_SECONDS = 30.0
_MIGRATION_SECONDS = 30.0
_PAUSE_SECONDS = 0.02


class MigrationWay(StrEnum):
    SETSLOT = "CLUSTER SETSLOT"
    MIGRATESLOTS = "CLUSTER MIGRATESLOTS"


async def share_slots(urls: list[str]) -> None:
    """Gives each server its part of the slots.

    :raises ServerError: these servers know no sharded pub/sub.
    """
    edges = [-(-SLOTS * number // len(urls)) for number in range(len(urls) + 1)]
    for url, first, after in zip(urls, edges, edges[1:], strict=False):
        async with RedisLink(url) as link:
            await link.request((b"CLUSTER", b"ADDSLOTSRANGE", b"%d" % first, b"%d" % (after - 1)))
            await link.request((b"PUBSUB", b"SHARDNUMSUB", b"hot"))


class ValkeyCluster:
    """Primary servers that know each other, as an operator sees them."""

    def __init__(self, urls: list[str], links: list[RedisLink], names: list[bytes]) -> None:
        self.urls = urls
        self._links = links
        self._names = names
        self._owners = [slot * len(urls) // SLOTS for slot in range(SLOTS)]

    def owner(self, slot: int) -> int:
        """The index of the server that has the slot."""
        return self._owners[slot]

    async def migrate(self, slot: int, target: int, way: MigrationWay) -> None:
        """Returns when the operator's tool would.

        :raises ServerError: a server refuses.
        :raises BenchmarkFailed: the migration fails, or does not end.
        """
        source = self.owner(slot)
        if way is MigrationWay.SETSLOT:
            await self._set_slot(slot, source, target)
        else:
            await self._migrate_slots(slot, source, target)
        self._owners[slot] = target

    async def _set_slot(self, slot: int, source: int, target: int) -> None:
        setting = (b"CLUSTER", b"SETSLOT", b"%d" % slot)
        await self._links[target].request((*setting, b"IMPORTING", self._names[source]))
        await self._links[source].request((*setting, b"MIGRATING", self._names[target]))
        keys = await self._links[source].request((b"CLUSTER", b"GETKEYSINSLOT", b"%d" % slot, b"10"))
        if keys:
            raise BenchmarkFailed(f"slot {slot} holds keys, and this benchmark migrates only channels")
        others = [index for index in range(len(self._links)) if index not in (source, target)]
        for index in (target, source, *others):
            await self._links[index].request((*setting, b"NODE", self._names[target]))

    async def _migrate_slots(self, slot: int, source: int, target: int) -> None:
        number = b"%d" % slot
        job = (b"CLUSTER", b"MIGRATESLOTS", b"SLOTSRANGE", number, number, b"NODE", self._names[target])
        await self._links[source].request(job)
        try:
            async with asyncio.timeout(_MIGRATION_SECONDS):
                while (state := await self._last_migration(source)) != b"success":
                    if state in (b"failed", b"canceled"):
                        raise BenchmarkFailed(f"the migration of slot {slot} has {state.decode()}")
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError as error:
            raise BenchmarkFailed(f"slot {slot} did not move within {_MIGRATION_SECONDS:g} s") from error

    async def _last_migration(self, source: int) -> bytes:
        jobs = await self._links[source].request((b"CLUSTER", b"GETSLOTMIGRATIONS"))
        if not isinstance(jobs, list) or not jobs:
            return b""
        job = jobs[0]
        fields = job if isinstance(job, dict) else dict(zip(job[::2], job[1::2], strict=True))
        state = fields.get(b"state", b"")
        return state if isinstance(state, bytes) else b""


@asynccontextmanager
async def valkey_cluster(network: ServerNetwork, count: int) -> AsyncIterator[ValkeyCluster]:
    """Yields a cluster of so many primary servers in the network, which is entered and left here.

    :raises BenchmarkFailed: the servers do not come to know each other.
    :raises ServerError: these servers know no sharded pub/sub.
    """
    with tempfile.TemporaryDirectory(prefix="culver-channels-") as folder:
        async with network, LimitedServers(network, Path(folder), count, CLUSTER_OPTIONS) as servers:
            urls = [(await servers.start()).url for _ in range(count)]
            links = [RedisLink(url) for url in urls]
            try:
                for link in links:
                    await link.connect()
                yield ValkeyCluster(urls, links, await _introduce(urls, links))
            finally:
                for link in links:
                    link.close()
                    await link.wait_closed()


async def _introduce(urls: list[str], links: list[RedisLink]) -> list[bytes]:
    """Makes the servers one cluster, and returns their names there."""
    for epoch, link in enumerate(links, 1):
        await link.request((b"CLUSTER", b"SET-CONFIG-EPOCH", b"%d" % epoch))
    await share_slots(urls)
    for url, link in zip(urls[1:], links[1:], strict=True):
        host, _, port = url.removeprefix("redis://").rpartition(":")
        place = (host.encode(), port.encode(), await _cluster_port(link))
        await links[0].request((b"CLUSTER", b"MEET", *place))
    try:
        async with asyncio.timeout(_MEETING_SECONDS):
            while not all([await _knows_all(link, len(links)) for link in links]):  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError as error:
        raise BenchmarkFailed(f"the cluster was not complete within {_MEETING_SECONDS:g} s") from error
    names = [await link.request((b"CLUSTER", b"MYID")) for link in links]
    return [name for name in names if isinstance(name, bytes)]


async def _cluster_port(link: RedisLink) -> bytes:
    reply = await link.request((b"CONFIG", b"GET", b"cluster-port"))
    port = reply.get(b"cluster-port") if isinstance(reply, dict) else None
    if not isinstance(port, bytes):
        raise ServerError("the server does not tell the port of its cluster")
    return port


async def _knows_all(link: RedisLink, count: int) -> bool:
    info = await link.request((b"CLUSTER", b"INFO"))
    slots = await link.request((b"CLUSTER", b"SHARDS"))
    if not isinstance(info, bytes) or not isinstance(slots, list):
        raise ServerError("the server does not tell of its cluster")
    owned = b"cluster_slots_ok:%d\r\n" % SLOTS
    return b"cluster_state:ok" in info and owned in info and len(slots) == count
