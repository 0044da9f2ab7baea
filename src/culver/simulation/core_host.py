"""Carries out the instructions of a core in the simulation, as ``culver.channels.core_runner`` does with sockets."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from culver.channels.core.instructions import Connect, Core, Disconnect, Instruction, Reply, Send, ServerLink
from culver.simulation.redis.simulated_redis import RedisPush, encoded_bytes
from culver.simulation.simulated_network import ConnectionEnd, SimulatedNetwork
from culver.simulation.virtual_clock import VirtualClock, VirtualTimer

#: These commands are answered by one push for each name.
_SUBSCRIBING = (b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE")

Then = Callable[[Reply, float], list[Instruction]]


AnyCore = TypeVar("AnyCore", bound=Core)


@dataclass(frozen=True, slots=True)
class HostTiming:
    """How often the core's ``tick`` is called, and how long links wait: as in production."""

    tick_seconds: float = 0.05
    connect_seconds: float = 2.0
    #: A server that is silent for half of this time gets a PING, and is taken for lost at its end.
    silence_seconds: float = 2.0


def node_of_server(server: int) -> str:
    """The name of a server's node in the simulated network."""
    return f"server-{server}"


class CoreHost(Generic[AnyCore]):
    """The process of one core: a node of the network that can be killed, paused and started again at any moment.

    ``carry_out`` gets the instructions that are not about links: what the application would see. ``on_send`` sees
    every command before it is sent. Each start makes a new core; nothing of the old one is kept.
    """

    def __init__(
        self,
        name: str,
        clock: VirtualClock,
        network: SimulatedNetwork,
        carry_out: Callable[[Instruction], None],
        timing: HostTiming = HostTiming(),  # noqa: B008  (frozen)
        on_send: Callable[[Send], None] | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._network = network
        self._carry_out = carry_out
        self._timing = timing
        self._on_send = on_send
        self._core: AnyCore | None = None
        self._links: dict[tuple[int, ServerLink], _HostLink] = {}
        self._timer: VirtualTimer | None = None

    @property
    def is_running(self) -> bool:
        return self._core is not None

    @property
    def core(self) -> AnyCore:
        """The running core.

        :raises RuntimeError: the host is not running.
        """
        if self._core is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._core

    def start(self, core: AnyCore, first_tick_after_seconds: float = 0.0) -> None:
        """Starts with a new core. Give hosts different first ticks, or all of them tick at the same times."""
        if self._core is not None:
            raise RuntimeError(f"{self.name} is running already")
        self._core = core
        self._timer = self._clock.after(first_tick_after_seconds, self._tick)

    def kill(self, *, silently: bool = False) -> None:
        """Ends the process at once; with ``silently``, servers notice it by a time-out only."""
        self._core = None
        self._links.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._network.crash(self.name, silently=silently)

    def pause(self) -> None:
        """Stops the process as SIGSTOP does: no ticks, and nothing is read."""
        if self._timer is not None:
            self._timer.cancel()
        for end in self._network.connections(self.name):
            end.pause()

    def resume(self) -> None:
        """Goes on. A process that was killed while it was paused stays dead."""
        if self._core is None:
            return
        for link in self._links.values():
            link.heard_at = self._clock.now
        for end in self._network.connections(self.name):
            end.resume()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.after(0, self._tick)

    def call(self, action: Callable[[AnyCore, float], list[Instruction]]) -> None:
        """Lets the application call its core now, and carries out what comes of it."""
        self.run(action(self.core, self._clock.now))

    def run(self, instructions: list[Instruction]) -> None:
        """Carries out instructions in their order."""
        for instruction in instructions:
            if self._core is None:
                return
            match instruction:
                case Send():
                    self._send(instruction)
                case Connect(server, link):
                    self._connect(server, link)
                case Disconnect(server, link):
                    closing = self._links.pop((server, link), None)
                    if closing is not None:
                        closing.close()
                case _:
                    self._carry_out(instruction)

    def _connect(self, server: int, link: ServerLink) -> None:
        if (server, link) in self._links:
            raise RuntimeError(f"{self.name} opens its {link} link to server {server} twice")
        self._links[server, link] = _HostLink(self, server, link, self._clock.now)

    def _send(self, send: Send) -> None:
        link = self._links.get((send.server, send.link))
        if link is None or not link.is_greeted:
            raise RuntimeError(
                f"{self.name} sends {send.command[0].decode()} on its {send.link} link to server {send.server}, "
                "which is not open"
            )
        if self._on_send is not None:
            self._on_send(send)
        link.send(send.command, send.then)

    def _tick(self) -> None:
        now = self._clock.now
        for link in list(self._links.values()):
            link.watch(now, self._timing)
        self.run(self.core.tick(now))
        self._timer = self._clock.after(self._timing.tick_seconds, self._tick)

    def _opened(self, link: "_HostLink") -> None:
        self.run(self.core.connected(link.server, link.link, self._clock.now))

    def _lost(self, link: "_HostLink") -> None:
        del self._links[link.server, link.link]
        self.run(self.core.disconnected(link.server, link.link, self._clock.now))


@dataclass(slots=True)
class _Unanswered:
    """A command without its reply. A command that subscribes is answered by so many pushes."""

    then: Then | None
    pushes: int = 0


class _HostLink:
    """One connection to a server. It greets with HELLO 3, pairs replies with commands, and notices silence."""

    def __init__(self, host: CoreHost[AnyCore], server: int, link: ServerLink, now: float) -> None:
        self._host = host
        self.server = server
        self.link = link
        self.is_greeted = False
        self.is_over = False
        self.heard_at = now
        self._pinged = False
        self._unanswered: deque[_Unanswered] = deque()
        self._end = host._network.connect(host.name, node_of_server(server), self)

    def send(self, command: tuple[bytes, ...], then: Then | None) -> None:
        if command[0].upper() in _SUBSCRIBING:
            if len(command) == 1:
                raise RuntimeError(f"{command[0].decode()} must name what it is about")
            self._unanswered.append(_Unanswered(then, pushes=len(command) - 1))
        else:
            self._unanswered.append(_Unanswered(then))
        self._end.send(command, encoded_bytes(command))

    def close(self) -> None:
        self.is_over = True
        self._end.close()

    def watch(self, now: float, timing: HostTiming) -> None:
        """Breaks a link on which nothing has come for too long."""
        if self.is_over:
            return
        silence = now - self.heard_at
        if silence >= (timing.silence_seconds if self.is_greeted else timing.connect_seconds):
            self.close()
            self._host._lost(self)
        elif silence >= timing.silence_seconds / 2 and self.is_greeted and not self._pinged:
            self._pinged = True
            self.send((b"PING",), None)

    def opened(self, end: ConnectionEnd) -> None:
        self._unanswered.append(_Unanswered(self._greeted))
        end.send((b"HELLO", b"3"))

    def closed(self, end: ConnectionEnd) -> None:
        self.is_over = True
        self._host._lost(self)

    def received(self, end: ConnectionEnd, message: object) -> None:
        now = self._host._clock.now
        self.heard_at = now
        self._pinged = False
        if isinstance(message, RedisPush):
            push = cast(Sequence[bytes], message)
            self._host.run(self._host.core.pushed(self.server, self.link, push, now))
            if push[0].upper() not in _SUBSCRIBING or self.is_over:
                return
            self._unanswered[0].pushes -= 1
            if self._unanswered[0].pushes > 0:
                return
        then = self._unanswered.popleft().then
        if then is not None:
            self._host.run(then(message, now))

    def _greeted(self, reply: Reply, now: float) -> list[Instruction]:
        self.is_greeted = True
        self._host._opened(self)
        return []
