"""How much the BlueDove benchmark simulates."""

from collections.abc import Sequence
from dataclasses import dataclass

FIGURES = ("5", "6", "7", "8", "9", "10", "11")
SEED = 1


@dataclass(frozen=True, slots=True)
class BluedovePlan:
    figures: Sequence[str] = FIGURES
    subscriptions: int = 40_000
    pool: int = 1 << 16  # events that all events are drawn from
    matchers: Sequence[int] = (5, 10, 15, 20)
    more: Sequence[int] = (10_000, 40_000, 200_000)  # subscriptions that figure 6(b) is measured with
    events_per_slice: int = 40_000  # to tell whether queues grow
    tolerance: float = 0.01  # of a saturation rate
    rounds: int = 15  # in which our matcher is measured
    slowed: float = 250.0  # times, our matcher in the simulation
    batch: int = 1_024  # events that it takes at once, at most
    least_seconds: int = 12  # to tell whether queues grow
    over_time_seconds: int = 60  # of figure 5
    steps: int = 6  # of figure 9
    step_seconds: int = 60
    failures: int = 5  # of figure 10
    failure_events: int = 30_000_000  # of figure 10, in all: with more, failures come sooner


def quick_plan(figures: Sequence[str]) -> BluedovePlan:
    """A plan that runs everything once, on little data, to show that it works. Its figures mean nothing."""
    return BluedovePlan(
        figures=figures,
        subscriptions=2_000,
        pool=4_096,
        matchers=(5, 20),
        more=(1_000, 2_000, 4_000),
        events_per_slice=1_000,
        tolerance=0.06,
        rounds=1,
        slowed=5_000.0,
        batch=64,
        least_seconds=8,
        over_time_seconds=12,
        steps=3,
        step_seconds=50,
        failures=2,
        failure_events=300_000,
    )
