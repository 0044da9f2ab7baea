"""The subscribing half of a client: which server to be subscribed on, moves without loss, order and gaps."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from culver.channels.core.channel_plan import PlanEntry
from culver.channels.core.dispatcher_notes import Barrier, Moved, encode_note
from culver.channels.core.envelope import EnvelopeKind, is_ours, unpack, unpack_entry
from culver.channels.core.instructions import (
    Confirm,
    Deliver,
    Instruction,
    Interrupt,
    RefuseSubscription,
    Reply,
    Send,
    ServerLink,
    Warn,
)
from culver.channels.core.local_plan import LocalPlan
from culver.channels.core.message_order import TAIL_AGE_SECONDS, MessageOrder
from culver.channels.core.pattern_subscriptions import (
    PatternSubscriptions,
    delivery,
    parts_of,
    subscription_commands,
)
from culver.channels.core.reserved_names import DISPATCHER_CHANNEL, PLAN_KEY, PLAN_MARK
from culver.channels.core.server_links import ServerLinks
from culver.channels.core.tail_reader import TailReader, Tails, read_tails

#: How long a subscriber waits for the echoes of its barriers before it leaves an old server all the same.
_BARRIER_SECONDS = 3.0

#: How long a subscriber waits before it asks a channel's home again about an entry that a message hinted at.
_ASK_AGAIN_SECONDS = 0.5

#: How often a subscriber asks the homes for its entries. Switches tell of every move; this finds a subscription that
#: is at the wrong servers all the same, and would hear nothing for ever.
_AUDIT_SECONDS = 30.0

#: What a tail counts has arrived after this time, or is lost.
_ON_ITS_WAY_SECONDS = 1.0

Adopt = Callable[[bytes, PlanEntry, float], list[Instruction]]


@dataclass(slots=True)
class _Departure:
    """An old server on the way to being left: the barriers whose echoes are still to come through it."""

    tokens: set[int] | None = None
    deadline: float = 0.0


@dataclass(slots=True)
class _Baseline:
    """What publishers had published before a subscription began: the tails, read some time after the beginning and
    applied some time after that, when nothing that they count is still on its way. If the link breaks before, those
    that were read at once count: they may be a second too old, and a gap then names messages from before."""

    due_at: float
    asked: bool = False
    early: Tails | None = None
    tails: Tails | None = None


@dataclass(slots=True)
class _Subscription:
    channel: bytes
    targets: frozenset[int]
    confirmed: set[int] = field(default_factory=set)
    departures: dict[int, _Departure] = field(default_factory=dict)
    #: Servers of older entries, whose dispatchers are told when the move is over.
    former: set[int] = field(default_factory=set)
    home_answered: bool = False
    announced: bool = False
    asked_at: float = 0.0
    baseline: "_Baseline | None" = None
    #: Whether the baseline is known: from then on no loss goes unnoticed.
    steady: bool = False

    @property
    def moves(self) -> bool:
        return bool(self.departures) or not self.confirmed.issuperset(self.targets)


class SubscriberCore:
    """Keeps subscriptions on the servers that the plan names. See ``ClientCore`` for who calls what."""

    def __init__(self, client: int, plan: LocalPlan, links: ServerLinks, adopt: Adopt) -> None:
        self._client = client
        self._plan = plan
        self._links = links
        self._adopt = adopt
        self._order = MessageOrder()
        self._tails = TailReader(plan, links, self._order)
        self._subscriptions: dict[bytes, _Subscription] = {}
        self.patterns = PatternSubscriptions(plan, links)
        self._barriers: dict[int, tuple[bytes, int]] = {}
        self._tokens = 0
        # Channels whose home is to be asked for the entry once it is up.
        self._to_ask: set[bytes] = set()
        # Those that were asked for and not answered yet, by home: a broken link leaves them to be asked for again.
        self._asked: dict[int, set[bytes]] = defaultdict(set)
        self._audited_at = 0.0

    @property
    def channels(self) -> dict[bytes, _Subscription]:
        return self._subscriptions

    @property
    def duplicates(self) -> int:
        """Copies that were dropped."""
        return self._order.duplicates + self.patterns.duplicates

    @property
    def settled(self) -> bool:
        """Whether every subscription is where the plan wants it, and nowhere else."""
        return self.patterns.settled and not any(
            subscription.moves for subscription in self._subscriptions.values()
        )

    def subscribe(self, channels: Iterable[bytes], now: float) -> list[Instruction]:
        out: list[Instruction] = []
        joined: dict[int, list[bytes]] = defaultdict(list)
        for channel in channels:
            known = self._subscriptions.get(channel)
            if known is not None:
                out += [Confirm("subscribe", channel)] if known.announced else []
                continue
            targets = self._plan.peek(channel).subscribe_servers(self._client)
            self._subscriptions[channel] = _Subscription(channel, targets)
            # Also where an entry is known: it may be old, and its dispatchers may have stopped forwarding.
            self._to_ask.add(channel)
            for server in targets:
                joined[server].append(channel)
        for server, names in joined.items():
            out += self._join(server, names, now)
        return out + self._ask_homes(now)

    def unsubscribe(self, channels: Iterable[bytes]) -> list[Instruction]:
        out: list[Instruction] = []
        left: dict[int, list[bytes]] = defaultdict(list)
        for channel in channels:
            subscription = self._subscriptions.pop(channel, None)
            if subscription is not None:
                for server in subscription.targets.union(subscription.departures):
                    left[server].append(channel)
                self._order.end(channel)
                self._to_ask.discard(channel)
                self._tails.forget(channel)
            out.append(Confirm("unsubscribe", channel))
        for server, names in left.items():
            out += self._command(server, b"UNSUBSCRIBE", names)
        return out

    def link_up(self, server: int, now: float) -> list[Instruction]:
        """Subscribes in bulk to everything that belongs on this server, and asks what has happened meanwhile."""
        names = [
            channel for channel, subscription in self._subscriptions.items() if server in subscription.targets
        ]
        self._to_ask.update(names)
        out = self._command(server, b"SUBSCRIBE", names)
        out += self.patterns.link_up(server)
        return out + self._ask_homes(now)

    def link_down(self, server: int, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        interrupted = Interrupt([], [])
        self._to_ask |= self._asked.pop(server, set())
        self._tails.link_down(server)
        for channel, subscription in self._subscriptions.items():
            if server in subscription.confirmed or server in subscription.departures:
                self._tails.want(channel)
            subscription.confirmed.discard(server)
            subscription.departures.pop(server, None)
            if subscription.baseline is not None and self._plan.ring.home(channel) == server:
                subscription.baseline.asked = False
            if server in subscription.targets:
                early = None if subscription.baseline is None else subscription.baseline.early
                subscription.baseline = None
                if early is not None:
                    self._make_steady(subscription, early)
                out += self._links.want(server, ServerLink.SUBSCRIBE, now)
                if subscription.announced:
                    subscription.announced = False
                    interrupted.channels.append(channel)
        interrupted.patterns.extend(self.patterns.link_down(server))
        return [*out, interrupted] if interrupted.channels or interrupted.patterns else out

    def servers_of(self, channels: Iterable[bytes]) -> frozenset[int]:
        """The servers on which these channels are, or are going to be, subscribed."""
        known = self._subscriptions
        return frozenset(
            server for channel in channels if channel in known for server in known[channel].targets
        )

    def subscribed(self, server: int, channel: bytes, now: float) -> list[Instruction]:
        """A server has confirmed a subscription."""
        subscription = self._subscriptions.get(channel)
        if subscription is None:
            return []
        if server not in subscription.targets and server not in subscription.departures:
            return self._command(server, b"UNSUBSCRIBE", [channel])
        subscription.confirmed.add(server)
        return self._progress(subscription, now)

    def message(self, channel: bytes, data: bytes, now: float) -> list[Instruction]:
        """A message of the channel from any server. Switch and check messages do not come here."""
        subscription = self._subscriptions.get(channel)
        if subscription is None:
            return []
        if not is_ours(data):
            return [Deliver(channel, data)]
        try:
            envelope = unpack(data)
        except ValueError as error:
            return [Warn(f"a message of the channel {channel!r} was ignored: {error}")]
        out: list[Instruction] = []
        if (
            envelope.version > self._plan.version(channel)
            and now >= subscription.asked_at + _ASK_AGAIN_SECONDS
        ):
            # The publisher knows a newer entry: the switch message has been lost.
            subscription.asked_at = now
            self._to_ask.add(channel)
            out += self._ask_homes(now)
        if envelope.kind == EnvelopeKind.HEARTBEAT:
            self._order.tell(channel, envelope.publisher, envelope.epoch, envelope.sequence, now)
            return out
        may_reorder = len(subscription.targets) > 1 or bool(subscription.departures)
        for item in self._order.offer(channel, envelope, now, may_reorder=may_reorder):
            out.append(delivery(channel, item))
        return out

    def check(self, channel: bytes, now: float) -> list[Instruction]:
        """A dispatcher was away while the channel moved, and may not have forwarded everything."""
        if channel not in self._subscriptions:
            return []
        self._tails.want(channel)
        return self._ask_homes(now)

    def barrier_passed(self, server: int, token: int) -> list[Instruction]:
        """A barrier's echo has come through an old server."""
        channel, through = self._barriers.pop(token, (b"", -1))
        subscription = self._subscriptions.get(channel)
        if subscription is None or through != server:
            return []
        departure = subscription.departures.get(server)
        if departure is None or departure.tokens is None:
            return []
        departure.tokens.discard(token)
        return self._leave(subscription, server) if not departure.tokens else []

    def entry_changed(self, channel: bytes, entry: PlanEntry, now: float) -> list[Instruction]:
        """Follows a new entry: joins its servers first; the old ones are left when nothing can be missed."""
        subscription = self._subscriptions.get(channel)
        if subscription is None:
            return []
        targets = entry.subscribe_servers(self._client)
        subscription.former |= subscription.targets
        for server in (subscription.targets | subscription.departures.keys()) - targets:
            subscription.departures[server] = _Departure()
        for server in targets:
            subscription.departures.pop(server, None)
        joins = targets - subscription.targets
        subscription.targets = targets
        out: list[Instruction] = []
        for server in joins - subscription.confirmed:
            out += self._join(server, [channel], now)
        return out + self._progress(subscription, now)

    def ring_changed(self, gone: frozenset[int], now: float) -> list[Instruction]:
        """Psubscribes on new servers, and follows channels whose servers are gone, or whose home is another now."""
        out: list[Instruction] = []
        for server in gone:
            self._to_ask |= self._asked.pop(server, set())
            self._tails.link_down(server)
        for channel, subscription in self._subscriptions.items():
            for server in gone:
                subscription.departures.pop(server, None)
                subscription.confirmed.discard(server)
            if subscription.targets & gone or self._plan.version(channel) < 0:
                self._tails.want(channel)
                self._to_ask.add(channel)
                out += self.entry_changed(channel, self._plan.peek(channel), now)
        return out + self.patterns.ring_changed(gone, now) + self._ask_homes(now)

    def begin_anew(self, now: float) -> list[Instruction]:
        """Subscribes on the servers of another service. All links are down. Streams go on, so what was published
        meanwhile counts as lost."""
        out: list[Instruction] = []
        self._barriers.clear()
        for channel, subscription in self._subscriptions.items():
            subscription.targets = self._plan.peek(channel).subscribe_servers(self._client)
            subscription.departures.clear()
            subscription.former.clear()
            subscription.home_answered = False
            self._to_ask.add(channel)
            self._tails.want(channel)
            for server in subscription.targets:
                out += self._links.want(server, ServerLink.SUBSCRIBE, now)
        return out + self.patterns.ring_changed(frozenset(), now)

    def tick(self, now: float) -> list[Instruction]:
        out = (
            [delivery(channel, item) for channel, item in self._order.tick(now)]
            if self._order.waiting
            else []
        )
        out += self.patterns.tick(now)
        for subscription in list(self._subscriptions.values()):
            for server, departure in list(subscription.departures.items()):
                if departure.tokens is not None and now >= departure.deadline:
                    out += self._leave(subscription, server)
            if subscription.baseline is not None and now >= subscription.baseline.due_at:
                out += self._take_baseline(subscription, subscription.baseline, now)
        if now >= self._audited_at + _AUDIT_SECONDS:
            self._audited_at = now
            self._to_ask.update(self._subscriptions)
        return out + self._ask_homes(now)

    def _progress(self, subscription: _Subscription, now: float) -> list[Instruction]:
        if not subscription.confirmed.issuperset(subscription.targets):
            return []
        out: list[Instruction] = []
        if not subscription.announced and subscription.home_answered:
            subscription.announced = True
            if not subscription.steady:
                subscription.baseline = _Baseline(now)
                out += self._take_baseline(subscription, subscription.baseline, now)
            out.append(Confirm("subscribe", subscription.channel))
        for server, departure in subscription.departures.items():
            if departure.tokens is None:
                out += self._send_barriers(subscription, server, departure, now)
        if not subscription.departures:
            out += self._end_move(subscription)
        return out

    def _send_barriers(
        self, subscription: _Subscription, old: int, departure: _Departure, now: float
    ) -> list[Instruction]:
        out: list[Instruction] = []
        departure.tokens = set()
        departure.deadline = now + _BARRIER_SECONDS
        for server in subscription.targets:
            self._tokens += 1
            departure.tokens.add(self._tokens)
            self._barriers[self._tokens] = (subscription.channel, old)
            note = encode_note(Barrier(self._client, self._tokens, old))
            out.append(Send(server, ServerLink.SUBSCRIBE, (b"PUBLISH", DISPATCHER_CHANNEL, note)))
        return out

    def _leave(self, subscription: _Subscription, server: int) -> list[Instruction]:
        departure = subscription.departures.pop(server)
        for token in departure.tokens or ():
            self._barriers.pop(token, None)
        subscription.confirmed.discard(server)
        out = self._command(server, b"UNSUBSCRIBE", [subscription.channel])
        return out if subscription.departures else out + self._end_move(subscription)

    def _end_move(self, subscription: _Subscription) -> list[Instruction]:
        note = encode_note(
            Moved(self._client, subscription.channel, self._plan.version(subscription.channel))
        )
        former, subscription.former = subscription.former, set()
        return [
            Send(server, ServerLink.SUBSCRIBE, (b"PUBLISH", DISPATCHER_CHANNEL, note))
            for server in former
            if self._links.is_up(server, ServerLink.SUBSCRIBE)
        ]

    def _join(self, server: int, channels: Sequence[bytes], now: float) -> list[Instruction]:
        if self._links.is_up(server, ServerLink.SUBSCRIBE):
            return self._command(server, b"SUBSCRIBE", channels)
        return self._links.want(server, ServerLink.SUBSCRIBE, now)

    def _command(self, server: int, command: bytes, channels: Sequence[bytes]) -> list[Instruction]:
        return subscription_commands(self._links, server, command, channels, self._refused)

    def _refused(self, channel: bytes, error: Exception) -> list[Instruction]:
        return [*self.unsubscribe([channel]), RefuseSubscription(channel, False, error)]

    def _ask_homes(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        asked: dict[int, list[bytes]] = defaultdict(list)
        for channel in sorted(self._to_ask):
            home = self._plan.ring.home(channel)
            if self._links.is_up(home, ServerLink.SUBSCRIBE):
                self._to_ask.discard(channel)
                asked[home].append(channel)
            else:
                out += self._links.want(home, ServerLink.SUBSCRIBE, now)
        for home, channels in asked.items():
            for part in parts_of(channels):
                self._asked[home].update(part)
                then = partial(self._homes_answered, home, part)
                out.append(Send(home, ServerLink.SUBSCRIBE, (b"HMGET", PLAN_KEY, PLAN_MARK, *part), then))
        for channel in self._tails.due(now):
            subscription = self._subscriptions[channel]
            if subscription.confirmed.issuperset(subscription.targets):
                out += self._tails.read(channel, now)
        return out

    def _homes_answered(
        self, home: int, channels: Sequence[bytes], reply: Reply, now: float
    ) -> list[Instruction]:
        out: list[Instruction] = []
        self._asked[home].difference_update(channels)
        if isinstance(reply, Exception):
            # Nobody else can tell where these channels are served: this user may not read the plan, say.
            for channel in channels:
                out += self._refused(channel, reply) if channel in self._subscriptions else []
            return out
        if not isinstance(reply, list):
            return [Warn(f"a server cannot tell where channels are served: {reply!r}")]
        if reply[0] is None:
            self._to_ask.update(channel for channel in channels if channel in self._subscriptions)
            return []
        for channel, signed in zip(channels, reply[1:], strict=False):
            subscription = self._subscriptions.get(channel)
            if subscription is None:
                continue
            if isinstance(signed, bytes):
                known = self._plan.version(channel)
                try:
                    out += self._adopt(channel, unpack_entry(channel, signed, self._plan.secret), now)
                except ValueError as error:
                    out.append(Warn(str(error)))
                if subscription.home_answered and self._plan.version(channel) > known:
                    # No dispatcher has told it, and perhaps none has forwarded.
                    self._tails.want(channel)
            self._plan.learn(channel, self._plan.ring.home_entry(channel), now)
            subscription.home_answered = True
            out += self._progress(subscription, now)
        return out

    def _take_baseline(
        self, subscription: _Subscription, baseline: _Baseline, now: float
    ) -> list[Instruction]:
        if baseline.tails is not None:
            self._make_steady(subscription, baseline.tails)
            return []
        home = self._plan.ring.home(subscription.channel)
        if not self._links.is_up(home, ServerLink.SUBSCRIBE):
            baseline.asked = False
            return self._links.want(home, ServerLink.SUBSCRIBE, now)
        if baseline.asked:
            return []
        baseline.asked = True
        return read_tails(home, subscription.channel, partial(self._baseline_answered, baseline))

    def _make_steady(self, subscription: _Subscription, tails: Tails) -> None:
        self._order.begin(subscription.channel, tails)
        subscription.steady = True
        subscription.baseline = None

    def _baseline_answered(self, baseline: _Baseline, tails: Tails, now: float) -> list[Instruction]:
        if baseline.early is None:
            baseline.early, baseline.asked = tails, False
            baseline.due_at = now + TAIL_AGE_SECONDS
        else:
            baseline.tails = tails
            baseline.due_at = now + _ON_ITS_WAY_SECONDS
        return []
