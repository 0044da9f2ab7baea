"""What a message costs a broker's processor, measured in the same run on this machine.

    take      a message of a publisher goes into the log, one message at a time          real sites
    deliver   a live subscriber gets a message over its WebSocket
    receive   a packet of another site goes into the log, and is matched
    send      another site wants it: matched with its predicate, put into a packet       the objects of a site, in
    forward   a packet goes on to one more neighbour                                     this process

The first three are processor seconds of real sites, two of them linked, divided by the messages, with whatever a site
does besides. Messages are published as fast as they are acknowledged, so that sites have full batches, as they
do when they have as much to do as they can. For `receive` a request has many messages, or the publisher's site would
be too slow for the other one. What `send` costs a real site is too little to see beside the rest.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from culver.bench import wire_client
from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.overlay.broker_topologies import Topology
from culver.bench.overlay.client_workload import SPREAD, WorkloadDraw, batch_of_payloads
from culver.bench.overlay.real_sites.real_brokers import RealBrokers, real_brokers
from culver.bench.overlay.routing_comparison.encoded_tables import encoded_filter
from culver.bench.site_process import deliveries
from culver.overlay import site_key
from culver.overlay.core.node_instructions import SendMessage
from culver.overlay.core.outgoing_streams import OutgoingStreams
from culver.overlay.core.overlay_messages import (
    LinkState,
    Packet,
    SiteNumbers,
    StreamPart,
    decode_message,
    encode_message,
)
from culver.overlay.core.overlay_node import NodeSettings, OverlayNode
from culver.overlay.links.frame_format import FrameKind, pack_frame

_SUBSCRIBERS = 50
_IN_FLIGHT = 256
# Messages in a request of a publisher: one, as in the paper, or so many that another site has all it can take.
_SINGLE, _MANY = 1, 50
_POLL_SECONDS = 0.05
_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class BrokerCosts:
    """Seconds of a processor."""

    take: float
    deliver: float
    send: float
    receive: float
    forward: float

    def at_origin(self, packets: int, clients: int) -> float:
        """What a message costs where it is published: so many packets leave, and so many clients get it there."""
        sent = self.send + (packets - 1) * self.forward if packets else 0.0
        return self.take + sent + clients * self.deliver

    def at_hop(self, packets: int, clients: int, *, is_wanted: bool, is_known: bool) -> float:
        """What a packet costs where it arrives. One that is only passed on, or is there already, costs no more than
        passing it on."""
        if is_known:
            return self.forward
        own = self.receive + clients * self.deliver if is_wanted else 0.0
        return own + packets * self.forward

    @property
    def note(self) -> str:
        parts = {
            name: 1e6 * getattr(self, name) for name in ("take", "deliver", "send", "receive", "forward")
        }
        return "µs: " + ", ".join(f"{name} {value:.0f}" for name, value in parts.items())


def measure_costs(directory: Path, events: int) -> BrokerCosts:
    """Run two linked sites. Raises BenchmarkFailed."""
    payloads = wire_client.encode(SPREAD.messages(events, 1))
    with real_brokers(Topology(2, ((0, 1),)), directory, None) as brokers:
        brokers.subscribe(1, "wanted_elsewhere = 1")
        brokers.wait_until_in_effect()
        _work(brokers, payloads[: max(1, events // 4)], _SINGLE)  # warms caches up
        take, _ = _work(brokers, payloads, _SINGLE)
        elsewhere = [_with(each, "wanted_elsewhere") for each in payloads]
        _, receive = _work(brokers, elsewhere, _MANY, crosses=True)
        few = [_with(each, "wanted_here") for each in payloads[: max(1, events // 4)]]
        with_delivery = asyncio.run(_delivered(brokers, few))
    # The processors' clock ticks every 10 ms: the few messages of a quick run may show no difference.
    deliver = max(0.0, with_delivery / len(few) - take / events) / _SUBSCRIBERS
    return BrokerCosts(
        take=take / events,
        deliver=deliver,
        send=_send_seconds(payloads),
        receive=receive / events,
        forward=_forward_seconds(events),
    )


def _work(
    brokers: RealBrokers, payloads: list[str], together: int, *, crosses: bool = False
) -> tuple[float, float]:
    """Processor seconds of both sites until all messages are delivered, at the second one too if they cross."""
    before = brokers.cpu_seconds()
    received = _received(brokers)
    end = asyncio.run(_publish(brokers.sites[0].websocket_url, payloads, together))
    with brokers.sites[0].client() as http:
        for _ in deliveries(http, end, _POLL_SECONDS, _LIMIT_SECONDS):
            pass
    deadline = time.perf_counter() + _LIMIT_SECONDS
    while crosses and _received(brokers) < received + len(payloads):
        if time.perf_counter() > deadline:
            raise BenchmarkFailed("a site did not get what it wants of another")
        time.sleep(_POLL_SECONDS)
    after = brokers.cpu_seconds()
    return after[0] - before[0], after[1] - before[1]


def _received(brokers: RealBrokers) -> int:
    return sum(int(site["events_received"]) for site in brokers.overlay(1)["sites"])


async def _publish(url: str, payloads: list[str], together: int) -> int:
    """Publish so many at a time, some under way; returns the position behind the last message."""
    end = 0
    requests = [
        wire_client.publish_message(first, payloads[first : first + together])
        for first in range(0, len(payloads), together)
    ]
    async with wire_client.open_connection(url) as publisher:
        for answered in range(-_IN_FLIGHT, len(requests)):
            if answered >= 0:
                while (message := await publisher.receive()).op != "published":
                    pass
                end = max(end, message.next_offset)
            if answered + _IN_FLIGHT < len(requests):
                await publisher.send(requests[answered + _IN_FLIGHT])
    return end


async def _delivered(brokers: RealBrokers, payloads: list[str]) -> float:
    """Processor seconds of the first site, with live subscribers that get every message."""
    url, missing = brokers.sites[0].websocket_url, _SUBSCRIBERS * len(payloads)

    def take(message: wire_client.SiteMessage) -> bool:
        nonlocal missing
        missing -= message.deliveries
        return False

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        listening = []
        for _ in range(_SUBSCRIBERS):
            connection = await stack.enter_async_context(wire_client.open_connection(url))
            await connection.send('{"op":"subscribe","ref":1,"filter":"wanted_here = 1"}')
            while (await connection.receive()).op != "subscribed":
                pass
            listening.append(tasks.create_task(connection.listen(take)))
        before = brokers.cpu_seconds()[0]
        await _publish(url, payloads, _SINGLE)
        deadline = time.perf_counter() + _LIMIT_SECONDS
        while missing > 0:
            if time.perf_counter() > deadline:
                raise BenchmarkFailed("a live subscriber did not get every message")
            await asyncio.sleep(_POLL_SECONDS)
        seconds = brokers.cpu_seconds()[0] - before
        for each in listening:
            each.cancel()
    return seconds


def _with(payload: str, attribute: str) -> str:
    return f'{{"{attribute}":1,{payload[1:]}'


def _send_seconds(payloads: list[str]) -> float:
    """Processor seconds in which a message is matched with a site's predicate and becomes a packet of that site's
    stream."""
    own, target = (site_key(f"broker-{number}", bytes([number] * 8)) for number in range(2))
    made = encoded_filter([WorkloadDraw(SPREAD, 1, 1).encoded(8)[0]])
    batch = batch_of_payloads([payload.encode() for payload in payloads])
    made.match(batch)
    streams, packets = OutgoingStreams(), 0
    streams.open(target, 0, 1)
    streams.reach(target, True)
    started = time.process_time()
    made.match(batch)
    for number, payload in enumerate(payloads):
        streams.offer(target, streams.generation(target), [(number, payload.encode())])
        for each in streams.flush(0.0)[0]:
            parts = tuple(each.streams.values())
            packet = Packet(own, each.window, 1, b"\x01", parts, each.offsets, each.payloads)
            pack_frame(FrameKind.DATA, encode_message(packet))
            packets += 1
        streams.acknowledge(target, number + 1, 0.0)
    seconds = time.process_time() - started
    if packets != len(payloads):
        raise BenchmarkFailed(f"{len(payloads)} messages became {packets} packets")
    return seconds / len(payloads)


def _forward_seconds(rounds: int) -> float:
    """Processor seconds in which a node reads a packet, finds its next hop and writes it again."""
    own, source, target = (site_key(f"broker-{number}", bytes([number] * 8)) for number in range(3))
    node = OverlayNode(own, 1, 0, {}, NodeSettings())
    for number, peer in enumerate((source, target), 1):
        node.link_opened(number, peer, 1, 0.0)
        node.received(number, LinkState(peer, 1, ((own, 1),), 0), 0.0)
    node.received(1, SiteNumbers(0, (target,)), 0.0)
    payload = wire_client.encode(SPREAD.messages(1, 1))[0].encode()
    packet = Packet(source, 1, 1, b"\x01", (StreamPart(0, 1, 1),), (0,), (payload,))
    body = encode_message(packet)
    packets = 0
    started = time.process_time()
    for _ in range(rounds):
        for each in node.received(1, decode_message(body), 0.0):
            if isinstance(each, SendMessage):
                pack_frame(FrameKind.DATA, encode_message(each.message))
                packets += isinstance(each.message, Packet)
    seconds = time.process_time() - started
    if packets != rounds:
        raise BenchmarkFailed(f"a node sent {packets} of {rounds} packets on")
    return seconds / rounds
