"""Figures 5 to 8 and 11: saturation by system, size, forwarding policy and workload, and the load around it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from culver.bench.bluedove import bluedove_paper as paper
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
from culver.bench.bluedove.simulation import Simulation, dispatchers, highest
from culver.bench.line_plot import LinePlot
from culver.placement import AdaptiveForwarding

_SYSTEMS = (EQUAL, QUANTILES, ONE_DIMENSION, REPLICATED)
_ALMOST = 0.95  # of saturation
_DIMENSIONS = (1, 2, 3, 4)
_DEVIATIONS = (250, 500, 750, 1000)
_SKEWED = (0, 1, 2, 3, 4)


def response_over_time(world: World) -> FigureResult:
    """Figure 5."""
    setting = WorldSetting(EQUAL, max(world.plan.matchers))
    lines: dict[str, list[tuple[float, float]]] = {}
    values: list[Value] = []
    for name, rate in (("below", paper.BELOW), ("above", paper.ABOVE)):
        share = rate / paper.SATURATION
        simulation = Simulation(world.system(setting), dispatchers(world.policy(setting)))
        periods = [
            simulation.advance(share * world.saturation(setting)) for _ in range(world.plan.over_time_seconds)
        ]
        lines[f"{name} saturation"] = [(each.end, each.response) for each in periods]
        middle, last = periods[len(periods) // 2], periods[-1]
        growth = (last.response - middle.response) / (last.end - middle.end)
        what = f"growth of the response time at {share:.2f} of saturation"
        note = "paper: constant" if name == "below" else f"paper: linear; in theory {1 - 1 / share:.2f}"
        values.append(world.value(setting, "5", what, "s/s", growth, note=note))
    title = f"Figure 5: response time, {world.service.name} costs"
    return values, [LinePlot("figure-5", title, "seconds", "seconds", lines)]


def saturation_by_size(world: World) -> FigureResult:
    """Figures 6(a) and 6(b)."""
    values: list[Value] = []
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in _SYSTEMS}
    for matchers in world.plan.matchers:
        settings = {name: WorldSetting(name, matchers) for name in _SYSTEMS}
        rates = {name: world.saturation(setting) for name, setting in settings.items()}
        for name, rate in rates.items():
            ours = rate * world.service.scale
            lines[name].append((matchers, ours))
            quoted = paper.SATURATION if (name, matchers) == (EQUAL, paper.MATCHERS) else None
            note = "proportional: the unit of costs is the paper's rate of replication" if quoted else ""
            values.append(
                world.value(settings[name], "6a", "saturation rate", "events/s", ours, quoted, note)
            )
        for name in (EQUAL, QUANTILES):
            value = partial(world.value, settings[name], "6a")
            times, bound = "saturation rate, times that of", _bound(world, settings[name])
            one, all_of_it = rates[name] / rates[ONE_DIMENSION], rates[name] / rates[REPLICATED]
            values += [
                value(f"{times} {ONE_DIMENSION}", "times", one, paper.OVER_ONE_DIMENSION.get(matchers)),
                value(
                    f"{times} {REPLICATED}", "times", all_of_it, paper.OVER_REPLICATED.get(matchers), bound
                ),
            ]
    title = f"Figure 6(a): saturation, {world.service.name} costs"
    plot = LinePlot("figure-6a", title, "matchers", "events/s", lines)
    return values + _more_subscriptions(world), [plot]


def _bound(world: World, setting: WorldSetting) -> str:
    """Explain what limits the gain over replication: some slice must match every event."""
    whole = world.system(replace(setting, system=REPLICATED))
    bound = highest(world.system(setting)) / highest(whole)
    return f"{world.service.name}: no policy can be above {bound:.1f}"


def _more_subscriptions(world: World) -> list[Value]:
    """Find how many subscriptions each system can hold at one rate.

    With proportional costs all sets grow in step, so the rate falls as the number of subscriptions grows. Our
    matcher is measured at several numbers; the rate is the one at which replication saturates with the middle
    number."""
    settings = {name: WorldSetting(name, max(world.plan.matchers)) for name in _SYSTEMS}
    if world.service.name == Measured.name:
        curves = {
            name: {
                count: world.saturation(replace(setting, subscriptions=count))
                for count in sorted(world.plan.more)
            }
            for name, setting in settings.items()
        }
        rate = curves[REPLICATED][sorted(world.plan.more)[1]]
        held = {name: _number_at(curve, rate) for name, curve in curves.items()}
        note = f"measured: at {rate * world.service.scale:,.0f}/s"
    else:
        scale = world.plan.subscriptions / paper.RATE
        held = {name: scale * world.saturation(setting) for name, setting in settings.items()}
        note = f"proportional: at {paper.RATE:,.0f}/s"
    values = [
        world.value(setting, "6b", "most subscriptions at one rate", "", held[name], note=note)
        for name, setting in settings.items()
    ]
    for name in (EQUAL, QUANTILES):
        for other, quoted in (
            (ONE_DIMENSION, paper.MORE_THAN_ONE_DIMENSION),
            (REPLICATED, paper.MORE_THAN_REPLICATED),
        ):
            what = f"most subscriptions, times those of {other}"
            values.append(world.value(settings[name], "6b", what, "times", held[name] / held[other], quoted))
    return values


def _number_at(curve: Mapping[int, float], rate: float) -> float:
    """Interpolate and extrapolate a curve with straight lines on logarithmic axes."""
    counts = sorted(curve)
    place = next((i for i in range(1, len(counts) - 1) if curve[counts[i]] <= rate), len(counts) - 1)
    few, many = counts[place - 1], counts[place]
    slope = math.log(many / few) / math.log(curve[many] / curve[few])
    return float(few * (rate / curve[few]) ** slope)


def by_policy(world: World) -> FigureResult:
    """Figure 7."""
    values: list[Value] = []
    adaptive = AdaptiveForwarding.name
    for name in (EQUAL, QUANTILES):
        setting = WorldSetting(name, max(world.plan.matchers))
        rates = {policy: world.saturation(setting, policy) for policy in (adaptive, *paper.ADAPTIVE_OVER)}
        for policy, rate in rates.items():
            ours = rate * world.service.scale
            values.append(world.value(setting, "7", "saturation rate", "events/s", ours, policy=policy))
        for policy, quoted in paper.ADAPTIVE_OVER.items():
            what = f"saturation rate of adaptive, times that of {policy}"
            values.append(world.value(setting, "7", what, "times", rates[adaptive] / rates[policy], quoted))
    return values, []


def balance(world: World) -> FigureResult:
    """Figure 8: the load of matchers in each system, just below its saturation."""
    values: list[Value] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for name in (EQUAL, QUANTILES, ONE_DIMENSION):
        setting = WorldSetting(name, max(world.plan.matchers))
        rate = _ALMOST * world.saturation(setting)
        simulation = Simulation(world.system(setting), dispatchers(world.policy(setting)))
        seconds = max(20, round(world.plan.events_per_slice * setting.matchers / rate))
        periods = [simulation.advance(rate) for _ in range(seconds)]
        busy = np.mean([each.needed for each in periods[seconds // 2 :]], axis=0)
        lines[name] = [(number, each) for number, each in enumerate(busy.tolist(), start=1)]
        what, ours = "deviation of the load of matchers, of its average", float(busy.std() / busy.mean())
        quoted = paper.DEVIATION[ONE_DIMENSION if name == ONE_DIMENSION else EQUAL]
        values.append(world.value(setting, "8", what, "", ours, quoted, "at 0.95 of its saturation"))
    title = f"Figure 8: load of matchers, {world.service.name} costs"
    return values, [LinePlot("figure-8", title, "matcher", "busy", lines)]


def variations(world: World) -> FigureResult:
    """Figure 11: fewer dimensions, less skewed subscriptions, and events as skewed as subscriptions."""
    equal = WorldSetting(EQUAL, max(world.plan.matchers))
    divided_once = replace(equal, system=ONE_DIMENSION)

    def rate(setting: WorldSetting) -> float:
        return world.service.scale * world.saturation(setting)

    dimensions = {count: rate(replace(equal, dimensions=count)) for count in _DIMENSIONS}
    deviations = {each: rate(replace(equal, deviation=float(each))) for each in _DEVIATIONS}
    skewed = {count: rate(replace(equal, skewed=count)) for count in _SKEWED}
    one = rate(divided_once)
    adverse = rate(replace(divided_once, skewed=4))
    flat = rate(replace(divided_once, deviation=1000.0))

    def value(figure: str, what: str, ours: float, quoted: float | None = None) -> Value:
        return world.value(equal, figure, what, "times", ours, quoted)

    def rates(figure: str, form: str, found: Mapping[int, float]) -> list[Value]:
        what = f"saturation rate, {form}"
        return [
            world.value(equal, figure, what.format(each), "events/s", ours) for each, ours in found.items()
        ]

    left, most_skewed = deviations[1000] / deviations[250], skewed[4]
    gained = dimensions[4] / dimensions[1]
    values = [
        *rates("11a", "{} dimensions", dimensions),
        value("11a", "4 dimensions, times 1", gained, paper.FOUR_DIMENSIONS_OVER_ONE),
        *rates("11b", "standard deviation {}", deviations),
        value("11b", "deviation 1000, times 250", left, paper.LEFT_AT_DEVIATION_1000),
        value("11b", "deviation 1000, times one-dimension there", deviations[1000] / flat),
        *rates("11c", "{} dimensions adversely skewed", skewed),
        value("11c", "4 skewed, times none", most_skewed / skewed[0], paper.LEFT_WITH_FOUR_SKEWED),
        value(
            "11c",
            "4 skewed, times one-dimension with even events",
            most_skewed / one,
            paper.SKEWED_OVER_ONE_DIMENSION,
        ),
        value("11c", "4 skewed, times one-dimension with the same events", most_skewed / adverse),
    ]
    plots = [
        LinePlot(
            f"figure-{number}",
            f"Figure {number}: {world.service.name} costs",
            across,
            "events/s",
            {EQUAL: list(found.items())},
        )
        for number, across, found in (
            ("11a", "dimensions", dimensions),
            ("11b", "standard deviation", deviations),
            ("11c", "dimensions adversely skewed", skewed),
        )
    ]
    return values, plots
