"""Each publisher's messages once and in order, and every loss reported.

Redis has no sequencer: while a channel moves or is replicated, copies of a message arrive twice, and messages of one
publisher arrive by several servers in any order. This object drops copies, keeps messages that arrive early until the
missing ones come, and after ``HOLD_SECONDS`` reports what is missing as a gap. A heartbeat or a stored tail tells the
last sequence of a publisher, so a lost message is noticed even if no other follows it.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from culver.channels.core.envelope import Envelope

#: How long a message that arrived early waits for those before it. Below the second within which losses are reported.
HOLD_SECONDS = 0.8

#: How long the first messages of a publisher wait on a channel whose messages may arrive out of order.
SETTLE_SECONDS = 0.2

#: A stored tail may be this old: read so long after a subscription began, it covers all that was published before.
TAIL_AGE_SECONDS = 2.0

MOST_HELD_MESSAGES = 10_000
MOST_HELD_BYTES = 64 << 20
MOST_STREAMS = 200_000


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages of one publisher that were published and did not arrive: ``first`` to ``last``, both included.

    With the reason ``slow reader`` they reached this process, and its own reader let too many of them wait.
    """

    channel: bytes
    publisher: int
    epoch: int
    first: int
    last: int
    reason: str = "network"

    def __str__(self) -> str:
        return f"messages {self.first:,} to {self.last:,} of publisher {self.publisher:x} were lost"


@dataclass(slots=True)
class _Held:
    envelope: Envelope
    arrived: float


@dataclass(slots=True)
class _Stream:
    """One publisher on one channel. ``last`` is None until the first messages have settled."""

    epoch: int
    last: int | None
    settled_at: float = 0.0
    held: dict[int, _Held] = field(default_factory=dict)
    #: The last sequence that a heartbeat or a tail told, and when.
    told: int = 0
    told_at: float = 0.0


class MessageOrder:
    """All streams of one client. Never blocks; time is passed in and never goes back."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[bytes, int], _Stream] = OrderedDict()
        # Streams that wait for a message or a time, so that a tick looks at these only.
        self._waiting: dict[tuple[bytes, int], _Stream] = {}
        # Channels of which all publishers so far are known: a new one begins with its first message.
        self._steady: set[bytes] = set()
        self._held_messages = 0
        self._held_bytes = 0
        self._forgot_streams = False
        self.duplicates = 0

    def begin(self, channel: bytes, tails: dict[int, tuple[int, int]]) -> None:
        """A channel has been subscribed for ``TAIL_AGE_SECONDS``, and ``tails`` has every publisher's epoch and
        last sequence: from now on no loss goes unnoticed."""
        self._steady.add(channel)
        for publisher, (epoch, sequence) in tails.items():
            self._streams.setdefault((channel, publisher), _Stream(epoch, sequence))

    def end(self, channel: bytes) -> None:
        self._steady.discard(channel)
        for key in [key for key in self._streams if key[0] == channel]:
            stream = self._streams.pop(key)
            self._waiting.pop(key, None)
            for held in stream.held.values():
                self._release(held)

    def offer(
        self, channel: bytes, envelope: Envelope, now: float, *, may_reorder: bool
    ) -> list[Envelope | LostMessages]:
        """Takes one message or copy; returns the messages to deliver and the gaps, in order.

        ``may_reorder`` says that this channel's messages can arrive by several servers at the moment.
        """
        key = (channel, envelope.publisher)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._first_contact(key, envelope.epoch, envelope.previous, now, may_reorder=may_reorder)
        elif envelope.epoch != stream.epoch:
            if envelope.epoch < stream.epoch:
                self.duplicates += 1
                return []
            rest = self._finish(key, stream)
            self._streams[key] = _Stream(envelope.epoch, 0)
            return rest + self.offer(channel, envelope, now, may_reorder=may_reorder)
        last = stream.last
        if last is not None and envelope.previous == last and not stream.held:
            stream.last = envelope.sequence
            return [envelope]
        if (last is not None and envelope.sequence <= last) or envelope.sequence in stream.held:
            self.duplicates += 1
            return []
        stream.held[envelope.sequence] = _Held(envelope, now)
        self._held_messages += 1
        self._held_bytes += len(envelope.payload)
        out = self._deliver_ready(stream)
        while self._held_messages > MOST_HELD_MESSAGES or self._held_bytes > MOST_HELD_BYTES:
            out += self._skip_hole(key, stream)
        self._wait_if_needed(key, stream)
        return out

    def tell(self, channel: bytes, publisher: int, epoch: int, sequence: int, now: float) -> None:
        """A publisher has published up to ``sequence``: so says a heartbeat, or a tail."""
        key = (channel, publisher)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._first_contact(key, epoch, sequence, now, may_reorder=False)
        elif epoch > stream.epoch and not stream.held:
            stream = self._streams[key] = _Stream(epoch, 0)
        if epoch == stream.epoch and sequence > (stream.last or 0) and sequence > stream.told:
            stream.told, stream.told_at = sequence, now
            self._waiting[key] = stream

    def compare(self, channel: bytes, tails: dict[int, tuple[int, int]], now: float) -> None:
        """Takes every publisher's epoch and last sequence, as they were stored a while ago. Before a channel is
        steady, those of publishers that were not heard yet do not count: what they published next may be from before
        the subscription."""
        for publisher, (epoch, sequence) in tails.items():
            if channel in self._steady or (channel, publisher) in self._streams:
                self.tell(channel, publisher, epoch, sequence, now)

    def tick(self, now: float) -> list[tuple[bytes, Envelope | LostMessages]]:
        """Gives up on messages that are overdue. Call it every tenth of a second or so while ``waiting``."""
        out: list[tuple[bytes, Envelope | LostMessages]] = []
        for key, stream in list(self._waiting.items()):
            out += [(key[0], item) for item in self._expire(key, stream, now)]
            self._wait_if_needed(key, stream)
        return out

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def _first_contact(
        self, key: tuple[bytes, int], epoch: int, previous: int, now: float, *, may_reorder: bool
    ) -> _Stream:
        if previous == 0 or (key[0] in self._steady and not self._forgot_streams):
            stream = _Stream(epoch, 0)
        elif may_reorder:
            stream = _Stream(epoch, None, settled_at=now + SETTLE_SECONDS)
        else:
            stream = _Stream(epoch, previous)
        self._streams[key] = stream
        if len(self._streams) > MOST_STREAMS:
            self._forget_oldest()
        return stream

    def _forget_oldest(self) -> None:
        key = next(key for key in self._streams if key not in self._waiting)
        del self._streams[key]
        self._forgot_streams = True

    def _deliver_ready(self, stream: _Stream) -> list[Envelope | LostMessages]:
        out: list[Envelope | LostMessages] = []
        while stream.held and stream.last is not None:
            sequence = min(stream.held)
            held = stream.held[sequence]
            if held.envelope.previous > stream.last:
                break
            del stream.held[sequence]
            self._release(held)
            stream.last = sequence
            out.append(held.envelope)
        return out

    def _expire(self, key: tuple[bytes, int], stream: _Stream, now: float) -> list[Envelope | LostMessages]:
        out: list[Envelope | LostMessages] = []
        if stream.last is None and stream.held and now >= stream.settled_at:
            stream.last = stream.held[min(stream.held)].envelope.previous
            out += self._deliver_ready(stream)
        while stream.last is not None and stream.held:
            if now < stream.held[min(stream.held)].arrived + HOLD_SECONDS:
                break
            out += self._skip_hole(key, stream)
        overdue = now >= stream.told_at + HOLD_SECONDS
        if overdue and stream.last is not None and not stream.held and stream.told > stream.last:
            out.append(LostMessages(key[0], key[1], stream.epoch, stream.last + 1, stream.told))
            stream.last = stream.told
        return out

    def _skip_hole(self, key: tuple[bytes, int], stream: _Stream) -> list[Envelope | LostMessages]:
        first = stream.held[min(stream.held)].envelope
        out: list[Envelope | LostMessages] = []
        if stream.last is not None and first.previous > stream.last:
            out.append(LostMessages(key[0], key[1], stream.epoch, stream.last + 1, first.previous))
        stream.last = first.previous
        return out + self._deliver_ready(stream)

    def _finish(self, key: tuple[bytes, int], stream: _Stream) -> list[Envelope | LostMessages]:
        out: list[Envelope | LostMessages] = []
        while stream.held:
            out += self._skip_hole(key, stream)
        if stream.last is not None and stream.told > stream.last:
            out.append(LostMessages(key[0], key[1], stream.epoch, stream.last + 1, stream.told))
        self._waiting.pop(key, None)
        return out

    def _wait_if_needed(self, key: tuple[bytes, int], stream: _Stream) -> None:
        if stream.held or (stream.last is not None and stream.told > stream.last):
            self._waiting[key] = stream
        else:
            self._waiting.pop(key, None)

    def _release(self, held: _Held) -> None:
        self._held_messages -= 1
        self._held_bytes -= len(held.envelope.payload)
