"""The publishing half of a client: sequences, repeated sending, heartbeats and tails.

A publication is finished when every server of its group has answered. Until then it is sent again on each new link,
with the same sequence, so that a broken connection costs a copy at most, which subscribers drop.

A channel's tails are two hashes at its home, so that tails of publishers that are gone vanish. All publishers write
to the current one, which lives for an hour after each write. Now and then a publisher turns it over: the server
renames it to the earlier one, but only if there is none, that is after the earlier one has expired. So a tail can
be read for an hour at least, and for little more than two. Nobody deletes a tail, so no write can be lost to a
deletion.

    write      HSET current publisher tail; EXPIRE current 3600
    turn over  RENAMENX current earlier             (keeps the time to live)
    read       HGETALL current; HGETALL earlier     (in this order: the hashes may be turned over in between)
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from culver.channels.core.channel_load import ChannelTraffic
from culver.channels.core.channel_plan import PlanEntry, Ring
from culver.channels.core.dispatcher_notes import encode_tail
from culver.channels.core.envelope import pack_chained, pack_heartbeat, pack_message, unpack_entry
from culver.channels.core.instructions import Instruction, PublicationDone, Reply, Send, ServerLink, Warn
from culver.channels.core.local_plan import LocalPlan
from culver.channels.core.reserved_names import PLAN_KEY, PLAN_MARK, earlier_tail_key, tail_key
from culver.channels.core.server_links import ServerLinks

#: A heartbeat follows the last message of a channel after each of these times.
_HEARTBEAT_SECONDS = (0.5, 2.0)
_TAIL_SECONDS = 1.0

#: How long a tail can be read after it was written. Well above the time for which a publisher remembers its sequence:
#: whoever publishes again without a tail begins a new epoch.
TAIL_LIFE_SECONDS = 3_600
_TURN_OVER_SECONDS = 600.0

#: How long a publisher remembers its sequence on a channel that it does not use; after that it begins a new epoch.
_COUNTER_IDLE_SECONDS = 600.0

#: Stands for the channel's home among the servers that a publication waits for, until the home has told the entry.
_HOME_ANSWER = -1

#: How long nothing is published to a server after a lost link is back. Subscribers come back in that time: without
#: it, three kills of a server cost 254 of 20,000 messages.
_REST_SECONDS = 0.75

#: How often a publisher that nobody hears asks the channel's home whether it publishes in the right place.
_ASK_AGAIN_SECONDS = 5.0

Adopt = Callable[[bytes, PlanEntry, float], list[Instruction]]


@dataclass(slots=True)
class _Publication:
    token: int
    channel: bytes
    publisher: int
    epoch: int
    previous: int | None
    sequence: int
    payload: bytes
    deadline: float
    version: int = 0
    waiting: set[int] = field(default_factory=set)
    receivers: int = 0

    def pack(self) -> bytes:
        if self.previous is None:
            return pack_message(self.publisher, self.epoch, self.version, self.sequence, self.payload)
        return pack_chained(
            self.publisher, self.epoch, self.version, self.previous, self.sequence, self.payload
        )


@dataclass(slots=True, eq=False)
class _Counter:
    """How far one publisher has come on one channel. Most clients publish under their own number only."""

    channel: bytes
    publisher: int
    epoch: int
    sequence: int = 0
    sent_at: float = 0.0
    beats: int = 0
    #: Whether somebody got the last message, and when the home was asked because nobody did.
    heard: bool = False
    asked_at: float = -_ASK_AGAIN_SECONDS
    #: When this publisher turns over the channel's tails next: with the first of its own, and now and then later.
    turn_over_at: float = 0.0


class PublisherCore:
    """Publishes in the order of the calls, channel by channel. See ``ClientCore`` for who calls what."""

    def __init__(
        self,
        client: int,
        plan: LocalPlan,
        links: ServerLinks,
        adopt: Adopt,
        timeout_seconds: float,
    ) -> None:
        self._client = client
        self._plan = plan
        self._links = links
        self._adopt = adopt
        self._timeout_seconds = timeout_seconds
        self._tokens = 0
        self._epochs = 0
        self._counters: dict[bytes, dict[int, _Counter]] = {}
        # All counters, the one that was used last at the end.
        self._recent: OrderedDict[_Counter, None] = OrderedDict()
        self._beating: dict[_Counter, None] = {}
        self._stale_tails: dict[_Counter, None] = {}
        self._tails_at = 0.0
        self._pending: OrderedDict[int, _Publication] = OrderedDict()
        self._unanswered: dict[int, OrderedDict[int, _Publication]] = {}
        # Publications on channels whose home has not told the entry yet.
        self._unconfirmed: dict[bytes, list[_Publication]] = {}
        # Channels whose home was started just now, and is to be asked again.
        self._to_ask: set[bytes] = set()
        self._linked: set[int] = set()
        self._resting: dict[int, float] = {}
        self._traffic: dict[int, dict[bytes, ChannelTraffic]] = {}
        #: Messages that servers have taken and sent for this client since the last ``take_traffic``.
        self.unreported = 0
        self._heartbeats: Counter[int] = Counter()

    @property
    def pending(self) -> int:
        """Publications that are not finished."""
        return len(self._pending)

    def publish(self, channel: bytes, payload: bytes, now: float) -> tuple[int, list[Instruction]]:
        """Returns the publication's token, which ``PublicationDone`` will carry."""
        counters = self._counters.get(channel)
        counter = None if counters is None else counters.get(self._client)
        if counter is None:
            self._epochs += 1
            counter = self._new_counter(channel, self._client, self._epochs)
        counter.sequence += 1
        self._count(counter, now)
        return self._begin(channel, self._client, counter.epoch, None, counter.sequence, payload, now)

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
        """Publishes under an id that the caller gives; ``previous`` is the id that it gave before, or 0."""
        return self._begin(channel, publisher, epoch, previous, sequence, payload, now)

    def _count_chained(self, done: _Publication, now: float) -> None:
        """Heartbeats tell of a chained message only once servers have it: until then its caller may send it again,
        and subscribers must not give it up."""
        counters = self._counters.get(done.channel, {})
        counter = counters.get(done.publisher) or self._new_counter(done.channel, done.publisher, done.epoch)
        if (done.epoch, done.sequence) > (counter.epoch, counter.sequence):
            counter.epoch, counter.sequence = done.epoch, done.sequence
        self._count(counter, now)

    def _new_counter(self, channel: bytes, publisher: int, epoch: int) -> _Counter:
        counter = self._counters.setdefault(channel, {})[publisher] = _Counter(channel, publisher, epoch)
        self._recent[counter] = None
        return counter

    def _count(self, counter: _Counter, now: float) -> None:
        counter.sent_at = now
        counter.beats = 0
        self._recent.move_to_end(counter)
        self._beating[counter] = None
        self._stale_tails[counter] = None

    def _begin(
        self,
        channel: bytes,
        publisher: int,
        epoch: int,
        previous: int | None,
        sequence: int,
        payload: bytes,
        now: float,
    ) -> tuple[int, list[Instruction]]:
        self._tokens += 1
        deadline = now + self._timeout_seconds
        publication = _Publication(
            self._tokens, channel, publisher, epoch, previous, sequence, payload, deadline
        )
        self._pending[publication.token] = publication
        return publication.token, self._send(publication, now)

    def link_up(self, server: int, now: float) -> list[Instruction]:
        """Sends again what this server has not answered, and soon tells it the tails that it may have lost.

        A link that had been lost may lead to a server that was started again: subscribers get a moment to come back.
        """
        out: list[Instruction] = []
        if server in self._linked:
            self._resting[server] = now + _REST_SECONDS
        else:
            self._linked.add(server)
            out += self._send_unanswered(server)
        for channel in self._unconfirmed:
            if self._plan.ring.home(channel) == server:
                out += self._ask_home(channel, now)
        self._stale_tails.update(
            (counter, None) for counter in self._recent if self._plan.ring.home(counter.channel) == server
        )
        self._tails_at = now - _TAIL_SECONDS
        # A home that comes back empty has lost its tails, and a subscriber may read them before they are there again.
        touched = [
            channel
            for channel in self._counters
            if server in self._plan.peek(channel).servers or self._plan.ring.home(channel) == server
        ]
        self.remind(touched, now)
        return out

    def remind(self, channels: Iterable[bytes], now: float) -> None:
        """Sends heartbeats soon: subscribers of these channels may have missed messages."""
        for channel in channels:
            for counter in self._counters.get(channel, {}).values():
                counter.beats = 0
                counter.sent_at = now - _HEARTBEAT_SECONDS[0]
                self._beating[counter] = None

    def refused(self, server: int, error: Exception, now: float) -> list[Instruction]:
        """Ends what waits for a server that will not have this client: another attempt cannot help."""
        out: list[Instruction] = []
        for publication in list(self._unanswered.get(server, {}).values()):
            out += self._finish(publication, error, now)
        return out

    def ring_changed(self, before: Ring) -> None:
        """Stores tails at the new homes: subscribers look for them there from now on."""
        after = self._plan.ring
        if before.homes != after.homes:
            self._stale_tails.update(
                (counter, None)
                for counter in self._recent
                if before.home(counter.channel) != after.home(counter.channel)
            )

    def servers_gone(self, servers: Iterable[int], now: float) -> list[Instruction]:
        """Sends what these servers have not answered to the servers of the newest entry instead."""
        out: list[Instruction] = []
        for server in servers:
            for publication in list(self._unanswered.pop(server, {}).values()):
                self._withdraw(publication)
                out += self._send(publication, now)
        return out

    def begin_anew(self, now: float) -> list[Instruction]:
        """Sends everything unfinished to the servers of another service, and tells them all numbers. Sequences go on,
        so subscribers notice what they have missed meanwhile."""
        out: list[Instruction] = []
        self._unanswered.clear()
        self._unconfirmed.clear()
        self._to_ask.clear()
        self._traffic.clear()
        self._heartbeats.clear()
        self._resting.clear()
        # Each server gets a rest at first: subscribers are on their way to it, too.
        self._linked = set(self._plan.ring.numbers)
        for publication in self._pending.values():
            self._withdraw(publication)
            out += self._send(publication, now)
        self._stale_tails.update(dict.fromkeys(self._recent))
        self.remind(self._counters, now)
        return out

    def tick(self, now: float) -> list[Instruction]:
        out = self._time_out(now)
        asked, self._to_ask = self._to_ask, set()
        for channel in sorted(asked):
            out += self._ask_home(channel, now)
        for server in [server for server, rested_at in self._resting.items() if now >= rested_at]:
            del self._resting[server]
            if self._links.is_up(server, ServerLink.PUBLISH):
                out += self._send_unanswered(server)
        out += self._send_heartbeats(now)
        if now >= self._tails_at + _TAIL_SECONDS:
            self._tails_at = now
            out += self._store_tails(now)
            self._forget_idle_counters(now)
        return out

    def farewell(self, now: float) -> list[Instruction]:
        """Sends what is due later: the client closes, and nobody else knows the numbers of its last messages."""
        for counter in self._beating:
            counter.beats, counter.sent_at = 0, now - _HEARTBEAT_SECONDS[0]
        return self._send_heartbeats(now) + self._store_tails(now)

    def take_traffic(self) -> dict[int, dict[bytes, ChannelTraffic]]:
        """What was published since the last call: server -> channel -> figures."""
        traffic, self._traffic = self._traffic, {}
        self.unreported = 0
        return traffic

    def take_heartbeats(self) -> Counter[int]:
        """How many heartbeats each server has got since the last call."""
        heartbeats, self._heartbeats = self._heartbeats, Counter()
        return heartbeats

    def _send(self, publication: _Publication, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        channel = publication.channel
        entry = self._plan.entry(channel, now)
        if entry is None:
            entry = self._plan.ring.home_entry(channel)
            publication.waiting.add(_HOME_ANSWER)
            first = channel not in self._unconfirmed
            self._unconfirmed.setdefault(channel, []).append(publication)
            if first:
                out += self._ask_home(channel, now)
        publication.version = entry.version
        for server in entry.publish_group(publication.publisher, publication.sequence):
            publication.waiting.add(server)
            self._unanswered.setdefault(server, OrderedDict())[publication.token] = publication
            if not self._links.is_up(server, ServerLink.PUBLISH):
                out += self._links.want(server, ServerLink.PUBLISH, now)
            elif server not in self._resting:
                out += self._send_to(publication, server)
        return out

    def _send_unanswered(self, server: int) -> list[Instruction]:
        out: list[Instruction] = []
        for publication in self._unanswered.get(server, {}).values():
            out += self._send_to(publication, server)
        return out

    def _send_to(self, publication: _Publication, server: int) -> list[Instruction]:
        command = (b"PUBLISH", publication.channel, publication.pack())
        then = partial(self._answered, publication, publication.version, server)
        return [Send(server, ServerLink.PUBLISH, command, then)]

    def _answered(
        self, publication: _Publication, version: int, server: int, reply: Reply, now: float
    ) -> list[Instruction]:
        if version != publication.version or server not in publication.waiting:
            return []
        if isinstance(reply, Exception):
            return self._finish(publication, reply, now)
        receivers = reply if isinstance(reply, int) else 0
        traffic = self._traffic.setdefault(server, {}).setdefault(publication.channel, ChannelTraffic())
        traffic.add(1, len(publication.payload), receivers)
        self.unreported += 1 + receivers
        publication.receivers += receivers
        publication.waiting.discard(server)
        self._unanswered[server].pop(publication.token, None)
        if publication.waiting:
            return []
        return self._notice_silence(publication, now) + self._finish(publication, None, now)

    def _notice_silence(self, publication: _Publication, now: float) -> list[Instruction]:
        """Asks the home of a channel that nobody hears, at once and now and then. The channel may have moved while
        the dispatcher of its old server, which would have told, was down."""
        counter = self._counters.get(publication.channel, {}).get(publication.publisher)
        if counter is None:
            return []
        was_heard, counter.heard = counter.heard, publication.receivers > 0
        if counter.heard or (not was_heard and now < counter.asked_at + _ASK_AGAIN_SECONDS):
            return []
        counter.asked_at = now
        return self._ask_home(publication.channel, now)

    def _ask_home(self, channel: bytes, now: float) -> list[Instruction]:
        home = self._plan.ring.home(channel)
        if not self._links.is_up(home, ServerLink.PUBLISH):
            return self._links.want(home, ServerLink.PUBLISH, now)
        then = partial(self._home_answered, channel)
        return [Send(home, ServerLink.PUBLISH, (b"HMGET", PLAN_KEY, PLAN_MARK, channel), then)]

    def _home_answered(self, channel: bytes, reply: Reply, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        mark, signed = reply if isinstance(reply, list) else (b"", None)
        if mark is None:
            self._to_ask.add(channel)
            return []
        publications = self._unconfirmed.pop(channel, [])
        if signed is not None:
            try:
                out += self._adopt(channel, unpack_entry(channel, signed, self._plan.secret), now)
            except ValueError as error:
                out.append(Warn(str(error)))
        self._plan.learn(channel, self._plan.ring.home_entry(channel), now)
        version = self._plan.version(channel)
        for publication in publications:
            if publication.token not in self._pending:
                continue
            if publication.version != version:
                self._withdraw(publication)
                out += self._send(publication, now)
            else:
                publication.waiting.discard(_HOME_ANSWER)
                if not publication.waiting:
                    out += self._finish(publication, None, now)
        return out

    def _withdraw(self, publication: _Publication) -> None:
        for server in publication.waiting:
            self._unanswered.get(server, OrderedDict()).pop(publication.token, None)
        publication.waiting.clear()
        publication.receivers = 0

    def _finish(self, publication: _Publication, error: Exception | None, now: float) -> list[Instruction]:
        if self._pending.pop(publication.token, None) is None:
            return []
        if error is None and publication.previous is not None:
            self._count_chained(publication, now)
        receivers = publication.receivers
        self._withdraw(publication)
        return [PublicationDone(publication.token, receivers, error)]

    def _time_out(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        while self._pending:
            publication = next(iter(self._pending.values()))
            if now < publication.deadline:
                break
            servers = sorted(publication.waiting - {_HOME_ANSWER})
            text = f"no answer from server {servers} within {self._timeout_seconds:g} s"
            out += self._finish(publication, TimeoutError(text), now)
        return out

    def _send_heartbeats(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for counter in list(self._beating):
            if now < counter.sent_at + _HEARTBEAT_SECONDS[counter.beats]:
                continue
            channel, publisher = counter.channel, counter.publisher
            entry = self._plan.peek(channel)
            servers = self._heartbeat_group(entry, counter)
            if servers is None:
                # The channel may have moved since the last message, and no other one may ever open these links.
                for server in entry.publish_group(publisher, counter.sequence):
                    out += self._links.want(server, ServerLink.PUBLISH, now)
                continue
            data = pack_heartbeat(publisher, counter.epoch, entry.version, counter.sequence)
            out += [Send(server, ServerLink.PUBLISH, (b"PUBLISH", channel, data)) for server in servers]
            self._heartbeats.update(servers)
            counter.beats += 1
            if counter.beats == len(_HEARTBEAT_SECONDS):
                del self._beating[counter]
        return out

    def _heartbeat_group(self, entry: PlanEntry, counter: _Counter) -> tuple[int, ...] | None:
        """The group of the last message if it is up, else another: the down one may have lost that message."""
        for group in (entry.publish_group(counter.publisher, counter.sequence), *entry.groups):
            if all(
                self._links.is_up(server, ServerLink.PUBLISH) and server not in self._resting
                for server in group
            ):
                return group
        return None

    def _store_tails(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for counter in list(self._stale_tails):
            home = self._plan.ring.home(counter.channel)
            if not self._links.is_up(home, ServerLink.PUBLISH):
                out += self._links.want(home, ServerLink.PUBLISH, now)
                continue
            del self._stale_tails[counter]
            key = tail_key(counter.channel)
            tail = encode_tail(counter.epoch, counter.sequence)
            out.append(Send(home, ServerLink.PUBLISH, (b"HSET", key, b"%x" % counter.publisher, tail)))
            out.append(Send(home, ServerLink.PUBLISH, (b"EXPIRE", key, b"%d" % TAIL_LIFE_SECONDS)))
            if now >= counter.turn_over_at:
                counter.turn_over_at = now + _TURN_OVER_SECONDS
                command = (b"RENAMENX", key, earlier_tail_key(counter.channel))
                # The key may be gone again: another publisher has just turned it over.
                out.append(Send(home, ServerLink.PUBLISH, command, lambda reply, now: []))
        return out

    def _forget_idle_counters(self, now: float) -> None:
        while self._recent:
            counter = next(iter(self._recent))
            if now < counter.sent_at + _COUNTER_IDLE_SECONDS:
                return
            del self._recent[counter]
            counters = self._counters[counter.channel]
            del counters[counter.publisher]
            if not counters:
                del self._counters[counter.channel]
            self._beating.pop(counter, None)
            self._stale_tails.pop(counter, None)
