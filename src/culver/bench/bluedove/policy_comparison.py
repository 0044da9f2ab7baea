"""Figures 7 and 8: forwarding policies, and how evenly matchers are loaded."""

import numpy as np

from culver.bench.bluedove import bluedove_paper, saturation
from culver.bench.bluedove.bluedove_findings import FigureResult, Value
from culver.bench.bluedove.simulated_world import EQUAL, ONE_DIMENSION, QUANTILES, World, WorldSetting
from culver.bench.bluedove.simulation import Simulation
from culver.bench.line_plot import LinePlot
from culver.placement import (
    AdaptiveForwarding,
    RandomForwarding,
    ResponseTimeForwarding,
    SubscriptionCountForwarding,
)

POLICIES, BALANCE = "7", "8"
_ALMOST = 0.95  # of saturation


def by_policy(world: World) -> FigureResult:
    matchers = max(world.plan.matchers)
    values: list[Value] = []
    for name in (EQUAL, QUANTILES):
        setting = WorldSetting(name, matchers)
        rates = {
            policy: world.saturation(setting, policy)
            for policy in (
                AdaptiveForwarding.name,
                ResponseTimeForwarding.name,
                SubscriptionCountForwarding.name,
                RandomForwarding.name,
            )
        }
        for policy, rate in rates.items():
            ours = rate * world.service.scale
            values.append(
                Value(
                    figure=POLICIES, what="saturation rate", unit="events/s", ours=ours, system=name,
                    policy=policy, matchers=matchers,
                )
            )  # fmt: skip
        values += [
            Value(
                figure=POLICIES, what=f"saturation rate of adaptive, times that of {policy}", unit="times",
                ours=rates[AdaptiveForwarding.name] / rates[policy], system=name, policy=AdaptiveForwarding.name,
                matchers=matchers, paper=quoted,
            )
            for policy, quoted in bluedove_paper.ADAPTIVE_OVER.items()
        ]  # fmt: skip
    return FigureResult(values, [])


def balance(world: World) -> FigureResult:
    """Compare the load of matchers in each system, just below its saturation."""
    matchers = max(world.plan.matchers)
    values: list[Value] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for name in (EQUAL, QUANTILES, ONE_DIMENSION):
        setting = WorldSetting(name, matchers)
        rate = _ALMOST * world.saturation(setting)
        simulation = Simulation(world.system(setting), saturation.dispatchers(world.policy(setting)))
        seconds = max(20, round(world.plan.events_per_slice * matchers / rate))
        periods = [simulation.advance(rate) for _ in range(seconds)]
        busy = np.mean([each.needed for each in periods[seconds // 2 :]], axis=0)
        lines[name] = [(number, each) for number, each in enumerate(busy.tolist(), start=1)]
        values.append(
            Value(
                figure=BALANCE,
                what="deviation of the load of matchers, of its average",
                unit="",
                ours=float(busy.std() / busy.mean()),
                system=name,
                policy=world.policy(setting),
                matchers=matchers,
                paper=bluedove_paper.DEVIATION[ONE_DIMENSION if name == ONE_DIMENSION else EQUAL],
                note="at 0.95 of its saturation",
            )
        )
    title = f"Figure 8: load of matchers, {world.service.name} costs"
    return FigureResult(values, [LinePlot("figure-8", title, "matcher", "busy", lines)])
