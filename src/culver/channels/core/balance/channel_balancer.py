"""Decides where channels are served, and how many servers there are (Dynamoth, section III-B).

A decision is made in this order: channels of dead servers get new places at once; channels that one server cannot
bear are replicated (algorithm 1); overloaded servers are relieved (algorithm 2); a server that is to go is emptied;
if all this does not help, a new server is asked for. When servers are idle for a while, one of them is emptied and
given back. At least ``wait_seconds`` (the paper's T_wait) pass between two plans.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from culver.channels.core.balance.load_estimate import BalancedServer, ServerState
from culver.channels.core.balance.plan_draft import STEP, PlanDraft
from culver.channels.core.balance.replication_choice import ReplicationChoice
from culver.channels.core.balance.server_capacity import LoadThresholds, ServerCapacity
from culver.channels.core.balance.server_groups import Groups, servers_of
from culver.channels.core.channel_plan import PlanEntry, Ring
from culver.channels.core.reserved_names import RESERVED_PREFIX

#: While no server is overloaded, channels are looked through this often for those that need other shapes.
_LOOK_SECONDS = 5.0

#: A channel that nobody has used for so long is idle, and of these so many are forgotten in one plan.
_IDLE_SECONDS = 600.0
_MOST_FORGOTTEN = 500

#: Below this load a server is idle: what it still does says nothing about which of several to give back.
_IDLE_RATIO = 0.05

#: A server that was asked for and has not come is asked for again.
_START_SECONDS = 60.0


class BalancerSettings(msgspec.Struct, frozen=True):
    """``wait_seconds`` is long enough that a move has ended, and the load of five seconds was measured after it.
    ``low_seconds`` is how long servers must be idle before one is given back. Of a plan with more than
    ``most_entries``, entries of idle channels are forgotten."""

    thresholds: LoadThresholds = LoadThresholds()
    min_servers: int = 1
    max_servers: int = 8
    wait_seconds: float = 6.0
    low_seconds: float = 30.0
    most_entries: int = 10_000


@dataclass(frozen=True, slots=True)
class PlanView:
    """The plan that is in force. ``moving`` holds channels whose move has not ended: they stay as they are."""

    ring: Ring
    entries: Mapping[bytes, PlanEntry]
    moving: Container[bytes] = ()

    def groups_of(self, channel: bytes) -> Groups:
        entry = self.entries.get(channel)
        return ((self.ring.home(channel),),) if entry is None else entry.groups


class BalancerDecision(msgspec.Struct, frozen=True):
    """New groups of channels, how many servers to start, which ones to stop, and why, with figures.

    ``forget`` lists idle channels whose entries are not worth keeping.
    """

    entries: dict[bytes, Groups] = {}
    start: int = 0
    stop: tuple[int, ...] = ()
    forget: tuple[bytes, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.start or self.stop or self.forget)


class ChannelBalancer:
    """Call ``decide`` about once a second. Time never goes back."""

    def __init__(self, settings: BalancerSettings, now: float) -> None:
        self._settings = settings
        self._decided_at = now
        self._known: set[int] | None = None
        # Servers that came later, until they bear their part.
        self._filling: set[int] = set()
        self._start_asked_at: float | None = None
        self._looked_at = now - _LOOK_SECONDS
        self._low_since: float | None = None
        #: The server that is being emptied because the load is low. Like those that are draining, it needs a list of
        #: its subscribed channels.
        self.sparing: int | None = None
        self._stopping: set[int] = set()
        self._unused_since: dict[bytes, float] = {}

    def decide(self, servers: Sequence[BalancedServer], plan: PlanView, now: float) -> BalancerDecision:
        """Only dead servers are dealt with before ``wait_seconds`` have passed since the last plan."""
        self._notice_servers(servers, now)
        reasons = self._watch_low_load(servers, now)
        may_plan = now >= self._decided_at + self._settings.wait_seconds and self._should_look(servers, now)
        dead = [server for server in servers if server.state is ServerState.DEAD]
        if not may_plan and not dead:
            return BalancerDecision(reasons=reasons)
        draft = PlanDraft(
            servers,
            plan.groups_of,
            self._settings.thresholds,
            moving=plan.moving,
            filling=self._filling,
            barred=self._stopping,
        )
        for server in dead:
            draft.abandon(_channels_of(server, plan))
        start: int = 0
        stop: tuple[int, ...] = ()
        if may_plan:
            self._looked_at = now
            start, stop = self._work_out(draft, servers, plan, now)
        forget = self._idle_channels(draft, plan, now) if may_plan and not (draft.entries or stop) else ()
        decision = BalancerDecision(draft.entries, start, stop, forget, (*reasons, *draft.reasons))
        if decision.entries or decision.stop or decision.forget:
            # A server that was only asked for changes no plan: it is used as soon as it is there.
            self._decided_at = now
        return decision

    def _should_look(self, servers: Sequence[BalancedServer], now: float) -> bool:
        low = self._low_since is not None and now >= self._low_since + self._settings.low_seconds
        pressing = low or any(
            server.state is ServerState.DRAINING or server.load_ratio >= self._settings.thresholds.high
            for server in servers
        )
        return pressing or now >= self._looked_at + _LOOK_SECONDS

    def _notice_servers(self, servers: Sequence[BalancedServer], now: float) -> None:
        numbers = {server.number for server in servers}
        if self._known is not None and numbers - self._known:
            self._filling |= numbers - self._known
            self._start_asked_at = None
        if self._start_asked_at is not None and now >= self._start_asked_at + _START_SECONDS:
            self._start_asked_at = None
        self._known = numbers
        self._filling &= numbers
        self._stopping &= numbers

    def _work_out(
        self, draft: PlanDraft, servers: Sequence[BalancedServer], plan: PlanView, now: float
    ) -> tuple[int, tuple[int, ...]]:
        thresholds = self._settings.thresholds
        if not draft.usable:
            return 0, ()
        alive = sum(server.state is not ServerState.DEAD for server in servers)
        full = alive >= self._settings.max_servers
        choice = ReplicationChoice(_least(servers, draft.usable), thresholds, len(draft.usable))
        lacking = draft.replicate(choice)
        stuck = draft.relieve(thresholds.safe)
        # No plan makes all servers safe: a server must come, and takes a while, so it is asked for now.
        unsafe = stuck
        if stuck:
            # If no server can come, the others take what they bear; a ratio of 1 is what a server was seen to bear.
            stuck = draft.relieve(1.0 if full else thresholds.high)
        # A channel that is spread over more servers may bring those above 1, as long as the highest ratio falls.
        limit = float("inf") if full else thresholds.high
        stuck = [server for server in stuck if not draft.widen(server, choice, limit)]
        cramped, stop = self._empty_servers(draft, servers, plan)
        if not draft.entries and not stop:
            stop = self._spare_a_server(draft, servers, plan, now)
        start = 0
        if (unsafe or lacking or cramped) and not draft.step_was_full:
            start = self._ask_for_server(draft, stuck or unsafe, lacking, full=full, now=now)
        return start, stop

    def _empty_servers(
        self, draft: PlanDraft, servers: Sequence[BalancedServer], plan: PlanView
    ) -> tuple[bool, tuple[int, ...]]:
        """Takes a step with every server that was marked as draining; returns whether one found no room."""
        thresholds = self._settings.thresholds
        cramped, stop = False, []
        for server in servers:
            if server.state is not ServerState.DRAINING or server.number in self._stopping:
                continue
            why = f"server {server.number} is being emptied"
            done, possible = self._take_step(draft, server, plan, thresholds.safe, why)
            if not possible:
                done, possible = self._take_step(draft, server, plan, thresholds.high, why)
            cramped = cramped or not possible
            if done:
                stop.append(server.number)
        return cramped, tuple(stop)

    def _take_step(
        self, draft: PlanDraft, server: BalancedServer, plan: PlanView, limit: float, why: str
    ) -> tuple[bool, bool]:
        """Returns whether the server is empty, and whether what it has can be taken by others."""
        channels = _channels_of(server, plan)
        possible = draft.evacuate(server.number, channels, limit, STEP * draft.total, why)
        done = not channels and server.subscribed_channels is not None
        if done:
            draft.reasons.append(f"server {server.number} is empty: it can stop")
            self._stopping.add(server.number)
        return done, possible

    def _watch_low_load(self, servers: Sequence[BalancedServer], now: float) -> tuple[str, ...]:
        thresholds = self._settings.thresholds
        ratios = {
            server.number: server.load_ratio
            for server in servers
            if server.state is ServerState.UP
            and server.load is not None
            and server.number not in self._stopping
        }
        mean = sum(ratios.values()) / max(len(ratios), 1)
        highest = max(ratios.values(), default=0.0)
        self._filling -= {number for number, ratio in ratios.items() if ratio >= mean > 0}
        spared = self.sparing
        if spared not in ratios:
            self.sparing = None
        if (
            len(ratios) <= max(1, self._settings.min_servers)
            or mean >= thresholds.low
            or highest > thresholds.safe
        ):
            self.sparing = self._low_since = None
        elif self._low_since is None:
            self._low_since = now
        if spared is None or self.sparing is not None:
            return ()
        return (f"server {spared} stays: the servers are at {mean:.2f} on average, {highest:.2f} at most",)

    def _spare_a_server(
        self, draft: PlanDraft, servers: Sequence[BalancedServer], plan: PlanView, now: float
    ) -> tuple[int, ...]:
        """Low-load rebalancing: empties one server step by step, and then asks to stop it."""
        if self._low_since is None or now < self._low_since + self._settings.low_seconds:
            return ()
        by_number = {server.number: server for server in servers}
        if self.sparing is None:
            self.sparing = self._choose_spare(draft, by_number, plan)
        if self.sparing is None:
            return ()
        server = by_number[self.sparing]
        why = (
            f"the servers are at {draft.mean_ratio():.2f} on average, below {self._settings.thresholds.low}: "
            f"server {server.number} (price {server.price:g}) is given back"
        )
        done, possible = self._take_step(draft, server, plan, self._settings.thresholds.safe, why)
        if done or not possible:
            self.sparing = self._low_since = None
        return (server.number,) if done else ()

    def _choose_spare(
        self, draft: PlanDraft, servers: Mapping[int, BalancedServer], plan: PlanView
    ) -> int | None:
        """The server with the least load for its price whose channels all fit elsewhere; homes come last."""
        safe = self._settings.thresholds.safe
        ratio = draft.estimate.ratio
        order = sorted(
            draft.usable,
            key=lambda number: (
                max(ratio(number), _IDLE_RATIO) / max(servers[number].price, 1e-9),
                -servers[number].price,
                number in plan.ring.homes,
                -number,
            ),
        )
        rest = sum(map(ratio, draft.usable)) / (len(draft.usable) - 1)
        if rest > safe:
            return None
        for number in order:
            trial = PlanDraft(
                [server for server in servers.values() if server.number in draft.usable],
                plan.groups_of,
                self._settings.thresholds,
                moving=plan.moving,
            )
            if trial.evacuate(number, (), safe, float("inf"), ""):
                return number
        return None

    def _idle_channels(self, draft: PlanDraft, plan: PlanView, now: float) -> tuple[bytes, ...]:
        """Channels on one server that have been idle for longest, as many as the plan has too many."""
        excess = len(plan.entries) - self._settings.most_entries
        if excess <= 0:
            self._unused_since.clear()
            return ()
        self._unused_since = {
            channel: self._unused_since.get(channel, now)
            for channel, entry in plan.entries.items()
            if channel not in draft.estimate.demands and len(entry.servers) == 1
        }
        idle = [
            channel
            for channel, since in sorted(self._unused_since.items(), key=lambda item: (item[1], item[0]))
            if now >= since + _IDLE_SECONDS
            and draft.may_change(channel)
            and plan.ring.home(channel) in draft.usable
        ][: min(excess, _MOST_FORGOTTEN)]
        if idle:
            draft.reasons.append(f"{len(idle)} of {len(plan.entries)} entries are of idle channels")
        return tuple(idle)

    def _ask_for_server(
        self, draft: PlanDraft, stuck: list[int], lacking: list[bytes], *, full: bool, now: float
    ) -> int:
        problems = [draft.estimate.describe(server) for server in stuck]
        problems += [f"a channel on {len(draft.usable)} servers needs more" for _ in lacking[:1]]
        text = "; ".join(problems) or "a server that is to be emptied finds no room for its channels"
        if full:
            draft.reasons.append(
                f"{text}, and there are {self._settings.max_servers} servers, the most allowed"
            )
            return 0
        if self._start_asked_at is not None:
            return 0
        self._start_asked_at = now
        draft.reasons.append(f"{text}: a new server is needed")
        return 1


def _least(servers: Sequence[BalancedServer], usable: Container[int]) -> ServerCapacity:
    """What every usable server bears."""
    found = [server.capacity for server in servers if server.number in usable]
    return ServerCapacity(
        min(capacity.allowed_bytes for capacity in found), min(capacity.allowed_cpu for capacity in found)
    )


def _channels_of(server: BalancedServer, plan: PlanView) -> list[bytes]:
    """All that is known to be on a server: active channels, subscribed ones, and entries."""
    active = [] if server.load is None else [load.channel for load in server.load.channels]
    listed = {*active, *(server.subscribed_channels or ()), *plan.entries}
    return sorted(
        channel
        for channel in listed
        if not channel.startswith(RESERVED_PREFIX) and server.number in servers_of(plan.groups_of(channel))
    )
