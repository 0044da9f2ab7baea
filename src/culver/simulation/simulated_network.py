"""A network of named nodes that is as unkind as a real one, and always in the same way for the same seed.

Nodes speak over connections that behave as TCP does:

- Messages of one direction arrive once, in order, after the link's latency. A lost packet is sent again, which delays
  everything behind it. A slow link makes messages queue up.
- A partition holds back what crosses it. When it ends, everything arrives, unless an end has given up before.
- A reset lets an unforeseeable part of what is under way arrive, and tells each end after a while.
- A connection that becomes half open swallows everything. An end learns of it after a time-out, if it has not
  closed the connection itself by then.

Messages are any objects: the network passes them on by reference and never looks into them. Senders must not change
them afterwards.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from culver.simulation.virtual_clock import VirtualClock, VirtualTimer


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """One direction between two nodes. The latency is at least ``latency_seconds``, and on average
    ``jitter_seconds`` more; the extra part is exponentially distributed."""

    latency_seconds: float = 0.0005
    jitter_seconds: float = 0.0005
    #: None means that a message of any size leaves at once.
    bytes_per_second: float | None = None
    #: The share of packets that get lost and are sent again after ``retransmission_seconds``.
    loss: float = 0.0
    retransmission_seconds: float = 0.2


@dataclass(slots=True)
class LinkTraffic:
    """What has been sent in one direction between two nodes, over all their connections."""

    messages: int = 0
    bytes: int = 0
    retransmissions: int = 0
    #: When a slow link has sent what it was given so far.
    busy_until: float = 0.0


class ConnectionListener(Protocol):
    """Whoever owns one end of a connection."""

    def opened(self, end: "ConnectionEnd") -> None:
        """The connection stands. An accepting end hears this before anything else."""

    def received(self, end: "ConnectionEnd", message: object) -> None:
        """A message has arrived."""

    def closed(self, end: "ConnectionEnd") -> None:
        """The connection is over, or could not be opened. Nothing follows. Not called after the own ``close``."""


class _Direction:
    """Messages under way from one end to the other. Only the first has a timer, which keeps them in order."""

    __slots__ = ("last_arrival", "queue", "timer", "unsent_bytes")

    def __init__(self) -> None:
        self.queue: deque[tuple[float, object, int]] = deque()
        self.timer: VirtualTimer | None = None
        self.last_arrival = 0.0
        self.unsent_bytes = 0


#: Takes the place of a message: the sender has closed the connection in good order.
_END = object()


class ConnectionEnd:
    """One end of a connection. Made by ``SimulatedNetwork``."""

    def __init__(
        self, network: "SimulatedNetwork", node: str, peer_node: str, listener: ConnectionListener
    ) -> None:
        self._network = network
        self.node = node
        self.peer_node = peer_node
        self.listener = listener
        self.peer: ConnectionEnd | None = None
        self.is_open = False
        self._over = False
        self._swallows = False
        self._paused = False
        # What travels towards this end.
        self._incoming = _Direction()
        self._farewell: VirtualTimer | None = None

    @property
    def unsent_bytes(self) -> int:
        """Bytes that this end has sent and the other has not received yet."""
        return self.peer._incoming.unsent_bytes if self.peer is not None else 0

    def send(self, message: object, size_bytes: int = 64) -> None:
        """Sends a message. It vanishes if the connection is broken; the sender is told that separately, or never.

        :raises RuntimeError: this end was never open, or is over.
        """
        if not self.is_open:
            raise RuntimeError(f"{self.node} sends to {self.peer_node} on a connection that is not open")
        self._network._send(self, message, size_bytes)

    def close(self) -> None:
        """Closes in good order: the peer gets what was sent, and is told then. This end hears nothing more."""
        if not self._over and not self._swallows:
            self._network._send(self, _END, 0)
        self._network._finish(self)

    def pause(self) -> None:
        """Stops reading: what arrives queues up, and counts as unsent at the peer."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._network._schedule(self)


class Partition:
    """A cut between two sets of nodes. It lasts until ``end``."""

    def __init__(self, network: "SimulatedNetwork", pairs: frozenset[tuple[str, str]]) -> None:
        self._network = network
        self._pairs = pairs
        self.has_ended = False

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._network._mend(self._pairs)


class SimulatedNetwork:
    """All nodes and the connections between them, on the given clock and by the given random numbers.

    ``connect_timeout_seconds`` is how long an attempt to connect to a silent node lasts, ``silence_timeout_seconds``
    how long an end takes to notice that its connection is half open.
    """

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        quality: LinkQuality = LinkQuality(),  # noqa: B008  (frozen)
        *,
        connect_timeout_seconds: float = 3.0,
        silence_timeout_seconds: float = 15.0,
    ) -> None:
        self._clock = clock
        self._random = random
        self._quality = quality
        self._connect_timeout_seconds = connect_timeout_seconds
        self._silence_timeout_seconds = silence_timeout_seconds
        self._qualities: dict[tuple[str, str], LinkQuality] = {}
        self._acceptors: dict[str, Callable[[str], ConnectionListener]] = {}
        # A dict serves as an ordered set: the order of iteration must not depend on addresses of objects.
        self._ends: dict[str, dict[ConnectionEnd, None]] = {}
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._absent: set[str] = set()
        self.traffic: dict[tuple[str, str], LinkTraffic] = {}

    def set_quality(self, source: str, target: str, quality: LinkQuality | None) -> None:
        """Changes one direction between two nodes for messages that are sent from now on; None restores it."""
        if quality is None:
            self._qualities.pop((source, target), None)
        else:
            self._qualities[source, target] = quality

    def listen(self, node: str, accept: Callable[[str], ConnectionListener]) -> None:
        """Lets a node accept connections. ``accept`` gets the name of the node that connects."""
        self._absent.discard(node)
        self._acceptors[node] = accept

    def stop_listening(self, node: str) -> None:
        """Refuses connections to a node from now on. Those that stand are not touched."""
        self._acceptors.pop(node, None)

    def connect(self, source: str, target: str, listener: ConnectionListener) -> ConnectionEnd:
        """Begins to connect. The listener hears ``opened`` or ``closed`` later, unless it closes the end before."""
        self._absent.discard(source)
        end = ConnectionEnd(self, source, target, listener)
        self._ends.setdefault(source, {})[end] = None
        if self._is_cut(source, target) or target in self._absent:
            self._farewell(end, self._connect_timeout_seconds)
        else:
            self._clock.after(self._latency(source, target), lambda: self._arrive_at_acceptor(end))
        return end

    def connections(self, node: str) -> list[ConnectionEnd]:
        """The open ends of a node, the oldest first."""
        return [end for end in self._ends.get(node, ()) if end.is_open]

    def reset(self, end: ConnectionEnd) -> None:
        """Breaks a connection. Part of what is under way may still arrive before both ends are told."""
        for side in (end, end.peer):
            if side is not None:
                self._cut_short(side)

    def make_half_open(self, end: ConnectionEnd) -> None:
        """Breaks a connection so that neither end notices: each is told after the time-out only."""
        for side in (end, end.peer):
            if side is not None and not side._over:
                self._silence(side)

    def crash(self, node: str, *, silently: bool = False) -> None:
        """Ends a node's process: it stops listening and its connections break.

        Its peers are told as by ``reset``; if ``silently`` (the machine is gone), only after the time-out. The node
        itself hears nothing.
        """
        self.stop_listening(node)
        if silently:
            self._absent.add(node)
        for end in list(self._ends.get(node, ())):
            peer = end.peer
            self._finish(end)
            if peer is None:
                continue
            if silently:
                self._silence(peer)
            else:
                self._cut_short(peer)

    def partition(self, these: Iterable[str], those: Iterable[str], *, one_way: bool = False) -> Partition:
        """Cuts every node of one set off from every node of the other. Partitions may overlap.

        With ``one_way``, only what the first set sends to the second is held back.
        """
        these, those = sorted(these), sorted(those)
        pairs = {(source, target) for source in these for target in those}
        if not one_way:
            pairs |= {(target, source) for source, target in pairs}
        self._cuts.update(pairs)
        return Partition(self, frozenset(pairs))

    def _mend(self, pairs: frozenset[tuple[str, str]]) -> None:
        self._cuts.subtract(pairs)
        for source, target in sorted(pairs):
            if not self._is_cut(source, target):
                for end in self._ends.get(target, ()):
                    if end.peer_node == source:
                        self._schedule(end, delay_seconds=self._latency(source, target))

    def _is_cut(self, source: str, target: str) -> bool:
        return self._cuts[source, target] > 0

    def _latency(self, source: str, target: str) -> float:
        quality = self._qualities.get((source, target), self._quality)
        latency = quality.latency_seconds
        if quality.jitter_seconds:
            latency += self._random.expovariate(1 / quality.jitter_seconds)
        while quality.loss and self._random.random() < quality.loss:
            latency += quality.retransmission_seconds
            self._traffic_of(source, target).retransmissions += 1
        return latency

    def _traffic_of(self, source: str, target: str) -> LinkTraffic:
        traffic = self.traffic.get((source, target))
        if traffic is None:
            traffic = self.traffic[source, target] = LinkTraffic()
        return traffic

    def _arrive_at_acceptor(self, end: ConnectionEnd) -> None:
        if end._over:
            return
        accept = self._acceptors.get(end.peer_node)
        back = self._latency(end.peer_node, end.node)
        if end.peer_node in self._absent or self._is_cut(end.peer_node, end.node):
            self._farewell(end, self._connect_timeout_seconds)
            return
        if accept is None:
            self._farewell(end, back)
            return
        peer = ConnectionEnd(self, end.peer_node, end.node, accept(end.node))
        peer.peer, end.peer = end, peer
        peer.is_open = True
        self._ends.setdefault(peer.node, {})[peer] = None
        # The acceptor may greet at once: its greeting must not overtake the news that the connection stands.
        end._incoming.last_arrival = self._clock.now + back
        self._clock.after(back, lambda: self._open(end))
        peer.listener.opened(peer)

    def _open(self, end: ConnectionEnd) -> None:
        if not end._over:
            end.is_open = True
            end.listener.opened(end)
            self._schedule(end)

    def _send(self, end: ConnectionEnd, message: object, size_bytes: int) -> None:
        traffic = self._traffic_of(end.node, end.peer_node)
        traffic.messages += 1
        traffic.bytes += size_bytes
        peer = end.peer
        if peer is None or peer._over or end._swallows:
            return
        quality = self._qualities.get((end.node, end.peer_node), self._quality)
        direction = peer._incoming
        sent_at = self._clock.now
        if quality.bytes_per_second is not None:
            sent_at = max(sent_at, traffic.busy_until) + size_bytes / quality.bytes_per_second
            traffic.busy_until = sent_at
        arrival = max(sent_at + self._latency(end.node, end.peer_node), direction.last_arrival)
        direction.last_arrival = arrival
        direction.unsent_bytes += size_bytes
        direction.queue.append((arrival, message, size_bytes))
        self._schedule(peer)

    def _schedule(self, end: ConnectionEnd, delay_seconds: float = 0.0) -> None:
        """Sets the timer of the first message, unless there is one or something holds the message back."""
        direction = end._incoming
        if direction.timer is None and direction.queue and not end._over and not end._paused:
            time = max(direction.queue[0][0], self._clock.now + delay_seconds)
            direction.timer = self._clock.at(time, lambda: self._deliver(end))

    def _deliver(self, end: ConnectionEnd) -> None:
        direction = end._incoming
        direction.timer = None
        if end._over or end._paused or not end.is_open or self._is_cut(end.peer_node, end.node):
            return
        _, message, size_bytes = direction.queue.popleft()
        direction.unsent_bytes -= size_bytes
        if message is _END:
            self._say_farewell(end)
            return
        self._schedule(end)
        end.listener.received(end, message)

    def _cut_short(self, end: ConnectionEnd) -> None:
        """Lets a random part of what travels to this end arrive, and ends it then."""
        if end._over:
            return
        direction = end._incoming
        for _ in range(self._random.randint(0, len(direction.queue))):
            direction.unsent_bytes -= direction.queue.pop()[2]
        end._swallows = True
        last = direction.queue[-1][0] if direction.queue else self._clock.now
        end_of_connection = max(last, self._clock.now + self._latency(end.peer_node, end.node))
        direction.queue.append((end_of_connection, _END, 0))
        if direction.timer is not None:
            direction.timer.cancel()
            direction.timer = None
        self._schedule(end)
        # A partition must not hide the end of the connection for ever.
        self._farewell(end, self._silence_timeout_seconds)

    def _silence(self, end: ConnectionEnd) -> None:
        end._swallows = True
        direction = end._incoming
        direction.queue.clear()
        direction.unsent_bytes = 0
        if direction.timer is not None:
            direction.timer.cancel()
            direction.timer = None
        self._farewell(end, self._silence_timeout_seconds)

    def _farewell(self, end: ConnectionEnd, delay_seconds: float) -> None:
        if end._farewell is None and not end._over:
            end._farewell = self._clock.after(delay_seconds, lambda: self._say_farewell(end))

    def _say_farewell(self, end: ConnectionEnd) -> None:
        if not end._over:
            self._finish(end)
            end.listener.closed(end)

    def _finish(self, end: ConnectionEnd) -> None:
        """Ends one end without a word. What it has sent stays under way."""
        end._over = True
        end.is_open = False
        direction = end._incoming
        direction.queue.clear()
        direction.unsent_bytes = 0
        for timer in (direction.timer, end._farewell):
            if timer is not None:
                timer.cancel()
        self._ends.get(end.node, {}).pop(end, None)
