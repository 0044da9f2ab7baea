"""The simulated service: dispatchers apply a real forwarding policy, and matchers report their load.

    publishers --Poisson--> dispatcher 0 --\\           every second: queue, arrival, rate, response of each set
                            dispatcher 1 ----> matchers ----------------------------> both dispatchers

A dispatcher knows only the last reported load, the time since then, and what it has sent itself. The paper's
matchers save messages by reporting only when their load has changed by a tenth; ours report always.

`saturation` finds the highest rate at which queues do not grow, by bisection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.bench.bluedove import simulated_matchers
from culver.bench.bluedove.bluedove_plan import BluedovePlan
from culver.matching import ANYWHERE
from culver.placement import AdaptiveForwarding, Forwarding, SetLoad
from culver.plugins import forwarding_named

_SLOTS = 1 << 16  # to begin with
_DISPATCHERS = 2
_BOUND_EVENTS, _BOUND_TURNS = 1 << 14, 200
_OVERLOADED = 0.02  # a slice that gets so much more work than it can do is saturated


@dataclass(frozen=True, slots=True)
class System:
    """Sets on slices, the cost of an event in each set, and the candidates of each event of a pool. In this
    workload an event has one choice to make: all other choices lead to empty sets."""

    slices: int
    homes: NDArray[np.int64]
    registrations: NDArray[np.int64]
    fixed: NDArray[np.float64]  # seconds for a batch, by set
    each: NDArray[np.float64]  # seconds for an event
    most: int  # events in a batch
    candidates: NDArray[np.int64]  # (pool, candidates)

    @property
    def cost(self) -> NDArray[np.float64]:
        """Seconds for an event in each set, in full batches."""
        return self.each + self.fixed / self.most


@dataclass(frozen=True, slots=True)
class Period:
    """Measurements between two load reports."""

    end: float
    arrived: int
    answered: int
    response: float  # seconds on the average, of events answered; 0 where there were none
    busy: NDArray[np.float64]  # by slice, its share of the period
    needed: NDArray[np.float64]  # the same, if all of it had been done in full batches
    waiting: NDArray[np.float64]  # by slice, seconds of work at the end
    backlog: int  # events that wait at the end


class Simulation:
    """Only `advance` moves the time, and equal seeds give equal runs. `load` is the last reported load."""

    def __init__(
        self, system: System, policies: Sequence[Forwarding], *, tell_seconds: float = 1.0, seed: int = 1
    ) -> None:
        """Create one dispatcher for each policy; events go to them in turn."""
        self._policies = policies
        self._tell_seconds = tell_seconds
        self._random = np.random.default_rng(seed)
        self._number = 0
        self._again_arrived = np.empty(0)
        self._again_rows = np.empty(0, np.int64)
        self.now = 0.0
        self._slots: simulated_matchers.EventSlots
        self._queues: simulated_matchers.MatcherQueues
        self._servers: simulated_matchers.MatcherServers
        self._install(system)

    def advance(self, rate: float) -> Period:
        """Simulate one period in which events arrive at `rate` per second."""
        count = int(self._random.poisson(rate * self._tell_seconds))
        offsets = np.cumsum(self._random.standard_exponential(count + 1))
        arrived = self.now + offsets[:-1] * (self._tell_seconds / offsets[-1])
        rows = self._random.integers(0, len(self._system.candidates), count)
        times = np.concatenate([np.full(len(self._again_rows), self.now), arrived])
        arrived = np.concatenate([self._again_arrived, arrived])
        rows = np.concatenate([self._again_rows, rows])
        self._again_arrived, self._again_rows = self._again_arrived[:0], self._again_rows[:0]
        sets, slices = self._decide(times, rows)
        queues = self._first_queue[sets] + np.where(self._system.homes[sets] == ANYWHERE, slices, 0)
        waiting = int(self._queues.length.sum())
        if waiting + len(rows) > len(self._slots.row):
            self._slots = simulated_matchers.more_slots(self._slots, 2 * (waiting + len(rows)))
        tally = simulated_matchers.no_tally(len(self._queues.length))
        self.now += self._tell_seconds
        simulated_matchers.work(
            self._slots, self._queues, self._servers, tally, times, arrived, rows, queues, slices, self.now,
            self._system.most,
        )  # fmt: skip
        return self._tell(tally, count)

    def stop(self, number: int) -> None:
        """Stop a matcher. Dispatchers do not notice."""
        self._servers.stopped[number] = 1

    def waiting(self, number: int) -> int:
        """The number of events that wait at a matcher."""
        return int(self._servers.waiting[number])

    def change(self, system: System) -> None:
        """Switch to another division. All waiting events are sent again, as they would be from a log."""
        waiting = simulated_matchers.waiting_slots(self._slots, self._queues)
        order = np.argsort(self._slots.arrived[waiting], kind="stable")
        self._again_arrived = self._slots.arrived[waiting][order]
        self._again_rows = self._slots.row[waiting][order]
        self._install(system)

    def _install(self, system: System) -> None:
        """Set up idle matchers with empty queues. A set without a home has a queue in every slice."""
        copies = np.where(system.homes == ANYWHERE, system.slices, 1)
        self._system = system
        self._first_queue = np.cumsum(copies) - copies
        self._set_of_queue = np.repeat(np.arange(len(copies)), copies)
        self._slice_of_queue = np.repeat(system.homes, copies)
        anywhere = self._slice_of_queue == ANYWHERE
        self._slice_of_queue[anywhere] = (np.arange(len(anywhere)) - self._first_queue[self._set_of_queue])[
            anywhere
        ]
        self._slots = simulated_matchers.more_slots(simulated_matchers.NO_SLOTS, _SLOTS)
        self._queues = simulated_matchers.empty_queues(
            system.fixed[self._set_of_queue], system.each[self._set_of_queue]
        )
        self._servers = simulated_matchers.idle_servers(self._slice_of_queue, system.slices, self.now)
        # Every set has been measured before; an event costs nothing in one without registrations.
        cost = system.cost
        rate = np.divide(1.0, cost, out=np.full(len(cost), np.inf), where=cost > 0)
        nothing = np.zeros(len(cost))
        self.load = SetLoad(system.homes, system.slices, system.registrations, nothing, nothing, rate, cost)

    def _decide(
        self, times: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        sets, slices = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        since = times - self.now
        for turn, policy in enumerate(self._policies):
            own = slice(turn, None, len(self._policies))
            candidates = self._system.candidates[rows[own]]
            chosen = policy.choose(self.load, [candidates], np.ascontiguousarray(since[own]), self._number)
            sets[own], slices[own] = chosen.sets[0], chosen.slices[0]
        self._number += len(rows)
        return sets, slices

    def _tell(self, tally: simulated_matchers.MatcherTally, count: int) -> Period:
        system, told, of_set = self._system, self.load, self._set_of_queue
        cost = np.where(tally.served > 0, tally.busy / np.maximum(tally.served, 1), 1.0 / told.rate[of_set])
        queue = self._queues.length.astype(np.float64)
        # What a matcher has begun waits, too, until it is done.
        begun = np.maximum(0.0, self._servers.free_at - self.now)
        at = self._servers.current
        queue[at] += np.divide(begun, cost[at], out=np.zeros(len(begun)), where=cost[at] > 0)
        waiting = _sums(self._slice_of_queue, queue * cost, system.slices)
        sets = len(system.homes)
        served, busy = _sums(of_set, tally.served, sets), _sums(of_set, tally.busy, sets)
        # Without an answer in this period, what an event would wait for now.
        expected = waiting[np.maximum(system.homes, 0)] + 1.0 / told.rate
        answered = _sums(of_set, tally.response, sets) / np.maximum(served, 1.0)
        dead = self._servers.stopped[system.homes] * (system.homes != ANYWHERE) == 1  # tells nothing
        self.load = replace(
            told,
            queue=np.where(dead, told.queue, _sums(of_set, queue, sets)),
            arrival=np.where(dead, told.arrival, _sums(of_set, tally.arrived, sets) / self._tell_seconds),
            rate=np.where(busy > 0, served / np.where(busy > 0, busy, 1.0), told.rate),
            response=np.where(dead, told.response, np.where(served > 0, answered, expected)),
        )
        total = int(tally.served.sum())
        return Period(
            end=self.now,
            arrived=count,
            answered=total,
            response=float(tally.response.sum()) / max(1, total),
            busy=_sums(self._slice_of_queue, tally.busy, system.slices) / self._tell_seconds,
            needed=_sums(self._slice_of_queue, tally.served * system.cost[of_set], system.slices)
            / self._tell_seconds,
            waiting=waiting,
            backlog=int(self._queues.length.sum()),
        )


def _sums(of: NDArray[np.int64], values: NDArray[Any], count: int) -> NDArray[np.float64]:
    return np.bincount(of, values, count).astype(np.float64)


def dispatchers(policy: str) -> list[Forwarding]:
    """The paper's two dispatchers, each of which gets half of the events."""
    if policy == AdaptiveForwarding.name:
        return [AdaptiveForwarding(1 / _DISPATCHERS)] * _DISPATCHERS
    return [forwarding_named(policy)()] * _DISPATCHERS


def highest(system: System) -> float:
    """An upper bound on the events per second that any policy can reach.

    Whatever the prices of the slices' time, an event costs at least the price of its cheapest candidate, and all
    slices together spend no more than the sum of their prices in a second. Prices rise where events crowd, so the
    bound comes close to the rate of the best policy."""
    candidates = system.candidates[:_BOUND_EVENTS]
    anywhere = system.homes == ANYWHERE
    cost = np.append(system.cost, np.inf)  # -1 is no candidate
    events = np.arange(len(candidates))
    prices = np.full(system.slices, 1 / system.slices)
    found = np.inf
    for turn in range(_BOUND_TURNS):
        by_set = np.append(np.where(anywhere, prices.min(), prices[system.homes]), 1.0)
        weighed = by_set[candidates] * cost[candidates]
        place = weighed.argmin(axis=1)
        found = min(found, 1.0 / float(weighed[events, place].mean()))
        chosen = candidates[events, place]
        load = np.bincount(
            system.homes[chosen][~anywhere[chosen]], cost[chosen][~anywhere[chosen]], system.slices
        )
        load = load + cost[chosen][anywhere[chosen]].sum() / system.slices
        prices *= np.exp(0.5 * (load / load.mean() - 1.0) / np.sqrt(1 + turn))
        prices /= prices.sum()
    return found


def saturation(system: System, policy: str, plan: BluedovePlan) -> float:
    """The saturation rate in events per second."""
    low, high = 0.0, 1.1 * highest(system)
    while high - low > plan.tolerance * high:
        rate = (low + high) / 2
        if is_saturated(system, policy, rate, plan):
            high = rate
        else:
            low = rate
    return (low + high) / 2


def is_saturated(system: System, policy: str, rate: float, plan: BluedovePlan) -> bool:
    seconds = max(plan.least_seconds, round(plan.events_per_slice * system.slices / rate))
    simulation = Simulation(system, dispatchers(policy))
    return grows([simulation.advance(rate) for _ in range(seconds)])


def grows(periods: Sequence[Period]) -> bool:
    """Whether some slice has more work waiting in the last quarter of the periods than in the quarter before."""
    quarter = len(periods) // 4
    before = np.mean([each.waiting for each in periods[-2 * quarter : -quarter]], axis=0)
    after = np.mean([each.waiting for each in periods[-quarter:]], axis=0)
    seconds = periods[-1].end - periods[-1 - quarter].end
    return bool(((after - before) / seconds).max() > _OVERLOADED)
