"""Reads the tails that publishers store at a channel's home, after messages may have been lost.

A tail may be ``TAIL_AGE_SECONDS`` old. One reading at once therefore tells of most losses early, and a second one so
much later tells of all: by then every publisher has stored what it had published before the first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

from culver.channels.core.dispatcher_notes import decode_tails
from culver.channels.core.instructions import Instruction, Reply, Send, ServerLink
from culver.channels.core.local_plan import LocalPlan
from culver.channels.core.message_order import TAIL_AGE_SECONDS, MessageOrder
from culver.channels.core.reserved_names import earlier_tail_key, tail_key
from culver.channels.core.server_links import ServerLinks

#: Each publisher's epoch and last sequence.
Tails = dict[int, tuple[int, int]]


class TailReader:
    """Compares channels with their tails, and lets ``order`` report what is missing."""

    def __init__(self, plan: LocalPlan, links: ServerLinks, order: MessageOrder) -> None:
        self._plan = plan
        self._links = links
        self._order = order
        # When to read a channel's tails, and whether this is the second reading.
        self._due: dict[bytes, tuple[float, bool]] = {}
        # The readings that are not answered yet, by home: a broken link leaves them to be asked for again. Of several
        # readings of one channel only the last counts.
        self._asked: dict[int, dict[bytes, int]] = defaultdict(dict)
        self._readings = 0

    def want(self, channel: bytes) -> None:
        """Messages of this channel may have been lost until now."""
        self._due[channel] = (0.0, False)

    def forget(self, channel: bytes) -> None:
        """The channel is not subscribed any more."""
        self._due.pop(channel, None)
        for readings in self._asked.values():
            readings.pop(channel, None)

    def link_down(self, server: int) -> None:
        for channel in self._asked.pop(server, ()):
            self.want(channel)

    def due(self, now: float) -> Iterable[bytes]:
        """The channels to be read now; call ``read`` for those that are subscribed where the plan wants them."""
        return sorted(channel for channel, (due_at, _) in self._due.items() if now >= due_at)

    def read(self, channel: bytes, now: float) -> list[Instruction]:
        home = self._plan.ring.home(channel)
        if not self._links.is_up(home, ServerLink.SUBSCRIBE):
            return self._links.want(home, ServerLink.SUBSCRIBE, now)
        _, is_second = self._due.pop(channel)
        self._readings += 1
        self._asked[home][channel] = self._readings
        return read_tails(home, channel, partial(self._answered, home, channel, self._readings, is_second))

    def _answered(
        self, home: int, channel: bytes, reading: int, is_second: bool, tails: Tails, now: float
    ) -> list[Instruction]:
        if self._asked[home].get(channel) != reading:
            return []
        del self._asked[home][channel]
        self._order.compare(channel, tails, now)
        if not is_second:
            self._due.setdefault(channel, (now + TAIL_AGE_SECONDS, True))
        return []


def read_tails(
    home: int, channel: bytes, then: Callable[[Tails, float], list[Instruction]]
) -> list[Instruction]:
    """Asks for the current tails and then for the earlier ones: a publisher may turn them over in between."""
    current: Tails = {}

    def current_answered(reply: Reply, now: float) -> list[Instruction]:
        current.update(decode_tails(reply))
        return []

    def earlier_answered(reply: Reply, now: float) -> list[Instruction]:
        return then({**decode_tails(reply), **current}, now)

    return [
        Send(home, ServerLink.SUBSCRIBE, (b"HGETALL", tail_key(channel)), current_answered),
        Send(home, ServerLink.SUBSCRIBE, (b"HGETALL", earlier_tail_key(channel)), earlier_answered),
    ]
