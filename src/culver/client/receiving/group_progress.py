"""What has come from a group at one gateway, and up to where it may be acknowledged. Pure.

For each subscription, offsets ascend. Across a group they may step back: where a member comes to be known only after
the group was already past the offset from which it has events, the gateway goes back there, and sends on from there
all that is unacknowledged, for every member:

    order of arrival   1     2     3     4    |  5     6     7     8
    offset             10    11    12    13   |  11    12    13    14
    for                a     a     b     a    |  a c   b     a c   a c
                                               the site hears of c, which has events since 11

So neither of the rules for a single subscription holds here:

* "At or below the highest offset is a repetition" would drop 11 and 13 for c. What has come is remembered by event,
  with the names: the repetitions are 11 for a, 12 for b and 13 for a, and nothing else. The memory is bounded, and
  keeps the events that came last. A repetition of an older one is not recognised, and comes again under the same
  delivery ids: more can come twice, but nothing gets lost.
* "After the highest offset" would skip, on another connection, what c had not got when the first one was lost; and
  the next acknowledgement, which counts for all members, would end it. The group goes on after the lowest offset that
  is remembered, so a gateway that had stepped back, or was about to, sends that part again.
* "Up to the highest offset that the reader is done with" would acknowledge 13 also for c, while 11 for c still waits
  to be read. An acknowledgement stops below the lowest offset that came after what the reader is done with.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

MOST_EVENTS = 1_000
MOST_DELIVERIES = 20_000
_MOST_GAPS = 10_000
_FEW = 16


class GroupProgress:
    """`highest` is the highest offset that was taken."""

    def __init__(self, most_events: int = MOST_EVENTS, most_deliveries: int = MOST_DELIVERIES) -> None:
        self._most_events = most_events
        self._most_deliveries = most_deliveries
        self._names: OrderedDict[int, tuple[str, ...]] = OrderedDict()  # by offset; the last to come is last
        self._deliveries = 0
        self._gaps: OrderedDict[tuple[str, int, str], None] = OrderedDict()
        # Number and offset of what came below the highest offset. Both ascend: who follows with a lower offset
        # makes those before it needless.
        self._behind: deque[tuple[int, int]] = deque()
        self._refused: int | None = None  # the lowest offset that was not taken, and has not come again
        self.highest = -1

    def missing(self, offset: int, names: Sequence[str]) -> tuple[str, ...]:
        """For which of these subscriptions the event has not come yet, as far as is remembered."""
        known = self._names.get(offset)
        if known is None:
            return tuple(names)
        among = frozenset(known) if len(known) > _FEW else known
        return tuple([name for name in names if name not in among])

    def take(self, number: int, offset: int, names: tuple[str, ...]) -> None:
        """Note an event for those who miss it. `number` ascends with each event that is taken."""
        if offset <= self.highest:
            while self._behind and self._behind[-1][1] >= offset:
                self._behind.pop()
            self._behind.append((number, offset))
        self.highest = max(self.highest, offset)
        self._names[offset] = self._names.get(offset, ()) + names
        self._deliveries += len(names)
        self.pass_over(offset)
        while len(self._names) > 1 and (
            len(self._names) > self._most_events or self._deliveries > self._most_deliveries
        ):
            _, forgotten = self._names.popitem(last=False)
            self._deliveries -= len(forgotten)

    def pass_over(self, offset: int) -> None:
        """Note that an event came, which nobody misses."""
        if offset in self._names:
            self._names.move_to_end(offset)
        if self._refused is not None and offset >= self._refused:
            self._refused = None

    def refuse(self, offset: int) -> None:
        """Note that an event came and was not taken. It must come again."""
        self._refused = offset if self._refused is None else min(self._refused, offset)

    def take_gap(self, names: Sequence[str], end: int, reason: str) -> tuple[str, ...]:
        """For which of these subscriptions the gap is new: a new connection announces again what lies ahead of it."""
        new = tuple([name for name in names if (name, end, reason) not in self._gaps])
        self._gaps.update(dict.fromkeys((name, end, reason) for name in new))
        while len(self._gaps) > _MOST_GAPS:
            self._gaps.popitem(last=False)
        return new

    def resume_after(self) -> int | None:
        """The offset behind which the group goes on, on another connection; None for all that is unacknowledged."""
        if not self._names:
            return None
        lowest = min(self._names)
        if self._refused is not None:
            lowest = min(lowest, self._refused)
        return lowest - 1 if lowest > 0 else None

    def acknowledgeable(self, number: int, highest: int) -> int:
        """The offset up to which a reader is done with everything, for all members, who is done with all events up to
        `number`; `highest` is the highest offset among them."""
        while self._behind and self._behind[0][0] <= number:
            self._behind.popleft()
        waiting = [] if self._refused is None else [self._refused]
        if self._behind:
            waiting.append(self._behind[0][1])
        return min([highest, *(offset - 1 for offset in waiting)])
