"""Finds the load of publishers that do not use our client (Dynamoth, section III-A).

Our clients and dispatchers report every ``PUBLISH``, so what a server has carried out beyond the reports comes from
other programs. A report comes up to three seconds late, and later from a busy client: unreported publications
therefore count only where they exceed all that the busiest seconds can have left unreported. Then, and only then,
the analyser subscribes to a sample of the channels for a moment, as the paper's does to every channel for ever, and
counts what has no envelope.

    INFO, reports ---> look            unexplained for seconds?
                         |  yes
    PUBSUB CHANNELS ---> choose        512 channels at most, other ones each time
    SUBSCRIBE ---------> begin
    messages ----------> heard         for 3 s, 20,000 messages or 8 MiB
    PUBSUB NUMSUB -----> finish        rates; again after 30 s, or later where nothing was found
                         |
                       take_uses       once a second, like the report of a client
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from culver.channels.core.channel_load import ChannelTraffic, ChannelUse
from culver.channels.core.envelope import is_ours
from culver.channels.core.reserved_names import RESERVED_PREFIX

#: Channels of one sample, and the bounds of what the observer takes of them.
MOST_OBSERVED_CHANNELS = 512
MOST_OBSERVED_MESSAGES = 20_000
MOST_OBSERVED_BYTES = 8 << 20
OBSERVED_SECONDS = 3.0

#: A server with more channels than this is not asked for their names: the answer alone would be a burden.
MOST_NAMED_CHANNELS = 50_000

#: From the end of a sample to the next. The time doubles while samples of all channels find nothing.
REST_SECONDS = 30.0
_LONGEST_REST_SECONDS = 480.0

#: Looks that count, about a second apart, and how many there must be at least.
_LOOKS = 30
_FEWEST_LOOKS = 4

#: What our clients may have left unreported in their busiest seconds: a report is up to three late, and a publication
#: may wait five more in a client's queue. Where another program is seen to publish, a smaller excess counts.
_LAG_LOOKS = 8
_LAG_LOOKS_IF_SEEN = 3
_FLOOR_PUBLICATIONS = 50
_FLOOR_BYTES = 1 << 20

#: Looks by which the end of foreign traffic is noticed before the next sample.
_END_LOOKS = 5


@dataclass(frozen=True, slots=True)
class PublishCounts:
    """What a server has carried out and sent since its start, and how much of it was reported.

    ``stranger`` says that a connection which is not ours has published lately.
    """

    published: int
    reported: int
    outgoing_bytes: int
    reported_bytes: float
    stranger: bool = False


class _Excess:
    """What the last looks found beyond the reports. Late reports make the excess of a look negative."""

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._looks: deque[tuple[float, float]] = deque(maxlen=_LOOKS)

    def add(self, total: float, reported: float) -> None:
        self._looks.append((total, total - reported))

    def clear(self) -> None:
        self._looks.clear()

    def is_clear(self, lag_looks: int) -> bool:
        """Whether there is more than so many of the busiest looks can have left unreported."""
        if len(self._looks) < _FEWEST_LOOKS:
            return False
        busiest = max(total for total, _ in self._looks)
        return sum(excess for _, excess in self._looks) > lag_looks * busiest + self._floor

    def most_of_late(self) -> float:
        """What other programs can have published in the last looks, at most."""
        late = list(self._looks)[-_END_LOOKS:]
        return sum(excess for _, excess in late) + max((total for total, _ in late), default=0.0)


@dataclass(frozen=True, slots=True)
class _Rate:
    """Messages a second without an envelope, their size on average, and who gets them."""

    publications: float
    message_bytes: float
    receivers: int


class ForeignTraffic:
    """Decides when to observe which channels of one server, and for how long; keeps what was found.

    Never blocks; time is passed in and never goes back. ``look`` is called once a second, and ``choose`` only when
    ``wants_names`` says so. ``begin`` and ``finish`` enclose an observation, and ``heard`` is called in between.
    """

    def __init__(self) -> None:
        self._last: PublishCounts | None = None
        self._publications = _Excess(_FLOOR_PUBLICATIONS)
        self._bytes = _Excess(_FLOOR_BYTES)
        self._rest_until = 0.0
        self._rest_seconds = REST_SECONDS
        self._covers_all = False
        self._cursor = b""
        self._observed: dict[bytes, ChannelTraffic] = {}
        self._began_at: float | None = None
        self._ended_at = 0.0
        self._messages = 0
        self._message_bytes = 0
        self._rates: dict[bytes, _Rate] = {}
        self._rates_at = 0.0
        self._rates_until = 0.0
        self._taken_at = 0.0

    @property
    def observed(self) -> Container[bytes]:
        """The channels that are being observed."""
        return self._observed if self._began_at is not None else ()

    def look(self, counts: PublishCounts) -> None:
        """Compares the server's own counts with the reports. Counts that fell belong to a server that was started
        again."""
        last, self._last = self._last, counts
        if last is None or counts.published < last.published or counts.outgoing_bytes < last.outgoing_bytes:
            self._publications.clear()
            self._bytes.clear()
            return
        self._publications.add(counts.published - last.published, counts.reported - last.reported)
        self._bytes.add(
            counts.outgoing_bytes - last.outgoing_bytes, counts.reported_bytes - last.reported_bytes
        )

    def wants_names(self, now: float) -> bool:
        """Whether an observation should begin: load is unexplained, and the last observation is some time ago."""
        if self._last is None or self._began_at is not None or now < self._rest_until:
            return False
        if not self._last.stranger:
            return self._publications.is_clear(_LAG_LOOKS)
        return self._publications.is_clear(_LAG_LOOKS_IF_SEEN) or self._bytes.is_clear(_LAG_LOOKS_IF_SEEN)

    def choose(self, names: Iterable[bytes], reported: Container[bytes], now: float) -> list[bytes]:
        """The channels to observe: those that had foreign messages before, then others, which nobody reports first.
        Each call goes on behind the names that the last one has chosen. Without any, the observer rests."""
        listed = [name for name in names if not name.startswith(RESERVED_PREFIX)]
        known = [name for name in listed if name in self._rates][: MOST_OBSERVED_CHANNELS // 2]
        others = sorted(
            set(listed).difference(known), key=lambda name: (name in reported, name <= self._cursor, name)
        )
        others = others[: MOST_OBSERVED_CHANNELS - len(known)]
        self._covers_all = len(known) + len(others) >= len(listed)
        if others:
            self._cursor = others[-1]
        if not known and not others:
            self._rest(found=False, now=now)
        return known + others

    def begin(self, channels: Iterable[bytes], now: float) -> None:
        """The server sends what is published on these channels from now on."""
        self._observed = {channel: ChannelTraffic() for channel in channels}
        self._began_at = now
        self._ended_at = now + OBSERVED_SECONDS
        self._messages = self._message_bytes = 0

    def heard(self, channel: bytes, data: bytes, now: float) -> bool:
        """Counts a message, whoever published it. Returns False when the observer must stop at once."""
        if self._began_at is None or now >= self._ended_at:
            return False
        self._messages += 1
        self._message_bytes += len(data)
        traffic = self._observed.get(channel)
        if traffic is not None and not is_ours(data):
            traffic.add(1, len(data), 0)
        if self._messages >= MOST_OBSERVED_MESSAGES or self._message_bytes >= MOST_OBSERVED_BYTES:
            self._ended_at = now
            return False
        return True

    def is_over(self, now: float) -> bool:
        """Whether an observation has come to its end, and is to be finished."""
        return self._began_at is not None and now >= self._ended_at

    def abandon(self, now: float) -> None:
        """The observer's connection broke: what it has counted is worth nothing."""
        if self._began_at is not None:
            self._began_at = None
            self._rest(found=False, now=now)

    def found(self) -> list[bytes]:
        """The observed channels that had foreign messages."""
        return [channel for channel, traffic in self._observed.items() if traffic.publications]

    def finish(self, subscribers: Mapping[bytes, int], now: float) -> None:
        """Takes the answer of ``PUBSUB NUMSUB`` for the ``found`` channels, with the observer among the subscribers;
        one for which the server has no answer counts as a channel with one other subscriber."""
        assert self._began_at is not None, "no observation is under way"
        seconds = max(min(now, self._ended_at) - self._began_at, 1e-3)
        self._began_at = None
        kept = {name: rate for name, rate in self._rates.items() if name not in self._observed}
        self._rates = kept | {
            channel: _Rate(
                self._observed[channel].publications / seconds,
                self._observed[channel].payload_bytes / self._observed[channel].publications,
                max(subscribers.get(channel, 2) - 1, 0),
            )
            for channel in self.found()
        }
        self._rest(found=bool(self._rates), now=now)
        self._rates_at = self._taken_at = now
        self._rates_until = now + 2 * REST_SECONDS + OBSERVED_SECONDS

    def take_uses(self, now: float) -> list[ChannelUse]:
        """What other programs have published since the last call, as the last observation lets expect; nothing when
        the server's own counts leave no room for it."""
        since, self._taken_at = self._taken_at, now
        if not self._rates:
            return []
        expected = sum(rate.publications for rate in self._rates.values()) * _END_LOOKS
        if now >= self._rates_until or self._publications.most_of_late() < expected / 2:
            self._rates.clear()
            return []
        uses = []
        for channel, rate in self._rates.items():
            # Whole messages, so that slow channels are counted in some seconds and not in others.
            count = int(rate.publications * (now - self._rates_at))
            count -= int(rate.publications * (since - self._rates_at))
            if count:
                size = round(count * rate.message_bytes)
                uses.append(ChannelUse(channel, count, size, count * rate.receivers))
        return uses

    def _rest(self, *, found: bool, now: float) -> None:
        in_vain = self._covers_all and not found
        self._rest_seconds = min(2 * self._rest_seconds, _LONGEST_REST_SECONDS) if in_vain else REST_SECONDS
        self._rest_until = now + self._rest_seconds
