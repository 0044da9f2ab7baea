"""The process that keeps the plan, in the simulation: writes what a ``PlanKeeper`` says, and reads the reports."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from culver.channels.core.balance.keeper_commands import commands_of, stages_of
from culver.channels.core.balance.keeper_instructions import KeeperInstruction, ReleaseServer, WriteRing
from culver.channels.core.balance.plan_keeper import PlanKeeper
from culver.channels.core.channel_plan import Ring
from culver.channels.core.dispatcher_notes import decode_report
from culver.channels.core.instructions import Command, Instruction, Reply, Send, ServerLink
from culver.channels.core.reserved_names import REPORT_KEY
from culver.channels.core.server_links import ServerLinks

_READ_SECONDS = 0.25
_TICK_SECONDS = 1.0
_CONNECT_SECONDS = 1.0


class SimulatedKeeper:
    """Runs in a ``CoreHost``, and writes as the service does: all servers of a stage at once, one stage after the
    other. It begins when it is connected to all servers, or after a while.

    A server without a link counts as down. ``save`` stores the keeper's state before anything of it is written.
    """

    def __init__(
        self,
        keeper: PlanKeeper,
        told_ring: Ring,
        secret: bytes,
        random: Random,
        save: Callable[[bytes], None],
        now: float,
    ) -> None:
        self.keeper = keeper
        #: The ring that clients are told.
        self.told_ring = told_ring
        self._secret = secret
        self._save = save
        self._links = ServerLinks(random)
        self._begin_at = now + _CONNECT_SECONDS
        self._has_begun = False
        self._stages: deque[list[KeeperInstruction]] = deque()
        # Servers that have not answered all of the current stage.
        self._busy: set[int] = set()
        self._read_at = 0.0
        self._ticked_at = 0.0
        self.released: list[int] = []

    def act(
        self, action: Callable[[PlanKeeper, float], list[KeeperInstruction]], now: float
    ) -> list[Instruction]:
        """Lets the keeper do something, and begins to write what comes of it. The beginning writes everything."""
        instructions = action(self.keeper, now)
        if not self._has_begun:
            return []
        self._stages += stages_of(instructions)
        if self.keeper.changed:
            self._save(self.keeper.dump())
        return self._write_next()

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self._links.connected(server, link)
        return self.act(lambda keeper, now: keeper.server_restarted(server, now), now)

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self._links.disconnected(server, link, now)
        self._busy.discard(server)
        return self.act(lambda keeper, now: keeper.server_down(server, now), now)

    def pushed(self, server: int, link: ServerLink, push: Sequence[bytes], now: float) -> list[Instruction]:
        return []

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for server in sorted(self.keeper.ring.numbers):
            out += self._links.want(server, ServerLink.PUBLISH, now)
        if not self._has_begun:
            return out + self._begin(now)
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

    def _begin(self, now: float) -> list[Instruction]:
        servers = sorted(self.keeper.ring.numbers)
        down = [server for server in servers if not self._links.is_up(server, ServerLink.PUBLISH)]
        if down and now < self._begin_at:
            return []
        for server in down:
            self.keeper.server_down(server, now)
        self._has_begun = True
        return self.act(PlanKeeper.resume, now)

    def _reported(self, reply: Reply, now: float) -> list[Instruction]:
        if not isinstance(reply, bytes):
            return []
        report = decode_report(reply)
        return self.act(lambda keeper, now: keeper.report(report, now), now)

    def _write_next(self) -> list[Instruction]:
        out: list[Instruction] = []
        while self._stages and not self._busy:
            out += self._write(self._stages.popleft())
        return out

    def _write(self, stage: list[KeeperInstruction]) -> list[Instruction]:
        commands: dict[int, list[Command]] = defaultdict(list)
        for instruction in stage:
            if isinstance(instruction, ReleaseServer):
                self.released.append(instruction.server)
                continue
            if isinstance(instruction, WriteRing):
                self.told_ring = instruction.ring
            if self._links.is_up(instruction.server, ServerLink.PUBLISH):
                commands[instruction.server] += commands_of(instruction, self._secret)
        out: list[Instruction] = []
        for server, (*first, last) in commands.items():
            self._busy.add(server)
            out += [Send(server, ServerLink.PUBLISH, command) for command in first]
            out.append(Send(server, ServerLink.PUBLISH, last, partial(self._written, server)))
        return out

    def _written(self, server: int, reply: Reply, now: float) -> list[Instruction]:
        self._busy.discard(server)
        return self._write_next()
