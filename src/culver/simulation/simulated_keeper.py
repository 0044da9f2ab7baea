"""The process that keeps the plan, in the simulation: writes what a ``PlanKeeper`` says, and reads the reports."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from culver.channels.core.balance.keeper_commands import commands_of
from culver.channels.core.balance.keeper_instructions import KeeperInstruction, ReleaseServer
from culver.channels.core.balance.plan_keeper import PlanKeeper
from culver.channels.core.dispatcher_notes import decode_report
from culver.channels.core.instructions import Instruction, Reply, Send, ServerLink
from culver.channels.core.reserved_names import REPORT_KEY
from culver.channels.core.server_links import ServerLinks

_READ_SECONDS = 0.25
_TICK_SECONDS = 1.0


class SimulatedKeeper:
    """Runs in a ``CoreHost``. It writes one instruction after the other, and goes on when the server has answered.

    A server without a link counts as down. ``save`` stores the keeper's state before anything of it is written.
    """

    def __init__(
        self, keeper: PlanKeeper, secret: bytes, random: Random, save: Callable[[bytes], None], now: float
    ) -> None:
        self.keeper = keeper
        self._secret = secret
        self._save = save
        self._links = ServerLinks(random)
        self._queue: deque[KeeperInstruction] = deque()
        self._busy_with: int | None = None
        self._read_at = 0.0
        self._ticked_at = 0.0
        self.released: list[int] = []
        for server in sorted(keeper.ring.numbers):
            keeper.server_down(server, now)
        keeper.resume(now)

    def act(
        self, action: Callable[[PlanKeeper, float], list[KeeperInstruction]], now: float
    ) -> list[Instruction]:
        """Lets the keeper do something, and begins to write what comes of it."""
        self._queue += action(self.keeper, now)
        return self._write_next(now)

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self._links.connected(server, link)
        return self.act(lambda keeper, now: keeper.server_restarted(server, now), now)

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self._links.disconnected(server, link, now)
        if self._busy_with == server:
            self._busy_with = None
        return self.act(lambda keeper, now: keeper.server_down(server, now), now)

    def pushed(self, server: int, link: ServerLink, push: Sequence[bytes], now: float) -> list[Instruction]:
        return []

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for server in sorted(self.keeper.ring.numbers):
            out += self._links.want(server, ServerLink.PUBLISH, now)
        if now >= self._read_at + _READ_SECONDS:
            self._read_at = now
            out += [
                Send(server, ServerLink.PUBLISH, (b"GET", REPORT_KEY), self._reported)
                for server in sorted(self.keeper.ring.numbers)
                if self._links.is_up(server, ServerLink.PUBLISH)
            ]
        if now >= self._ticked_at + _TICK_SECONDS:
            self._ticked_at = now
            out += self.act(PlanKeeper.tick, now)
        return out

    def _reported(self, reply: Reply, now: float) -> list[Instruction]:
        if not isinstance(reply, bytes):
            return []
        report = decode_report(reply)
        return self.act(lambda keeper, now: keeper.report(report, now), now)

    def _write_next(self, now: float) -> list[Instruction]:
        if self.keeper.changed:
            self._save(self.keeper.dump())
        while self._queue and self._busy_with is None:
            instruction = self._queue.popleft()
            if isinstance(instruction, ReleaseServer):
                self.released.append(instruction.server)
            elif self._links.is_up(instruction.server, ServerLink.PUBLISH):
                return self._write(instruction)
        return []

    def _write(self, instruction: KeeperInstruction) -> list[Instruction]:
        server = instruction.server
        self._busy_with = server
        *first, last = commands_of(instruction, self._secret)
        done = partial(self._written, server)
        return [
            *(Send(server, ServerLink.PUBLISH, command) for command in first),
            Send(server, ServerLink.PUBLISH, last, done),
        ]

    def _written(self, server: int, reply: Reply, now: float) -> list[Instruction]:
        self._busy_with = None
        return self._write_next(now)
