"""Subscriptions of patterns: on all servers, because channels that match can be on any of them.

Nobody can tell which publishers there were before: a publisher's messages are covered from the first one heard.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from culver.channels.core.envelope import Envelope, EnvelopeKind, is_ours, unpack
from culver.channels.core.instructions import (
    Confirm,
    Deliver,
    Instruction,
    RefuseSubscription,
    Reply,
    ReportGap,
    Send,
    ServerLink,
)
from culver.channels.core.local_plan import LocalPlan
from culver.channels.core.message_order import LostMessages, MessageOrder
from culver.channels.core.server_links import ServerLinks

#: Channels in one SUBSCRIBE, UNSUBSCRIBE or HMGET.
_CHANNELS_OF_COMMAND = 1_000


@dataclass(slots=True)
class _Pattern:
    confirmed: set[int] = field(default_factory=set)
    announced: bool = False
    order: MessageOrder = field(default_factory=MessageOrder)


class PatternSubscriptions:
    """The patterns of one client; a part of its ``SubscriberCore``."""

    def __init__(self, plan: LocalPlan, links: ServerLinks) -> None:
        self._plan = plan
        self._links = links
        self._patterns: dict[bytes, _Pattern] = {}

    @property
    def duplicates(self) -> int:
        return sum(pattern.order.duplicates for pattern in self._patterns.values())

    @property
    def settled(self) -> bool:
        """Whether every pattern is subscribed on every server."""
        return all(self._plan.ring.numbers <= pattern.confirmed for pattern in self._patterns.values())

    def psubscribe(self, patterns: Iterable[bytes], now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for name in patterns:
            known = self._patterns.get(name)
            if known is not None:
                out += [Confirm("psubscribe", name)] if known.announced else []
                continue
            self._patterns[name] = _Pattern()
            for server in sorted(self._plan.ring.numbers):
                out += self._command(server, b"PSUBSCRIBE", [name])
        return out + self._want_links(now)

    def punsubscribe(self, patterns: Iterable[bytes]) -> list[Instruction]:
        out: list[Instruction] = []
        for name in patterns:
            if self._patterns.pop(name, None) is not None:
                for server in sorted(self._plan.ring.numbers):
                    out += self._command(server, b"PUNSUBSCRIBE", [name])
            out.append(Confirm("punsubscribe", name))
        return out

    def link_up(self, server: int) -> list[Instruction]:
        return self._command(server, b"PSUBSCRIBE", list(self._patterns))

    def link_down(self, server: int) -> list[bytes]:
        """Returns the patterns whose subscription is interrupted."""
        interrupted = []
        for name, pattern in self._patterns.items():
            pattern.confirmed.discard(server)
            if pattern.announced:
                pattern.announced = False
                interrupted.append(name)
        return interrupted

    def ring_changed(self, gone: frozenset[int], now: float) -> list[Instruction]:
        """Subscribes on new servers."""
        out: list[Instruction] = []
        for pattern in self._patterns.values():
            pattern.confirmed -= gone
        for server in sorted(self._plan.ring.numbers):
            lacking = [name for name, pattern in self._patterns.items() if server not in pattern.confirmed]
            out += self._command(server, b"PSUBSCRIBE", lacking)
        return out + self._want_links(now)

    def subscribed(self, server: int, name: bytes) -> list[Instruction]:
        """A server has confirmed a pattern."""
        pattern = self._patterns.get(name)
        if pattern is None:
            return []
        pattern.confirmed.add(server)
        if pattern.announced or not self._plan.ring.numbers <= pattern.confirmed:
            return []
        pattern.announced = True
        return [Confirm("psubscribe", name)]

    def message(self, name: bytes, channel: bytes, data: bytes, now: float) -> list[Instruction]:
        pattern = self._patterns.get(name)
        if pattern is None:
            return []
        if not is_ours(data):
            return [Deliver(channel, data, name)]
        try:
            envelope = unpack(data)
        except ValueError:
            return []
        if envelope.kind == EnvelopeKind.HEARTBEAT:
            pattern.order.tell(channel, envelope.publisher, envelope.epoch, envelope.sequence, now)
            return []
        items = pattern.order.offer(channel, envelope, now, may_reorder=True)
        return [delivery(channel, item, name) for item in items]

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for name, pattern in self._patterns.items():
            if pattern.order.waiting:
                out += [delivery(channel, item, name) for channel, item in pattern.order.tick(now)]
        return out

    def _want_links(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        if self._patterns:
            for server in sorted(self._plan.ring.numbers):
                out += self._links.want(server, ServerLink.SUBSCRIBE, now)
        return out

    def _command(self, server: int, command: bytes, patterns: Sequence[bytes]) -> list[Instruction]:
        return subscription_commands(self._links, server, command, patterns, self._refused)

    def _refused(self, name: bytes, error: Exception) -> list[Instruction]:
        return [*self.punsubscribe([name]), RefuseSubscription(name, True, error)]


def subscription_commands(
    links: ServerLinks,
    server: int,
    command: bytes,
    names: Sequence[bytes],
    refused: Callable[[bytes, Exception], list[Instruction]],
) -> list[Instruction]:
    """A command in bulk. ``refused`` gets each name that the server refuses to subscribe."""

    def answered(part: Sequence[bytes], reply: Reply, _: float) -> list[Instruction]:
        if not isinstance(reply, Exception) or command not in (b"SUBSCRIBE", b"PSUBSCRIBE"):
            return []
        if len(part) == 1:
            return refused(part[0], reply)
        # Which one of many it is shows when each is asked for alone.
        out: list[Instruction] = []
        for name in part:
            out += subscription_commands(links, server, command, [name], refused)
        return out

    if not links.is_up(server, ServerLink.SUBSCRIBE):
        return []
    return [
        Send(server, ServerLink.SUBSCRIBE, (command, *part), partial(answered, part))
        for part in parts_of(names)
    ]


def delivery(channel: bytes, item: Envelope | LostMessages, pattern: bytes | None = None) -> Instruction:
    """What the application gets: a message, or the report of a gap."""
    if isinstance(item, LostMessages):
        return ReportGap(item, pattern)
    return Deliver(channel, item.payload, pattern, item)


def parts_of(channels: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Names in portions of one command each."""
    return [
        channels[start : start + _CHANNELS_OF_COMMAND]
        for start in range(0, len(channels), _CHANNELS_OF_COMMAND)
    ]
