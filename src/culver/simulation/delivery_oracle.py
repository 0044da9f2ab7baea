"""Knows what was promised to whom, and finds every broken promise of the channels.

Each publication that was accepted reaches each steady subscriber once, or lies in a gap that this subscriber was told
of; the messages of one publisher arrive in order. Subscribers and publishers tell the oracle what they do and see.
Every payload of a channel must be unique: the oracle tells publications apart by it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from culver.channels.core.message_order import LostMessages
from culver.simulation.redis.glob_pattern import matches_glob


@dataclass(slots=True)
class _Publication:
    channel: bytes
    payload: bytes
    publisher: int
    begun_at: float
    #: Epoch and sequence, known when it is first sent.
    number: tuple[int, int] | None = None
    accepted_at: float | None = None

    def describe(self) -> str:
        return f"{self.payload!r} of publisher {self.publisher:x} on {self.channel!r} (number {self.number})"


@dataclass(slots=True)
class _Subscription:
    subscriber: str
    name: bytes
    is_pattern: bool
    steady_at: float | None = None
    leaving_at: float | None = None
    confirmed_at: list[float] = field(default_factory=list)
    delivered: dict[tuple[bytes, bytes], float] = field(default_factory=dict)
    #: The last number of each publisher on each channel.
    last: dict[tuple[bytes, int], tuple[int, int]] = field(default_factory=dict)
    gaps: dict[tuple[bytes, int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def covers(self, channel: bytes) -> bool:
        return matches_glob(self.name, channel) if self.is_pattern else self.name == channel

    def was_told_lost(self, publication: _Publication) -> bool:
        if publication.number is None:
            return False
        epoch, sequence = publication.number
        gaps = self.gaps.get((publication.channel, publication.publisher, epoch), ())
        return any(first <= sequence <= last for first, last in gaps)

    def describe(self) -> str:
        return f"{self.subscriber} ({'pattern' if self.is_pattern else 'channel'} {self.name!r})"


class DeliveryOracle:
    """Collects what happens; ``violations`` has what is wrong already, and ``check`` adds what is overdue.

    A message counts as due ``grace_seconds`` after its publication was accepted: by then it must have arrived or have
    been reported as lost. A subscription that ends earlier is not owed the message.

    A publisher that dies cannot tell what it published last, and nobody else knows it. A silent loss of what was
    accepted within ``last_words_seconds`` before its publisher's death is counted in ``unreported_last_words``, and
    is no violation. Time during which the publisher was mute does not count. The same holds for a subscriber that was
    cut off, and came back after the publisher and then the channel's home had died, which stored the publisher's last
    number.
    """

    def __init__(self, grace_seconds: float = 5.0, last_words_seconds: float = 0.0) -> None:
        self._grace_seconds = grace_seconds
        self._last_words_seconds = last_words_seconds
        self._deaths: dict[int, float] = {}
        self._homes_lost_at: dict[bytes, list[float]] = defaultdict(list)
        self._muted: list[tuple[float, float, Callable[[int, bytes], bool]]] = []
        self.unreported_last_words = 0
        self._publications: dict[bytes, dict[bytes, _Publication]] = defaultdict(dict)
        self._begun: dict[tuple[bytes, int], int] = defaultdict(int)
        self._highest: dict[tuple[bytes, int], int] = defaultdict(int)
        self._subscriptions: dict[tuple[str, bytes, bool], _Subscription] = {}
        self._ended: list[_Subscription] = []
        self.violations: list[str] = []
        self.deliveries = 0
        #: Messages in the gaps that were reported, counted for each subscription.
        self.reported_losses = 0
        self.slowest_delivery_seconds = 0.0

    # What publishers do

    def begins(self, channel: bytes, payload: bytes, publisher: int, now: float) -> None:
        """A publisher begins a publication.

        :raises ValueError: the channel has had this payload before.
        """
        publications = self._publications[channel]
        if payload in publications:
            raise ValueError(f"{payload!r} is published twice on {channel!r}")
        publications[payload] = _Publication(channel, payload, publisher, now)
        self._begun[channel, publisher] += 1

    def numbers(self, channel: bytes, payload: bytes, epoch: int, sequence: int) -> None:
        """A publication is sent under this number. It may be sent again under the same one only."""
        publication = self._publications[channel][payload]
        if publication.number not in (None, (epoch, sequence)):
            self._violate(f"{publication.describe()} is sent again under the number {(epoch, sequence)}")
        publication.number = (epoch, sequence)
        key = (channel, publication.publisher)
        self._highest[key] = max(self._highest[key], sequence)

    def accepts(self, channel: bytes, payload: bytes, now: float) -> None:
        """The publisher was told that its publication has succeeded."""
        self._publications[channel][payload].accepted_at = now

    def dies(self, publisher: int, now: float) -> None:
        """A publisher was killed."""
        self._deaths[publisher] = now

    def loses_homes(self, is_home: Callable[[bytes], bool], now: float) -> None:
        """A server was killed, and with it all that publishers have stored there for the channels it is home of."""
        for channel in filter(is_home, self._publications):
            self._homes_lost_at[channel].append(now)

    def mutes(self, is_muted: Callable[[int, bytes], bool], begin: float, end: float) -> None:
        """Some publishers cannot tell the numbers of some channels for a while: given a publisher and a channel, the
        function says whether."""
        self._muted.append((begin, end, is_muted))

    # What subscribers do and see

    def joins(self, subscriber: str, name: bytes, *, is_pattern: bool = False) -> None:
        """A subscriber asks for a channel or a pattern: from now on messages may come."""
        key = (subscriber, name, is_pattern)
        if key not in self._subscriptions:
            self._subscriptions[key] = _Subscription(subscriber, name, is_pattern)

    def confirms(self, subscriber: str, name: bytes, now: float, *, is_pattern: bool = False) -> None:
        """The servers serve a subscription, or serve it again after it was cut off."""
        subscription = self._subscriptions.get((subscriber, name, is_pattern))
        if subscription is not None:
            subscription.confirmed_at.append(now)

    def is_steady(self, subscriber: str, name: bytes, now: float, *, is_pattern: bool = False) -> None:
        """Whatever is published from now on is promised to the subscriber."""
        subscription = self._subscriptions.get((subscriber, name, is_pattern))
        if subscription is not None and subscription.steady_at is None:
            subscription.steady_at = now

    def leaves(self, subscriber: str, name: bytes, now: float, *, is_pattern: bool = False) -> None:
        """A subscriber asks to end a subscription: nothing more is promised, and messages may still come."""
        subscription = self._subscriptions.get((subscriber, name, is_pattern))
        if subscription is not None and subscription.leaving_at is None:
            subscription.leaving_at = now

    def has_left(self, subscriber: str, name: bytes, now: float, *, is_pattern: bool = False) -> None:
        """The subscription is over: no message may come any more."""
        subscription = self._subscriptions.pop((subscriber, name, is_pattern), None)
        if subscription is not None:
            subscription.leaving_at = now if subscription.leaving_at is None else subscription.leaving_at
            self._ended.append(subscription)

    def vanishes(self, subscriber: str, now: float) -> None:
        """A subscriber was killed. Its next life is another subscriber to the oracle."""
        for name, is_pattern in [key[1:] for key in self._subscriptions if key[0] == subscriber]:
            self.has_left(subscriber, name, now, is_pattern=is_pattern)

    def delivers(
        self, subscriber: str, channel: bytes, payload: bytes, now: float, pattern: bytes | None = None
    ) -> None:
        """The application gets a message."""
        self.deliveries += 1
        name, is_pattern = (channel, False) if pattern is None else (pattern, True)
        subscription = self._subscriptions.get((subscriber, name, is_pattern))
        if subscription is None:
            self._violate(f"{subscriber} gets {payload!r} on {channel!r} without a subscription")
            return
        publication = self._publications[channel].get(payload)
        if publication is None or publication.number is None or not subscription.covers(channel):
            self._violate(
                f"{subscription.describe()} gets {payload!r} on {channel!r}, which nobody sent there"
            )
            return
        text = f"{subscription.describe()} gets {publication.describe()}"
        if (channel, payload) in subscription.delivered:
            self._violate(f"{text} a second time")
            return
        subscription.delivered[channel, payload] = now
        self.slowest_delivery_seconds = max(self.slowest_delivery_seconds, now - publication.begun_at)
        last = subscription.last.get((channel, publication.publisher), (0, 0))
        if publication.number < last:
            self._violate(f"{text} after {last}")
        subscription.last[channel, publication.publisher] = max(last, publication.number)
        # With two subscriptions to a channel, nobody knows which of them a report was about.
        if subscription.was_told_lost(publication) and len(self._covering(subscriber, channel)) == 1:
            self._violate(f"{text} after it was reported as lost")

    def reports(self, subscriber: str, gap: LostMessages) -> None:
        """The application is told of a gap. It counts for all subscriptions that cover the channel."""
        covering = self._covering(subscriber, gap.channel)
        source = (gap.channel, gap.publisher)
        text = f"{subscriber} is told that {gap.first} to {gap.last} of {gap.publisher:x} on {gap.channel!r} are lost"
        if not covering:
            self._violate(f"{text} without a subscription")
        if not 0 < gap.first <= gap.last <= max(self._begun[source], self._highest[source]):
            self._violate(f"{text}, which nobody published")
        needless = [
            publication
            for publication in self._publications[gap.channel].values()
            if publication.publisher == gap.publisher
            and publication.number is not None
            and publication.number[0] == gap.epoch
            and gap.first <= publication.number[1] <= gap.last
            and covering
            and all((gap.channel, publication.payload) in each.delivered for each in covering)
        ]
        for publication in needless:
            self._violate(f"{text}, although {publication.describe()} was delivered")
        for subscription in covering:
            self.reported_losses += gap.last - gap.first + 1
            subscription.gaps.setdefault((*source, gap.epoch), []).append((gap.first, gap.last))

    def check(self, now: float) -> list[str]:
        """All violations so far, with what is overdue now. Call it at the end, or now and then."""
        for subscription in [*self._ended, *self._subscriptions.values()]:
            for publication in self._due(subscription, now):
                if self._is_last_word(publication) or self._was_forgotten(publication, subscription):
                    self.unreported_last_words += 1
                else:
                    text = f"{subscription.describe()} never got {publication.describe()}, and was not told"
                    self._violate(text)
                # Once is enough.
                subscription.delivered[publication.channel, publication.payload] = now
        return self.violations

    def _covering(self, subscriber: str, channel: bytes) -> list[_Subscription]:
        return [
            subscription
            for key, subscription in self._subscriptions.items()
            if key[0] == subscriber and subscription.covers(channel)
        ]

    def _due(self, subscription: _Subscription, now: float) -> Iterator[_Publication]:
        if subscription.steady_at is None:
            return
        end = now if subscription.leaving_at is None else min(now, subscription.leaving_at)
        for channel, publications in list(self._publications.items()):
            if not subscription.covers(channel):
                continue
            for publication in publications.values():
                if (
                    publication.begun_at >= subscription.steady_at
                    and publication.accepted_at is not None
                    and publication.accepted_at + self._grace_seconds <= end
                    and (channel, publication.payload) not in subscription.delivered
                    and not subscription.was_told_lost(publication)
                ):
                    yield publication

    def _is_last_word(self, publication: _Publication) -> bool:
        death, at = self._deaths.get(publication.publisher), publication.accepted_at
        if death is None or at is None:
            return False
        spoken = 0.0
        for begin, end, is_muted in sorted(self._muted, key=lambda muted: muted[0]):
            if end > at and begin < death and is_muted(publication.publisher, publication.channel):
                spoken += max(0.0, begin - at)
                at = end
        return spoken + max(0.0, death - at) <= self._last_words_seconds

    def _was_forgotten(self, publication: _Publication, subscription: _Subscription) -> bool:
        """Whether the publisher and then the channel's home have died before the subscriber was back."""
        death, accepted = self._deaths.get(publication.publisher), publication.accepted_at
        if death is None or accepted is None:
            return False
        back_at = next((at for at in subscription.confirmed_at if at > accepted), None)
        return back_at is not None and any(
            death - self._last_words_seconds <= lost_at <= back_at
            for lost_at in self._homes_lost_at[publication.channel]
        )

    def _violate(self, text: str) -> None:
        self.violations.append(text)
