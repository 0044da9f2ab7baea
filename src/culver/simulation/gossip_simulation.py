"""Simulated members of the overlay's gossip: latency, loss, partitions, crashes, restarts and pauses.

The world has an event queue of plain tuples beside the run's clock, since an hour of a thousand members is tens of
millions of messages. The clock follows it, and actions that were set on the clock run in their turn.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from culver.overlay.gossip.gossip_core import GossipCore
from culver.overlay.gossip.gossip_instructions import (
    FactsChanged,
    GossipInstruction,
    MemberChanged,
    RefusedGossip,
    SendGossip,
)
from culver.overlay.gossip.gossip_messages import (
    FactsNews,
    GossipMessage,
    MemberFacts,
    MemberStatus,
    News,
    encode_gossip,
)
from culver.overlay.gossip.gossip_settings import GossipSettings, quick_gossip
from culver.simulation.seeded_run import SeededRun

_BASE = 1_700_000_000
"""The first incarnation: as many bytes as seconds since 1970 have."""
_SETTLING_SECONDS = 150.0
_REACHED_PERIODS = 20


@dataclass(slots=True)
class SimulatedMember:
    """A member's process. `troubled_at` is when it last crashed, started, stood still or went on."""

    number: int
    key: str
    core: GossipCore
    starts: int = 0
    is_running: bool = True
    has_left: bool = False
    paused_until: float = 0.0
    troubled_at: float = float("-inf")
    side: int = 0  # of a partition
    tick_at: float = float("inf")
    loads: dict[str, float] = field(default_factory=dict)


class GossipWorld:
    """Members that send each other messages, and a watch on what they believe.

    :param latency_seconds: the least and the most time that a message takes.
    :param counts_bytes: encodes every message to count `bytes_sent`.
    """

    def __init__(
        self,
        run: SeededRun,
        count: int,
        settings: GossipSettings,
        *,
        latency_seconds: tuple[float, float] = (0.005, 0.05),
        loss: float = 0.0,
        counts_bytes: bool = False,
    ) -> None:
        self.run = run
        self.settings = settings
        self.loss = loss
        self.random = run.random("gossip")
        self.counts_bytes = counts_bytes
        self.bytes_sent = 0
        self.messages_sent = 0
        self.suspicions = 0
        self.false_deaths = 0
        self.refusals: list[RefusedGossip] = []
        self.healed_at = float("-inf")
        self.watched: dict[str, dict[int, float]] = {}
        self._is_wanted: dict[str, Callable[[GossipInstruction], bool]] = {}
        self._latency = latency_seconds
        self._events: list[tuple[float, int, int, int, int, GossipMessage | None]] = []
        self._numbers = 0
        self.members: list[SimulatedMember] = []
        self._number_of: dict[str, int] = {}
        for _ in range(count):
            self.add()

    # --- the life of members ---

    def add(self) -> SimulatedMember:
        """Adds a member that knows nobody."""
        number = len(self.members)
        key = f"site-{number:04d}~{number:016x}"
        member = SimulatedMember(number, key, self._core(key, 0))
        self.members.append(member)
        self._number_of[key] = number
        self.publish(member)
        self._tick(member)
        return member

    def acquaint(self) -> None:
        """Lets all members know each other, as if they had for long."""
        now = self.run.clock.now
        known: list[News] = []
        for member in self.members:
            own = member.core.member(member.key)
            assert own is not None
            assert own.facts is not None
            known.append(FactsNews(member.key, own.incarnation, own.facts))
        for member in self.members:
            member.core.restore(known, now)
            for record in member.core.members():
                record.knows_us = True

    def join(self, member: SimulatedMember, others: Iterable[SimulatedMember]) -> None:
        self._carry_out(member, member.core.join([other.key for other in others], self.run.clock.now))

    def publish(self, member: SimulatedMember) -> None:
        """Publishes facts with new load figures."""
        member.loads = {"events": float(self.random.randrange(1000)), "matching": self.random.random()}
        address = f"10.0.{member.number >> 8}.{member.number & 255}:7401"
        member.core.publish_facts((address,), member.loads, {"zone": "a"}, self.run.clock.now)

    def move(self, member: SimulatedMember) -> MemberFacts:
        """Publishes another address, and returns the facts."""
        address = (
            f"10.1.{self.random.randrange(256)}.{self.random.randrange(256)}:{self.random.randrange(9999)}"
        )
        member.core.publish_facts((address,), member.loads, {"zone": "a"}, self.run.clock.now)
        own = member.core.member(member.key)
        assert own is not None
        assert own.facts is not None
        return own.facts

    def crash(self, member: SimulatedMember) -> None:
        member.is_running = False
        member.troubled_at = self.run.clock.now

    def restart(self, member: SimulatedMember, others: Iterable[SimulatedMember]) -> None:
        """Starts a crashed member with a higher incarnation and without its table."""
        now = self.run.clock.now
        member.starts += 1
        member.core = self._core(member.key, member.starts)
        member.is_running, member.paused_until, member.troubled_at = True, 0.0, now
        self.publish(member)
        self._tick(member)
        self.join(member, others)

    def pause(self, member: SimulatedMember, seconds: float) -> None:
        """The process stands still; what it would do or receive happens afterwards, all at once."""
        member.paused_until = member.troubled_at = self.run.clock.now + seconds

    def leave(self, member: SimulatedMember) -> None:
        self._carry_out(member, member.core.leave(self.run.clock.now))
        member.has_left = True

    def divide(self, inside: Iterable[SimulatedMember]) -> None:
        """Cuts these off from the others. An earlier partition ends."""
        if any(member.side for member in self.members):
            self.heal()
        for member in inside:
            member.side = 1

    def heal(self) -> None:
        for member in self.members:
            member.side = 0
        self.healed_at = self.run.clock.now

    def _core(self, key: str, starts: int) -> GossipCore:
        random = self.run.random(f"{key}/{starts}")
        return GossipCore(key, _BASE + 1000 * starts, self.settings, random)

    # --- time ---

    def run_for(self, seconds: float) -> None:
        """Runs everything that happens in this time."""
        events, clock, members = self._events, self.run.clock, self.members
        end = clock.now + seconds
        while events and events[0][0] <= end:
            time, _, number, starts, source, message = heappop(events)
            clock.run_until(time)
            member = members[number]
            if not member.is_running or (message is None and member.starts != starts):
                continue
            if member.paused_until > time:
                if message is None and time == member.tick_at:
                    member.tick_at = member.paused_until
                self._push(member.paused_until, number, starts, source, message)
                continue
            if message is None:
                if time == member.tick_at:
                    self._tick(member)
                continue
            self._carry_out(member, member.core.received(members[source].key, message, time))
            if member.core.next_due() < member.tick_at:
                self._plan_tick(member)
        clock.run_until(end)

    def _tick(self, member: SimulatedMember) -> None:
        self._carry_out(member, member.core.tick(self.run.clock.now))
        self._plan_tick(member)

    def _plan_tick(self, member: SimulatedMember) -> None:
        member.tick_at = max(self.run.clock.now, member.core.next_due())
        self._push(member.tick_at, member.number, member.starts, member.number, None)

    def _push(
        self, time: float, number: int, starts: int, source: int, message: GossipMessage | None
    ) -> None:
        self._numbers += 1
        heappush(self._events, (time, self._numbers, number, starts, source, message))

    def _carry_out(self, member: SimulatedMember, instructions: list[GossipInstruction]) -> None:
        chance, (least, most) = self.random.random, self._latency
        for instruction in instructions:
            if isinstance(instruction, SendGossip):
                self.messages_sent += 1
                if self.counts_bytes:
                    self.bytes_sent += len(encode_gossip(instruction.message))
                number = self._number_of.get(instruction.destination)
                if number is None or self.members[number].side != member.side or chance() < self.loss:
                    continue
                time = self.run.clock.now + least + chance() * (most - least)
                self._push(time, number, 0, member.number, instruction.message)
            else:
                self._notice(member, instruction)

    # --- what is watched ---

    def watch(self, name: str, is_wanted: Callable[[GossipInstruction], bool]) -> None:
        """Notes, under a name, when each member first gives an instruction of a kind."""
        self.watched[name] = {}
        self._is_wanted[name] = is_wanted

    def _notice(self, member: SimulatedMember, instruction: GossipInstruction) -> None:
        # A member that starts without its table does not know those that know it, until it has joined.
        if isinstance(instruction, RefusedGossip) and not member.starts:
            self.refusals.append(instruction)
        if isinstance(instruction, MemberChanged):
            if instruction.status is MemberStatus.SUSPECT:
                self.suspicions += 1
            elif instruction.status is MemberStatus.DEAD:
                self._judge_death(member, self.members[self._number_of[instruction.key]])
        for name, is_wanted in self._is_wanted.items():
            if is_wanted(instruction):
                self.watched[name].setdefault(member.number, self.run.clock.now)

    def _judge_death(self, by: SimulatedMember, of: SimulatedMember) -> None:
        """A member that lives, runs and is connected must not be declared dead.

        Trouble is excused for a while after it is over: a suspicion that began in it may end when all objections were
        lost, and a death that was declared in it is still travelling.
        """
        if not of.is_running or by.side != of.side or of.has_left:
            return
        now, excused = self.run.clock.now, self.excused_seconds()
        troubled_at = max(by.troubled_at, of.troubled_at, self.healed_at)
        if now - troubled_at > excused:
            self.false_deaths += 1
            self.run.violate(f"{by.key} declares {of.key} dead, which lives")

    def excused_seconds(self) -> float:
        settings, count = self.settings, len(self.members)
        suspicion = settings.suspicion_seconds(count) * settings.suspicion_spread
        return 2 * suspicion + _REACHED_PERIODS * settings.period_seconds

    def check(self) -> None:
        """Everybody that runs must know everybody: the living as alive with their latest facts, the rest not so."""
        running = [member for member in self.members if member.is_running and not member.has_left]
        for member in running:
            for other in self.members:
                problem = self._wrong_belief(member, other)
                if problem is not None:
                    self.run.violate(f"{member.key} {problem} {other.key}")
        for refusal in self.refusals:
            self.run.violate(f"a message of {refusal.source} is refused: {refusal.reason}")

    def _wrong_belief(self, member: SimulatedMember, other: SimulatedMember) -> str | None:
        record = member.core.member(other.key)
        if not other.is_running or other.has_left:
            return "believes in" if record is not None and record.is_living else None
        if record is None:
            return "does not know"
        if record.status is not MemberStatus.ALIVE:
            return f"believes {record.status.name.lower()}"
        own = other.core.member(other.key)
        assert own is not None
        if record.incarnation != own.incarnation:
            return "has another incarnation of"
        return None if record.facts == own.facts else "has old facts of"


# --- scenarios ---


def calm_gossip(run: SeededRun) -> None:
    """Members join one after the other, publish, and some leave; nothing breaks. Nobody is ever declared dead, and
    everything is known everywhere in the end."""
    random = run.random("scenario")
    world = GossipWorld(run, 1, random.choice((GossipSettings(), quick_gossip())))
    for _ in range(random.randint(1, 24)):
        member = world.add()
        world.join(member, random.sample(world.members[:-1], min(3, len(world.members) - 1)))
        world.run_for(random.uniform(0.0, 2.0))
        world.publish(random.choice(world.members))
    for member in random.sample(world.members[1:], len(world.members) // 4):
        world.leave(member)
    world.run_for(_REACHED_PERIODS * world.settings.period_seconds + len(world.members))
    world.check()
    _record(world)


def stormy_gossip(run: SeededRun) -> None:
    """Crashes, restarts, pauses, partitions and lost messages. When they are over, all agree on who lives."""
    random = run.random("scenario")
    world = GossipWorld(run, _few(random), random.choice((GossipSettings(), quick_gossip())))
    world.acquaint()
    world.loss = random.choice((0.0, 0.05, 0.2))
    for _ in range(random.randint(3, 12)):
        world.run_for(random.uniform(0.5, 15.0))
        _break_something(world, random)
    world.loss = 0.0
    world.heal()
    # The first member, which all restarted ones ask, is there in the end. Others may stay away.
    for member in world.members:
        if not member.is_running and (member.number == 0 or random.random() < 0.5):
            world.restart(member, world.members[:1])
    world.run_for(_SETTLING_SECONDS)
    moved = random.choice([member for member in world.members if member.is_running])
    facts = world.move(moved)
    world.watch("moved", lambda each: isinstance(each, FactsChanged) and each.facts == facts)
    world.run_for(_REACHED_PERIODS * world.settings.period_seconds)
    running = {member.number for member in world.members if member.is_running}
    missing = running - {moved.number} - world.watched["moved"].keys()
    if missing:
        run.violate(f"new facts of {moved.key} do not reach {sorted(missing)}")
    world.check()
    _record(world)


def _few(random: Random) -> int:
    return min(24, 2 + int(random.paretovariate(1.2) * 2))


def _break_something(world: GossipWorld, random: Random) -> None:
    member = random.choice(world.members)
    others = [world.members[0], *random.sample(world.members, min(2, len(world.members)))]
    match random.choice(("crash", "crash", "restart", "pause", "pause", "divide", "heal", "publish", "move")):
        case "crash" if member.is_running:
            world.crash(member)
        case "restart" if not member.is_running:
            world.restart(member, others)
        case "pause" if member.is_running:
            world.pause(member, random.choice((0.5, 3.0, 20.0)))
        case "divide":
            world.divide(random.sample(world.members, random.randint(1, len(world.members) - 1)))
        case "heal":
            world.heal()
        case "publish" if member.is_running:
            world.publish(member)
        case "move" if member.is_running:
            world.move(member)


def _record(world: GossipWorld) -> None:
    run = world.run
    run.record("messages", world.messages_sent, "suspicions", world.suspicions)
    for member in world.members:
        run.record(member.key, member.is_running, member.core.incarnation, member.core.living_count())


# --- figures ---


@dataclass(frozen=True, slots=True)
class SpreadRounds:
    """Periods until all members know of a change: the join of a member, new facts, and a death once it is declared.
    `detection` is the time from the crash until the first member declares it."""

    join: float
    facts: float
    death: float
    detection: float


def measure_spread(
    run: SeededRun, count: int, settings: GossipSettings, *, loss: float = 0.0, most_periods: int = 400
) -> SpreadRounds:
    """Lets a member join, publish and crash among `count` others that know each other."""
    world = GossipWorld(run, count, settings, loss=loss)
    world.acquaint()
    period, random = settings.period_seconds, run.random("measure")
    world.run_for(3 * period)
    guest = world.add()
    world.watch("join", lambda each: isinstance(each, MemberChanged) and each.key == guest.key)
    joined_at = run.clock.now
    world.join(guest, random.sample(world.members[:-1], min(3, count)))
    world.run_for(40 * period)
    facts = world.move(guest)
    world.watch("facts", lambda each: isinstance(each, FactsChanged) and each.facts == facts)
    moved_at = run.clock.now
    world.run_for(40 * period)
    world.crash(guest)
    world.watch("death", lambda each: each == MemberChanged(guest.key, MemberStatus.DEAD))
    crashed_at = run.clock.now
    for _ in range(most_periods):
        world.run_for(period)
        if len(world.watched["death"]) == count:
            break
    for name, heard in world.watched.items():
        if len(heard) < count:
            run.violate(f"{name} reaches {len(heard)} of {count} members")
    first_death = min(world.watched["death"].values(), default=float("inf"))
    return SpreadRounds(
        join=(max(world.watched["join"].values()) - joined_at) / period,
        facts=(max(world.watched["facts"].values()) - moved_at) / period,
        death=(max(world.watched["death"].values(), default=float("inf")) - first_death) / period,
        detection=first_death - crashed_at,
    )


def measure_bytes(
    run: SeededRun, count: int, settings: GossipSettings, *, seconds: float, has_new_loads: bool
) -> float:
    """Bytes that a member sends a second while nobody comes or goes; with new load figures of all members as often
    as they may publish them, or without."""
    world = GossipWorld(run, count, settings, counts_bytes=True)
    world.acquaint()
    for second in range(round(2 * seconds)):
        if second == round(seconds):
            world.bytes_sent = 0
        if has_new_loads:
            for member in world.members:
                world.publish(member)
        world.run_for(1.0)
    return world.bytes_sent / count / seconds


def lossy_hour(
    run: SeededRun, count: int = 1_000, loss: float = 0.2, seconds: float = 3_600.0
) -> GossipWorld:
    """Lets members that all live lose a share of all messages. Nobody must be declared dead."""
    world = GossipWorld(run, count, GossipSettings(), loss=loss)
    world.acquaint()
    world.run_for(seconds)
    _record(world)
    return world
