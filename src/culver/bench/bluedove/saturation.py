"""Finds the saturation rate by bisection: the highest rate at which queues do not grow."""

from collections.abc import Sequence

import numpy as np

from culver.bench.bluedove.bluedove_plan import BluedovePlan
from culver.bench.bluedove.simulation import Period, Simulation, System
from culver.matching import ANYWHERE
from culver.placement import AdaptiveForwarding, Forwarding
from culver.plugins import forwarding_named

DISPATCHERS = 2
_BOUND_EVENTS, _BOUND_TURNS = 1 << 14, 200
_OVERLOADED = 0.02  # a slice that gets so much more work than it can do is saturated


def dispatchers(policy: str) -> list[Forwarding]:
    """The paper's two dispatchers, each of which gets half of the events."""
    share = 1 / DISPATCHERS
    own: Forwarding = (
        AdaptiveForwarding(share) if policy == AdaptiveForwarding.name else forwarding_named(policy)()
    )
    return [own] * DISPATCHERS


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
