"""A client of the channels without its sockets: what to send where, and what to deliver (Dynamoth, sections II, IV).

A channel's home tells where the channel is served; the client asks with the first use, at no extra round trip. From
then on dispatchers tell every change: a switch message to subscribers, a notice to publishers. A subscriber joins
its new servers before it leaves the old ones, and leaves an old one only after a **barrier** has travelled from the
new servers' dispatchers through the old server: everything that these forwarded before has then arrived.

The shell calls a method for whatever happens, with the time, and carries out the instructions in their order.
"""

from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from culver.channels.core import reserved_names as names
from culver.channels.core.channel_load import report_of
from culver.channels.core.channel_plan import PlanEntry, Ring
from culver.channels.core.dispatcher_notes import BarrierEcho, decode_answer
from culver.channels.core.envelope import (
    EnvelopeKind,
    is_ours,
    kind_of,
    unpack_entry,
    unpack_ring,
    unpack_switch,
)
from culver.channels.core.instructions import (
    Disconnect,
    FetchRing,
    Instruction,
    Reply,
    Send,
    ServerLink,
    Warn,
)
from culver.channels.core.local_plan import LocalPlan
from culver.channels.core.publisher_core import PublisherCore
from culver.channels.core.server_links import ServerLinks
from culver.channels.core.subscriber_core import SubscriberCore

_FETCH_RING_SECONDS = 1.0

#: A client reports what it published once a second. If that was little work for the servers, it waits a while longer:
#: the report itself is a message.
_LOAD_SECONDS = 1.0
_LONGEST_LOAD_SECONDS = 3.0
_LITTLE_WORK = 100


class ClientCore:
    """One client: at most one publish link and one subscribe link to each server.

    ``client`` is a random 64-bit number, and names this client as a publisher too. ``secret`` comes with the ring
    from the service: whatever is not signed with it changes nothing.
    """

    def __init__(
        self, client: int, ring: Ring, secret: bytes, random: Random, publish_timeout_seconds: float = 5.0
    ) -> None:
        self.client = client
        self._plan = LocalPlan(ring, secret)
        self._links = ServerLinks(random)
        self._publisher = PublisherCore(client, self._plan, self._links, self._adopt, publish_timeout_seconds)
        self._subscriber = SubscriberCore(client, self._plan, self._links, self._adopt)
        self._ring_asked_at = 0.0
        # A server has a ring that another service may have signed: only the service can tell.
        self._ring_in_doubt = False
        self._load_told_at = 0.0

    @property
    def ring(self) -> Ring:
        return self._plan.ring

    @property
    def secret(self) -> bytes:
        return self._plan.secret

    @property
    def pending(self) -> int:
        """Publications that no server has answered yet."""
        return self._publisher.pending

    @property
    def settled(self) -> bool:
        """Whether every subscription is where the plan wants it, and nowhere else."""
        return self._subscriber.settled

    @property
    def duplicates(self) -> int:
        """Copies that were dropped."""
        return self._subscriber.duplicates

    def publish(self, channel: bytes, payload: bytes, now: float) -> tuple[int, list[Instruction]]:
        """Begins a publication; ``PublicationDone`` with the returned token ends it."""
        return self._publisher.publish(channel, payload, now)

    def publish_chained(
        self,
        channel: bytes,
        publisher: int,
        epoch: int,
        previous: int,
        sequence: int,
        payload: bytes,
        now: float,
    ) -> tuple[int, list[Instruction]]:
        """The same under an id of the caller's: ids of a publisher rise, and each names the one before."""
        return self._publisher.publish_chained(channel, publisher, epoch, previous, sequence, payload, now)

    def farewell(self, now: float) -> list[Instruction]:
        """What to send before the client closes: the last numbers of its messages, and its last report."""
        return self._publisher.farewell(now) + self._tell_load()

    def subscribe(self, channels: Iterable[bytes], now: float) -> list[Instruction]:
        return self._subscriber.subscribe(channels, now)

    def unsubscribe(self, channels: Iterable[bytes]) -> list[Instruction]:
        return self._subscriber.unsubscribe(channels)

    def servers_of(self, channels: Iterable[bytes]) -> frozenset[int]:
        """The servers on which these channels are, or are going to be, subscribed."""
        return self._subscriber.servers_of(channels)

    def want(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        """Makes sure that a link is up, or is going to be."""
        return self._links.want(server, link, now)

    def psubscribe(self, patterns: Iterable[bytes], now: float) -> list[Instruction]:
        return self._subscriber.patterns.psubscribe(patterns, now)

    def punsubscribe(self, patterns: Iterable[bytes]) -> list[Instruction]:
        return self._subscriber.patterns.punsubscribe(patterns)

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        if server not in self.ring.numbers:
            self._links.drop(server, link)
            return [Disconnect(server, link)]
        self._links.connected(server, link)
        out: list[Instruction] = [
            Send(server, link, (b"SUBSCRIBE", names.inbox(self.client), names.RING_CHANNEL)),
            Send(server, link, (b"GET", names.RING_KEY), self._ring_answered),
        ]
        half = self._publisher if link is ServerLink.PUBLISH else self._subscriber
        return out + half.link_up(server, now)

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        """A link broke, or could not be opened."""
        self._links.disconnected(server, link, now)
        return self._subscriber.link_down(server, now) if link is ServerLink.SUBSCRIBE else []

    def refused(self, server: int, link: ServerLink, error: Exception, now: float) -> list[Instruction]:
        """A server will not have this client: it wants another password, or is not a Redis server."""
        return self._publisher.refused(server, error, now) if link is ServerLink.PUBLISH else []

    def pushed(self, server: int, link: ServerLink, push: Sequence[bytes], now: float) -> list[Instruction]:
        """Takes what a server sends of its own accord: messages, and confirmations of subscriptions."""
        kind = push[0]
        if kind == b"message":
            channel, data = push[1], push[2]
            if channel.startswith(names.RESERVED_PREFIX):
                return self._reserved(server, link, channel, data, now)
            if is_ours(data):
                envelope_kind = kind_of(data)
                if envelope_kind == EnvelopeKind.SWITCH:
                    return self._switch(channel, data, now)
                if envelope_kind == EnvelopeKind.CHECK:
                    return self._subscriber.check(channel, now)
            return self._subscriber.message(channel, data, now)
        if kind == b"pmessage":
            if is_ours(push[3]) and kind_of(push[3]) == EnvelopeKind.SWITCH:
                return []
            if push[2].startswith(names.RESERVED_PREFIX):
                return []
            return self._subscriber.patterns.message(push[1], push[2], push[3], now)
        if kind == b"subscribe":
            return self._subscriber.subscribed(server, push[1], now)
        if kind == b"psubscribe":
            return self._subscriber.patterns.subscribed(server, push[1])
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Call it every 50 to 100 ms."""
        out = self._links.tick(now)
        out += self._publisher.tick(now)
        out += self._subscriber.tick(now)
        patience = _LONGEST_LOAD_SECONDS if self._publisher.unreported < _LITTLE_WORK else _LOAD_SECONDS
        if now >= self._load_told_at + patience:
            self._load_told_at = now
            out += self._tell_load()
        self._plan.forget_idle(now, self._subscriber.channels)
        in_trouble = self._ring_in_doubt or self._links.failing_for_long()
        if in_trouble and now >= self._ring_asked_at + _FETCH_RING_SECONDS:
            self._ring_asked_at = now
            out.append(FetchRing())
        return out

    def directory_fetched(self, ring: Ring, secret: bytes, now: float) -> list[Instruction]:
        """Takes what the service answers to ``FetchRing``. A service that has lost its data directory has another
        secret: the client forgets its plan and its links then, and keeps its subscriptions and sequences."""
        self._ring_in_doubt = False
        if secret == self.secret:
            return self.ring_changed(ring, now)
        out: list[Instruction] = []
        for server, link in self._links.all():
            out += self.disconnected(server, link, now)
        for server, link in self._links.all():
            self._links.drop(server, link)
            out.append(Disconnect(server, link))
        self._plan.begin_anew(ring, secret)
        return out + self._subscriber.begin_anew(now) + self._publisher.begin_anew(now)

    def ring_changed(self, ring: Ring, now: float) -> list[Instruction]:
        """Takes a ring from the service or from a server, unless it is as old as the known one or older."""
        if ring.version <= self.ring.version:
            return []
        before, gone = self.ring, self.ring.numbers - ring.numbers
        homes = {channel: self.ring.home(channel) for channel in self._plan.channels_at_home()}
        self._plan.ring = ring
        for channel in self._plan.channels_outside(ring.numbers):
            self._plan.forget(channel)
        for channel, home in homes.items():
            if ring.home(channel) != home:
                self._plan.forget(channel)
        out: list[Instruction] = []
        for server, link in self._links.all():
            if server in gone:
                self._links.drop(server, link)
                out.append(Disconnect(server, link))
        self._publisher.ring_changed(before)
        out += self._subscriber.ring_changed(gone, now)
        return out + self._publisher.servers_gone(gone, now)

    def _tell_load(self) -> list[Instruction]:
        out: list[Instruction] = []
        traffic, heartbeats = self._publisher.take_traffic(), self._publisher.take_heartbeats()
        for server in sorted(traffic.keys() | heartbeats.keys()):
            report = msgspec.msgpack.encode(
                report_of(self.client, traffic.get(server, {}), heartbeats[server])
            )
            if self._links.is_up(server, ServerLink.PUBLISH):
                out.append(Send(server, ServerLink.PUBLISH, (b"PUBLISH", names.LOAD_CHANNEL, report)))
        return out

    def _reserved(
        self, server: int, link: ServerLink, channel: bytes, data: bytes, now: float
    ) -> list[Instruction]:
        try:
            if channel == names.RING_CHANNEL:
                return self._ring_told(data, now)
            answer = decode_answer(data)
            if not isinstance(answer, BarrierEcho):
                return self._adopt(
                    answer.channel, unpack_entry(answer.channel, answer.entry, self.secret), now
                )
        except (ValueError, msgspec.DecodeError) as error:
            return [Warn(f"ignored what server {server} says on {channel.decode(errors='replace')}: {error}")]
        # Only the echo on the subscribe link comes behind the messages that it is to be behind.
        return self._subscriber.barrier_passed(server, answer.token) if link is ServerLink.SUBSCRIBE else []

    def _ring_answered(self, reply: Reply, now: float) -> list[Instruction]:
        return self._ring_told(reply, now) if isinstance(reply, bytes) else []

    def _ring_told(self, signed: bytes, now: float) -> list[Instruction]:
        try:
            return self.ring_changed(unpack_ring(signed, self.secret), now)
        except ValueError as error:
            if self._ring_in_doubt:
                return []
            self._ring_in_doubt = True
            return [Warn(f"{error}; the service is asked for its ring")]

    def _switch(self, channel: bytes, data: bytes, now: float) -> list[Instruction]:
        try:
            return self._adopt(channel, unpack_switch(channel, data, self.secret), now)
        except ValueError as error:
            return [Warn(str(error))]

    def _adopt(self, channel: bytes, entry: PlanEntry, now: float) -> list[Instruction]:
        if not entry.servers <= self.ring.numbers:
            return [Warn(f"the entry of {channel!r} names servers that the ring does not have"), FetchRing()]
        if not self._plan.learn(channel, entry, now):
            return []
        self._publisher.remind([channel], now)
        return self._subscriber.entry_changed(channel, entry, now)
