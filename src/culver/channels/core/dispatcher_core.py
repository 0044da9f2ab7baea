"""A server's dispatcher without its sockets: keeps messages reaching everybody while channels move (section IV-A).

It listens at its own server to every channel that has a route, and forwards what clients publish there to one group
of each other entry of the route: publishers and subscribers may follow different entries for a while. Each dispatcher
of a group forwards its own copy. One copy for the group would not do: a subscriber that has left this server in time
may have come too late to the server that the other copy went through. Subscribers drop the copies.

Its answer to a barrier goes through the same connection as what it forwards, and so comes behind it.

A dispatcher that comes back after a while does not know what was published meanwhile. It asks the subscribers on the
other servers to check.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from culver.channels.core import reserved_names as names
from culver.channels.core.channel_load import ClientLoadReport
from culver.channels.core.channel_plan import MoveRoute, PlanEntry
from culver.channels.core.dispatcher_notes import (
    Barrier,
    BarrierEcho,
    ChannelVersion,
    DispatcherReport,
    Moved,
    Notice,
    decode_question,
    encode_note,
    encode_report,
)
from culver.channels.core.envelope import (
    EnvelopeKind,
    as_forwarded,
    is_ours,
    kind_of,
    pack_check,
    pack_entry,
    pack_switch,
    unpack,
)
from culver.channels.core.instructions import Command, Disconnect, Instruction, Reply, Send, ServerLink, Warn
from culver.channels.core.local_plan import IDLE_SECONDS
from culver.channels.core.server_links import ServerLinks

#: A channel on which nobody publishes is switched after this time, so that every move ends.
_SILENT_SWITCH_SECONDS = 2.0
_REPEATED_SWITCH_SECONDS = 1.0
_SWITCHES_OF_TICK = 50

_COUNT_SECONDS = 0.25
_REPORT_SECONDS = 1.0
_LOAD_SECONDS = 1.0

#: Where an old server also serves the new entry, its subscribers count as moved after this time at the latest.
_LONGEST_SWITCH_SECONDS = 10.0

_NOTICE_SECONDS = 0.1
_MOST_NOTICED_PUBLISHERS = 1_000

#: Forwarded messages that wait for one server's connection. What does not fit is lost, and reported by subscribers.
_MOST_FORWARDED = 20_000


@dataclass(slots=True)
class _Routed:
    """A route as this dispatcher carries it out."""

    route: MoveRoute
    #: When a publisher has last obeyed an old entry, by its version.
    used_at: dict[int, float] = field(default_factory=dict)
    listening: bool = False
    #: Whether clients may have published here while this dispatcher did not listen.
    missed: bool = False
    active_at: float | None = None
    first_switch_at: float | None = None
    switch_at: float | None = None
    #: Those of the old entries, counted before anybody is told; None if nobody counted them then.
    subscribers: int | None = None
    moved: set[int] = field(default_factory=set)
    noticed: dict[int, float] = field(default_factory=dict)
    empty: set[int] = field(default_factory=set)


class DispatcherCore:
    """The dispatcher of the server ``server``. Called like ``ClientCore``.

    ``on_load`` gets every load report of a client that is published at this server.
    """

    def __init__(
        self,
        server: int,
        secret: bytes,
        random: Random,
        on_load: Callable[[bytes, float], None] | None = None,
    ) -> None:
        self.server = server
        self._secret = secret
        self._links = ServerLinks(random)
        self._incarnation = random.getrandbits(32)
        self._on_load = on_load
        self._routes: dict[bytes, _Routed] = {}
        self._outgoing: dict[int, deque[Command]] = {}
        self._beat = 0
        self._report_at = 0.0
        self._count_at = 0.0
        self._changed = False
        self._told_load_at = 0.0
        # PUBLISH commands that the load analysers of these servers are to be told of.
        self._published_at: Counter[int] = Counter()
        #: Messages on the reserved channels of this server: each was a PUBLISH of ours.
        self.heard = 0
        self.forwarded = 0
        self.overflowed = 0
        # The channels of messages that were dropped because too many wait.
        self._dropped: dict[bytes, None] = {}

    @property
    def routes(self) -> dict[bytes, MoveRoute]:
        return {channel: routed.route for channel, routed in self._routes.items()}

    def start(self, now: float) -> list[Instruction]:
        out = self._links.want(self.server, ServerLink.SUBSCRIBE, now)
        return out + self._links.want(self.server, ServerLink.PUBLISH, now)

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self._links.connected(server, link)
        if link is ServerLink.PUBLISH:
            return [self._numbered(server, command) for command in self._outgoing.get(server, ())]
        listened = (names.DISPATCHER_CHANNEL, names.ROUTES_CHANNEL, names.LOAD_CHANNEL, *self._routes)
        return [
            Send(server, link, (b"SUBSCRIBE", *listened)),
            Send(
                server, link, (b"HGETALL", names.ROUTES_KEY), partial(self._routes_answered, on_arrival=True)
            ),
        ]

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self._links.disconnected(server, link, now)
        if link is ServerLink.SUBSCRIBE:
            for routed in self._routes.values():
                routed.listening = False
                routed.missed = True
        return []

    def server_gone(self, server: int) -> list[Instruction]:
        """A server has left the ring: nothing is kept for it."""
        self._outgoing.pop(server, None)
        self._published_at.pop(server, None)
        self._links.drop(server, ServerLink.PUBLISH)
        return [Disconnect(server, ServerLink.PUBLISH)]

    def pushed(self, server: int, link: ServerLink, push: Sequence[bytes], now: float) -> list[Instruction]:
        if link is not ServerLink.SUBSCRIBE:
            return []
        if push[0] == b"subscribe":
            return self._listening(push[1], now)
        if push[0] != b"message":
            return []
        channel, data = push[1], push[2]
        self.heard += channel.startswith(names.RESERVED_PREFIX)
        if channel == names.ROUTES_CHANNEL:
            return [Send(self.server, link, (b"HGETALL", names.ROUTES_KEY), self._routes_answered)]
        if channel == names.DISPATCHER_CHANNEL:
            return self._asked(data, now)
        if channel == names.LOAD_CHANNEL:
            if self._on_load is not None:
                self._on_load(data, now)
            return []
        routed = self._routes.get(channel)
        return [] if routed is None else self._published(routed, channel, data, now)

    def tick(self, now: float) -> list[Instruction]:
        out = self._links.tick(now)
        out += self._send_due_switches(now)
        out += self._admit_drops(now)
        if now >= self._count_at + _COUNT_SECONDS:
            self._count_at = now
            out += self._count_subscribers()
        if self._changed or now >= self._report_at + _REPORT_SECONDS:
            out += self._write_report(now)
        if now >= self._told_load_at + _LOAD_SECONDS:
            self._told_load_at = now
            out += self._tell_load(now)
        return out

    def report(self, now: float) -> DispatcherReport:
        applied, empty, quiet = [], [], []
        for channel, routed in self._routes.items():
            counted = routed.subscribers is not None or routed.active_at is not None
            if routed.listening and counted:
                applied.append(ChannelVersion(channel, routed.route.current.version))
            here = [entry for entry in routed.route.previous if self.server in entry.servers]
            empty += [
                ChannelVersion(channel, entry.version) for entry in here if entry.version in routed.empty
            ]
            if routed.route.active:
                quiet += [
                    ChannelVersion(channel, entry.version)
                    for entry in here
                    if now >= routed.used_at[entry.version] + IDLE_SECONDS
                ]
        return DispatcherReport(
            self.server, self._incarnation, self._beat, tuple(applied), tuple(empty), tuple(quiet)
        )

    def _routes_answered(self, reply: Reply, now: float, *, on_arrival: bool = False) -> list[Instruction]:
        if not isinstance(reply, dict):
            return [Warn(f"the routes of server {self.server} cannot be read: {reply}")]
        out: list[Instruction] = []
        fresh, renewed = [], []
        for channel, data in reply.items():
            try:
                route = msgspec.msgpack.decode(data, type=MoveRoute)
            except (msgspec.DecodeError, ValueError) as error:
                out.append(Warn(f"the route of {channel!r} cannot be read: {error}"))
                continue
            if self._take_route(route, now):
                fresh.append(channel)
                # Its moves have not waited for this dispatcher.
                self._routes[channel].missed = on_arrival or route.active
            elif self._routes[channel].subscribers is None:
                renewed.append(channel)
        ended = [channel for channel in self._routes if channel not in reply]
        for channel in ended:
            del self._routes[channel]
        out += self._listen(b"SUBSCRIBE", fresh)
        out += self._listen(b"UNSUBSCRIBE", ended)
        out += self._ask_counts(renewed)
        self._changed = True
        return out

    def _take_route(self, route: MoveRoute, now: float) -> bool:
        """Returns whether the channel is new here."""
        routed = self._routes.get(route.channel)
        new = routed is None
        if routed is None or routed.route.current != route.current:
            was = routed
            routed = self._routes[route.channel] = _Routed(route)
            if was is not None:
                routed.listening, routed.missed, routed.used_at = was.listening, was.missed, was.used_at
        routed.route = route
        routed.used_at = {entry.version: routed.used_at.get(entry.version, now) for entry in route.previous}
        if route.active and routed.active_at is None:
            routed.active_at = now
            # Publishers have obeyed the last of them until now.
            routed.used_at |= {entry.version: now for entry in route.previous[-1:]}
        return new

    def _listening(self, channel: bytes, now: float) -> list[Instruction]:
        routed = self._routes.get(channel)
        if routed is None:
            return []
        routed.listening = True
        # Nobody knows what was published before.
        routed.used_at = dict.fromkeys(routed.used_at, now)
        self._changed = True
        out = self._ask_for_check(routed, now) if routed.missed else []
        # Counted before anybody is told: later the new entry's subscribers would be among them.
        return out + self._ask_counts([channel])

    def _ask_for_check(self, routed: _Routed, now: float) -> list[Instruction]:
        """Lets the subscribers of other servers compare what they have with the tails: a publisher that has fallen
        silent meanwhile repeats nothing."""
        routed.missed = False
        route = routed.route
        followed = [route.current, *(entry for entry in route.previous if entry.version not in route.empty)]
        out: list[Instruction] = []
        for server in sorted(frozenset[int]().union(*(entry.servers for entry in followed)) - {self.server}):
            out += self._send_to(server, (b"PUBLISH", route.channel, pack_check()), now)
        return out

    def _published(self, routed: _Routed, channel: bytes, data: bytes, now: float) -> list[Instruction]:
        route = routed.route
        out: list[Instruction] = []
        if not is_ours(data):
            # A program that knows only this server. It is not told, so the dispatcher forwards for good.
            if self.server not in route.current.servers:
                routed.used_at = dict.fromkeys(routed.used_at, now)
                out += self._forward(route.current, 0, channel, data, now)
            return out
        if _is_switch(data):
            return out
        try:
            envelope = unpack(data)
        except ValueError:
            return out
        if not envelope.forwarded:
            copy = as_forwarded(data)
            for entry in (route.current, *route.previous):
                if entry.version != envelope.version and entry.version not in route.empty:
                    out += self._forward(entry, envelope.publisher, channel, copy, now)
            if route.active and envelope.version < route.current.version:
                if envelope.version in routed.used_at:
                    routed.used_at[envelope.version] = now
                out += self._notify(routed, channel, envelope.publisher, now)
        if route.active and routed.switch_at is None and self._is_old_server(route):
            out += self._switch(routed, channel, now)
        return out

    def _forward(
        self, entry: PlanEntry, publisher: int, channel: bytes, data: bytes, now: float
    ) -> list[Instruction]:
        out: list[Instruction] = []
        for server in entry.group_with(self.server, publisher):
            if server != self.server:
                self.forwarded += 1
                out += self._send_to(server, (b"PUBLISH", channel, data), now)
        return out

    def _send_to(self, server: int, command: Command, now: float) -> list[Instruction]:
        """Sends by the publish link of any server, in order; what is not answered is sent again on a new link."""
        waiting = self._outgoing.setdefault(server, deque())
        if len(waiting) >= _MOST_FORWARDED:
            self.overflowed += 1
            self._dropped[command[1]] = None
            return []
        waiting.append(command)
        if command[0] == b"PUBLISH" and (is_ours(command[2]) or command[1].startswith(names.RESERVED_PREFIX)):
            self._published_at[server] += 1
        if self._links.is_up(server, ServerLink.PUBLISH):
            return [self._numbered(server, command)]
        return self._links.want(server, ServerLink.PUBLISH, now)

    def _admit_drops(self, now: float) -> list[Instruction]:
        """Asks for checks of channels whose messages were dropped, once there is room for them."""
        if not self._dropped or max(map(len, self._outgoing.values()), default=0) > _MOST_FORWARDED // 2:
            return []
        dropped, self._dropped = self._dropped, {}
        out: list[Instruction] = []
        for channel in dropped:
            if channel in self._routes:
                out += self._ask_for_check(self._routes[channel], now)
        return out

    def _tell_load(self, now: float) -> list[Instruction]:
        """Reports what this dispatcher has published on each server. The analyser counts the report itself."""
        out: list[Instruction] = []
        for server in [each for each in self._published_at if self._links.is_up(each, ServerLink.PUBLISH)]:
            report = ClientLoadReport(self._incarnation, (), besides=self._published_at[server])
            command = (b"PUBLISH", names.LOAD_CHANNEL, msgspec.msgpack.encode(report))
            out += self._send_to(server, command, now)
            del self._published_at[server]
        return out

    def _numbered(self, server: int, command: Command) -> Send:
        return Send(server, ServerLink.PUBLISH, command, partial(self._sent, server))

    def _sent(self, server: int, reply: Reply, now: float) -> list[Instruction]:
        waiting = self._outgoing.get(server)
        command = waiting.popleft() if waiting else ()
        if isinstance(reply, Exception):
            return [Warn(f"server {server} refused a forwarded message: {reply}")]
        if server == self.server and command[:1] == (b"PUBLISH",) and _is_switch(command[2]):
            # NUMSUB of Valkey 9.1 answers with nonsense for some channels that have one subscriber left, and goes on
            # with it. How many got the switch is always right.
            return self._counted([command[1], reply], now)
        return []

    def _notify(self, routed: _Routed, channel: bytes, publisher: int, now: float) -> list[Instruction]:
        if now < routed.noticed.get(publisher, 0.0) + _NOTICE_SECONDS:
            return []
        if len(routed.noticed) >= _MOST_NOTICED_PUBLISHERS:
            routed.noticed.clear()
        routed.noticed[publisher] = now
        note = Notice(channel, pack_entry(channel, routed.route.current, self._secret))
        return self._send_to(self.server, (b"PUBLISH", names.inbox(publisher), encode_note(note)), now)

    def _asked(self, data: bytes, now: float) -> list[Instruction]:
        try:
            question = decode_question(data)
        except msgspec.DecodeError as error:
            return [
                Warn(f"a client's message to the dispatcher of server {self.server} was ignored: {error}")
            ]
        if isinstance(question, Barrier):
            echo = encode_note(BarrierEcho(question.token))
            return self._send_to(question.through, (b"PUBLISH", names.inbox(question.client), echo), now)
        return self._client_moved(question)

    def _client_moved(self, moved: Moved) -> list[Instruction]:
        routed = self._routes.get(moved.channel)
        if routed is not None and moved.version >= routed.route.current.version:
            routed.moved.add(moved.client)
        return []

    def _is_old_server(self, route: MoveRoute) -> bool:
        return any(self.server in entry.servers for entry in route.previous)

    def _switch(self, routed: _Routed, channel: bytes, now: float) -> list[Instruction]:
        routed.switch_at = now
        if routed.first_switch_at is None:
            routed.first_switch_at = now
        data = pack_switch(channel, routed.route.current, self._secret)
        return self._send_to(self.server, (b"PUBLISH", channel, data), now)

    def _send_due_switches(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for channel, routed in self._routes.items():
            if routed.active_at is None or not self._awaits_subscribers(routed):
                continue
            due = (
                routed.active_at + _SILENT_SWITCH_SECONDS
                if routed.switch_at is None
                else routed.switch_at + _REPEATED_SWITCH_SECONDS
            )
            if now >= due:
                out += self._switch(routed, channel, now)
            if len(out) >= _SWITCHES_OF_TICK:
                break
        return out

    def _awaits_subscribers(self, routed: _Routed) -> bool:
        return any(
            self.server in entry.servers and entry.version not in routed.empty
            for entry in routed.route.previous
        )

    def _count_subscribers(self) -> list[Instruction]:
        channels = [
            channel
            for channel, routed in self._routes.items()
            if routed.active_at is not None and self._awaits_subscribers(routed)
        ]
        return self._ask_counts(channels[:1_000])

    def _ask_counts(self, channels: Sequence[bytes]) -> list[Instruction]:
        if not channels or not self._links.is_up(self.server, ServerLink.SUBSCRIBE):
            return []
        command = (b"PUBSUB", b"NUMSUB", *channels)
        return [Send(self.server, ServerLink.SUBSCRIBE, command, self._counted)]

    def _counted(self, reply: Reply, now: float) -> list[Instruction]:
        for channel, count in _pairs(reply):
            routed = self._routes.get(channel)
            if routed is None or not routed.listening:
                continue
            others = count - 1
            if routed.active_at is None:
                self._changed = self._changed or routed.subscribers is None
                routed.subscribers = others
                continue
            if self.server in routed.route.current.servers:
                if routed.first_switch_at is None:
                    continue
                late = now >= routed.first_switch_at + _LONGEST_SWITCH_SECONDS
                done = late or (routed.subscribers is not None and len(routed.moved) >= routed.subscribers)
            else:
                done = others <= 0
            if done:
                old = {entry.version for entry in routed.route.previous if self.server in entry.servers}
                self._changed = self._changed or not old <= routed.empty
                routed.empty |= old
        return []

    def _write_report(self, now: float) -> list[Instruction]:
        if not self._links.is_up(self.server, ServerLink.PUBLISH):
            return []
        self._changed = False
        self._report_at = now
        self._beat += 1
        return self._send_to(self.server, (b"SET", names.REPORT_KEY, encode_report(self.report(now))), now)

    def _listen(self, command: bytes, channels: Sequence[bytes]) -> list[Instruction]:
        if not channels or not self._links.is_up(self.server, ServerLink.SUBSCRIBE):
            return []
        return [Send(self.server, ServerLink.SUBSCRIBE, (command, *channels))]


def _is_switch(data: bytes) -> bool:
    return is_ours(data) and kind_of(data) == EnvelopeKind.SWITCH


def _pairs(reply: Reply) -> Iterable[tuple[bytes, int]]:
    """The channels and counts of PUBSUB NUMSUB, which comes as a flat list."""
    if not isinstance(reply, list):
        return ()
    return zip(reply[::2], reply[1::2], strict=False)
