"""Figures 5 and 6: response times below and above saturation, and saturation as matchers and subscriptions grow."""

import math
from collections.abc import Mapping
from dataclasses import replace

from culver.bench.bluedove import bluedove_paper, saturation
from culver.bench.bluedove.bluedove_findings import FigureResult, Value
from culver.bench.bluedove.service_times import Measured
from culver.bench.bluedove.simulated_world import (
    EQUAL,
    ONE_DIMENSION,
    QUANTILES,
    REPLICATED,
    World,
    WorldSetting,
)
from culver.bench.bluedove.simulation import Simulation
from culver.bench.line_plot import LinePlot

RESPONSE, SATURATION = "5", "6"
_SYSTEMS = (EQUAL, QUANTILES, ONE_DIMENSION, REPLICATED)


def response_over_time(world: World) -> FigureResult:
    setting = WorldSetting(EQUAL, max(world.plan.matchers))
    system, limit = world.system(setting), world.saturation(setting)
    lines: dict[str, list[tuple[float, float]]] = {}
    values: list[Value] = []
    for name, share in (
        ("below", bluedove_paper.BELOW / bluedove_paper.SATURATION),
        ("above", bluedove_paper.ABOVE / bluedove_paper.SATURATION),
    ):
        simulation = Simulation(system, saturation.dispatchers(world.policy(setting)))
        periods = [simulation.advance(share * limit) for _ in range(world.plan.over_time_seconds)]
        lines[f"{name} saturation"] = [(each.end, each.response) for each in periods]
        half = len(periods) // 2
        growth = (periods[-1].response - periods[half].response) / (periods[-1].end - periods[half].end)
        values.append(
            Value(
                figure=RESPONSE,
                what=f"growth of the response time at {share:.2f} of saturation",
                unit="s/s",
                ours=growth,
                system=EQUAL,
                policy=world.policy(setting),
                matchers=setting.matchers,
                note="paper: constant"
                if name == "below"
                else f"paper: linear; in theory {1 - 1 / share:.2f}",
            )
        )
    title = f"Figure 5: response time, {world.service.name} costs"
    return FigureResult(values, [LinePlot("figure-5", title, "seconds", "seconds", lines)])


def saturation_by_size(world: World) -> FigureResult:
    """Figures 6(a) and 6(b)."""
    values: list[Value] = []
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in _SYSTEMS}
    for matchers in world.plan.matchers:
        rates = {name: world.saturation(WorldSetting(name, matchers)) for name in _SYSTEMS}
        for name, rate in rates.items():
            lines[name].append((matchers, rate * world.service.scale))
            quoted = (
                bluedove_paper.SATURATION if (name, matchers) == (EQUAL, bluedove_paper.MATCHERS) else None
            )
            note = "proportional: the unit of costs is the paper's rate of replication" if quoted else ""
            values.append(
                _value(
                    world,
                    "6a",
                    "saturation rate",
                    "events/s",
                    rate * world.service.scale,
                    name,
                    matchers,
                    quoted,
                    note,
                )
            )
        for name in (EQUAL, QUANTILES):
            for other, quotes in (
                (ONE_DIMENSION, bluedove_paper.OVER_ONE_DIMENSION),
                (REPLICATED, bluedove_paper.OVER_REPLICATED),
            ):
                note = _why(world, WorldSetting(name, matchers)) if other == REPLICATED else ""
                values.append(
                    _value(
                        world, "6a", f"saturation rate, times that of {other}", "times", rates[name] / rates[other],
                        name, matchers, quotes.get(matchers), note,
                    )
                )  # fmt: skip
    more = _more_subscriptions(world)
    title = f"Figure 6(a): saturation, {world.service.name} costs"
    return FigureResult(values + more, [LinePlot("figure-6a", title, "matchers", "events/s", lines)])


def _more_subscriptions(world: World) -> list[Value]:
    """Find how many subscriptions each system can hold at one rate.

    With proportional costs all sets grow in step, so the rate falls as the number of subscriptions grows. Our
    matcher is measured at several numbers; the rate is the one at which replication saturates with the middle
    number."""
    matchers = max(world.plan.matchers)
    held: dict[str, float] = {}
    if world.service.name == Measured.name:
        curves = {name: _curve(world, WorldSetting(name, matchers)) for name in _SYSTEMS}
        rate = curves[REPLICATED][sorted(curves[REPLICATED])[1]]
        held = {name: _number_at(curve, rate) for name, curve in curves.items()}
        note = f"measured: at {rate * world.service.scale:,.0f}/s"
    else:
        for name in _SYSTEMS:
            held[name] = (
                world.plan.subscriptions
                * world.saturation(WorldSetting(name, matchers))
                / bluedove_paper.RATE
            )
        note = f"proportional: at {bluedove_paper.RATE:,.0f}/s"
    values = [
        _value(world, "6b", "most subscriptions at one rate", "", held[name], name, matchers, None, note)
        for name in _SYSTEMS
    ]
    for name in (EQUAL, QUANTILES):
        for other, quoted in (
            (ONE_DIMENSION, bluedove_paper.MORE_THAN_ONE_DIMENSION),
            (REPLICATED, bluedove_paper.MORE_THAN_REPLICATED),
        ):
            values.append(
                _value(
                    world, "6b", f"most subscriptions, times those of {other}", "times", held[name] / held[other],
                    name, matchers, quoted, "",
                )
            )  # fmt: skip
    return values


def _curve(world: World, setting: WorldSetting) -> dict[int, float]:
    return {
        count: world.saturation(replace(setting, subscriptions=count)) for count in sorted(world.plan.more)
    }


def _number_at(curve: Mapping[int, float], rate: float) -> float:
    """Interpolate and extrapolate a curve with straight lines on logarithmic axes."""
    counts = sorted(curve)
    place = next((i for i in range(1, len(counts) - 1) if curve[counts[i]] <= rate), len(counts) - 1)
    few, many = counts[place - 1], counts[place]
    slope = math.log(many / few) / math.log(curve[many] / curve[few])
    return float(few * (rate / curve[few]) ** slope)


def _why(world: World, setting: WorldSetting) -> str:
    """Explain what limits the gain over replication: some slice must match every event."""
    whole = world.system(replace(setting, system=REPLICATED))
    bound = saturation.highest(world.system(setting)) / saturation.highest(whole)
    return f"{world.service.name}: no policy can be above {bound:.1f}"


def _value(
    world: World,
    figure: str,
    what: str,
    unit: str,
    ours: float,
    name: str,
    matchers: int,
    quoted: float | None,
    note: str,
) -> Value:
    return Value(
        figure=figure,
        what=what,
        unit=unit,
        ours=ours,
        system=name,
        policy=world.policy(WorldSetting(name)),
        matchers=matchers,
        paper=quoted,
        note=note,
    )
