"""The load of channels and servers (Dynamoth, section III-A), measured without slowing Redis.

The paper's analyser subscribes to every channel, which costs Redis a copy of every message. Here publishers count
what they publish and what ``PUBLISH`` returns, and report it once a second to the server they published to. The
analyser beside that server adds these reports up, and asks the server itself for the rest: ``INFO``,
``PUBSUB NUMSUB`` for the busiest channels, and ``CLIENT LIST``. Publishers that report nothing are the matter of
``foreign_traffic``.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import msgspec

from culver.channels.core.envelope import HEADER_BYTES

#: A client names its busiest channels in a report, and adds up the rest.
MOST_REPORTED_CHANNELS = 256

#: The analyser keeps this many channels of each second apart.
_MOST_CHANNELS_OF_A_SECOND = 8192

#: A server's load names its busiest channels.
MOST_LISTED_CHANNELS = 1024

#: Redis wraps each message for a subscriber, ``>3 $7 message $n channel $m data``, and the data has an envelope.
_FRAME_BYTES = 36 + HEADER_BYTES


@dataclass(slots=True)
class ChannelTraffic:
    """What was published on a channel through one server: the raw figures of the load analyser."""

    publications: int = 0
    payload_bytes: int = 0
    receivers: int = 0
    #: Publications of programs that do not use our client, and so without an envelope.
    foreign: int = 0

    def add(self, publications: int, payload_bytes: int, receivers: int) -> None:
        self.publications += publications
        self.payload_bytes += payload_bytes
        self.receivers += receivers


class ChannelUse(msgspec.Struct, frozen=True, array_like=True):
    """What one client published on a channel: messages, payload bytes, and the sum of what ``PUBLISH`` returned."""

    channel: bytes
    publications: int
    payload_bytes: int
    receivers: int


class ClientLoadReport(msgspec.Struct, frozen=True, array_like=True):
    """What one client published to one server since its last report: the busiest channels, and the rest in sum.

    ``besides`` counts the other ``PUBLISH`` commands: heartbeats, and what a dispatcher sends. They make no channel's
    load, and are told so that nobody takes them for those of another program.
    """

    client: int
    channels: tuple[ChannelUse, ...]
    rest: ChannelUse = ChannelUse(b"", 0, 0, 0)
    besides: int = 0


class ServerFigures(msgspec.Struct, frozen=True):
    """What a server tells of itself at one moment. Bytes and CPU seconds count from the server's start.

    ``waiting_clients`` are those whose output buffer is not empty; ``probe_seconds`` is how long a ``PING`` took.
    """

    outgoing_bytes: int
    incoming_bytes: int
    cpu_seconds: float
    clients: int
    output_buffer_bytes: int = 0
    waiting_clients: int = 0
    probe_seconds: float = 0.0


class ChannelLoad(msgspec.Struct, frozen=True, array_like=True):
    """One channel on one server: rates are per second; publishers are those of the busiest second.

    ``foreign`` is the part of the publications that comes from programs without our client: they know one server, and
    go on publishing there wherever the channel is moved.
    """

    channel: bytes
    publications: float
    publishers: int
    subscribers: int
    bytes_in: float
    bytes_out: float
    sent: float
    foreign: float = 0.0


class ServerLoad(msgspec.Struct, frozen=True):
    """One server over the last seconds: rates are per second, ``cpu`` is the used part of one core.

    ``buffer_growth`` is by how many bytes the output buffers grew in a second; negative where they shrank.
    ``probe_seconds`` is a median: one slow probe says nothing.
    """

    server: int
    seconds: float
    channels: tuple[ChannelLoad, ...] = ()
    outgoing_bytes: float = 0.0
    incoming_bytes: float = 0.0
    cpu: float = 0.0
    clients: int = 0
    output_buffer_bytes: int = 0
    buffer_growth: float = 0.0
    waiting_clients: int = 0
    probe_seconds: float = 0.0


def report_of(client: int, traffic: Mapping[bytes, ChannelTraffic], besides: int = 0) -> ClientLoadReport:
    """The report of what a client published through one server."""
    busiest = heapq.nlargest(MOST_REPORTED_CHANNELS, traffic, key=lambda name: (_weight(traffic[name]), name))
    uses = tuple(_use(name, traffic[name]) for name in busiest)
    rest, named = ChannelTraffic(), set(busiest)
    for channel, count in traffic.items():
        if channel not in named:
            rest.add(count.publications, count.payload_bytes, count.receivers)
    return ClientLoadReport(client, uses, _use(b"", rest), besides)


def _use(channel: bytes, count: ChannelTraffic) -> ChannelUse:
    return ChannelUse(channel, count.publications, count.payload_bytes, count.receivers)


def _weight(count: ChannelTraffic) -> float:
    """Orders channels by their outgoing bytes."""
    return _message_bytes(b"", count) * count.receivers


def _message_bytes(channel: bytes, count: ChannelTraffic) -> float:
    """The bytes of a message for one subscriber, on average."""
    data = (count.payload_bytes - HEADER_BYTES * count.foreign) / max(count.publications, 1)
    return data + len(channel) + _FRAME_BYTES


@dataclass(slots=True)
class _Second:
    number: int
    channels: dict[bytes, ChannelTraffic] = field(default_factory=dict)
    publishers: Counter[bytes] = field(default_factory=Counter)


class LoadWindow:
    """Adds up the reports about one server over the last ``seconds``. Memory is bounded, whatever clients report.

    Time never goes back. The second that has not ended is not counted yet.
    """

    def __init__(self, server: int, now: float, seconds: int = 5) -> None:
        self._server = server
        self._length = seconds
        self._began = int(now)
        self._seconds: deque[_Second] = deque()
        self._figures: deque[tuple[float, ServerFigures]] = deque()
        self._subscribers: dict[bytes, int] = {}
        #: All publications that were reported, and the bytes that they made the server send.
        self.reported = 0
        self.reported_bytes = 0.0

    def add_report(self, report: ClientLoadReport, now: float) -> None:
        second = self._second(now)
        self.reported += max(report.besides, 0)
        for use in (report.rest, *report.channels[:MOST_REPORTED_CHANNELS]):
            # A report is another program's word: figures that cannot be are left out.
            if min(use.publications, use.payload_bytes, use.receivers) < 0:
                continue
            self.reported += use.publications
            count = ChannelTraffic(use.publications, use.payload_bytes, use.receivers)
            self.reported_bytes += _message_bytes(use.channel, count) * use.receivers
            if use is not report.rest:
                self._add_use(second, use)

    def add_observed(self, uses: Iterable[ChannelUse], now: float) -> None:
        """Takes what programs without our client publish, as ``foreign_traffic`` has found it."""
        second = self._second(now)
        for use in uses:
            count = self._add_use(second, use)
            if count is not None:
                count.foreign += use.publications

    @staticmethod
    def _add_use(second: _Second, use: ChannelUse) -> ChannelTraffic | None:
        """Returns what is known of the channel in this second, or None where too many are known already."""
        count = second.channels.get(use.channel)
        if count is None:
            if len(second.channels) >= _MOST_CHANNELS_OF_A_SECOND:
                return None
            count = second.channels[use.channel] = ChannelTraffic()
        count.add(use.publications, use.payload_bytes, use.receivers)
        second.publishers[use.channel] += 1
        return count

    def add_figures(self, figures: ServerFigures, now: float) -> None:
        """Takes the server's own figures. Counters that fell belong to a server that was started again."""
        if self._figures:
            last = self._figures[-1][1]
            if figures.outgoing_bytes < last.outgoing_bytes or figures.cpu_seconds < last.cpu_seconds:
                self._figures.clear()
        self._figures.append((now, figures))
        # The first one may be older than the window, so that two are left even if they come seldom.
        while len(self._figures) > 2 and self._figures[1][0] <= now - self._length:
            self._figures.popleft()

    def add_subscribers(self, counts: dict[bytes, int]) -> None:
        """Takes the answer of ``PUBSUB NUMSUB`` for the channels that ``busiest`` named."""
        self._subscribers = dict(counts)

    def busiest(self, now: float, most: int = MOST_LISTED_CHANNELS) -> list[bytes]:
        """The channels with the most outgoing bytes, the busiest first."""
        counts = self._sums(now)
        return heapq.nlargest(most, counts, key=lambda name: (_weight(counts[name]), name))

    def load(self, now: float) -> ServerLoad:
        counts = self._sums(now)
        seconds = float(max(1, min(self._length, int(now) - self._began)))
        busiest = heapq.nlargest(MOST_LISTED_CHANNELS, counts, key=lambda name: (_weight(counts[name]), name))
        channels = tuple(self._channel_load(name, counts[name], seconds) for name in busiest)
        if len(self._figures) < 2:
            return ServerLoad(self._server, seconds, channels)
        (first_time, first), (last_time, last) = self._figures[0], self._figures[-1]
        passed = max(last_time - first_time, 1e-3)
        return ServerLoad(
            self._server,
            seconds,
            channels,
            outgoing_bytes=(last.outgoing_bytes - first.outgoing_bytes) / passed,
            incoming_bytes=(last.incoming_bytes - first.incoming_bytes) / passed,
            cpu=(last.cpu_seconds - first.cpu_seconds) / passed,
            clients=last.clients,
            output_buffer_bytes=last.output_buffer_bytes,
            buffer_growth=(last.output_buffer_bytes - first.output_buffer_bytes) / passed,
            waiting_clients=last.waiting_clients,
            probe_seconds=median(figures.probe_seconds for _, figures in self._figures),
        )

    def _channel_load(self, channel: bytes, count: ChannelTraffic, seconds: float) -> ChannelLoad:
        publications = max(count.publications, 1)
        # Without an answer of the server, the average of what PUBLISH returned is the number of subscribers.
        subscribers = self._subscribers.get(channel, round(count.receivers / publications))
        return ChannelLoad(
            channel,
            publications=count.publications / seconds,
            publishers=max(second.publishers[channel] for second in self._seconds),
            subscribers=subscribers,
            bytes_in=count.payload_bytes / seconds,
            bytes_out=_message_bytes(channel, count) * count.receivers / seconds,
            sent=count.receivers / seconds,
            foreign=count.foreign / seconds,
        )

    def _second(self, now: float) -> _Second:
        number = int(now)
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
        while self._seconds[0].number < number - self._length:
            self._seconds.popleft()
        return self._seconds[-1]

    def _sums(self, now: float) -> dict[bytes, ChannelTraffic]:
        sums: dict[bytes, ChannelTraffic] = {}
        current = int(now)
        for second in self._seconds:
            if not current - self._length <= second.number < current:
                continue
            for channel, count in second.channels.items():
                total = sums.setdefault(channel, ChannelTraffic())
                total.add(count.publications, count.payload_bytes, count.receivers)
                total.foreign += count.foreign
        return sums
