"""The saturation rate: the highest at which queues do not grow, found by bisection."""

from collections.abc import Sequence

import numpy as np

from culver.bench.bluedove.plan import BluedovePlan
from culver.bench.bluedove.simulation import Period, Simulation, System
from culver.placement.forwarding import Adaptive, Forwarding
from culver.plugins import forwarding_named

DISPATCHERS = 2
_OVERLOADED = 0.02  # a slice that gets so much more work than it can do is saturated


def dispatchers(policy: str) -> list[Forwarding]:
    """The paper's two, each with half of the events."""
    share = 1 / DISPATCHERS
    own: Forwarding = Adaptive(share) if policy == Adaptive.name else forwarding_named(policy)()
    return [own] * DISPATCHERS


def highest(system: System) -> float:
    """No policy can do more: every event where it costs least, and all slices always busy."""
    cost = np.where(system.candidates >= 0, system.cost[system.candidates], np.inf).min(axis=1)
    return system.slices / float(cost.mean())


def saturation(system: System, policy: str, plan: BluedovePlan) -> float:
    """Events a second."""
    low, high = 0.0, 1.05 * highest(system)
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
    """Whether what waits at some slice is more in the last quarter than in the one before."""
    quarter = len(periods) // 4
    before = np.mean([each.waiting for each in periods[-2 * quarter : -quarter]], axis=0)
    after = np.mean([each.waiting for each in periods[-quarter:]], axis=0)
    seconds = periods[-1].end - periods[-1 - quarter].end
    return bool(((after - before) / seconds).max() > _OVERLOADED)
