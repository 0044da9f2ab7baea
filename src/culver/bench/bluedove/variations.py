"""Figure 11: fewer dimensions, less skewed subscriptions, and events as skewed as subscriptions."""

from collections.abc import Mapping, Sequence

from culver.bench.bluedove import bluedove_paper
from culver.bench.bluedove.bluedove_findings import FigureResult, Value
from culver.bench.bluedove.simulated_world import EQUAL, ONE_DIMENSION, World, WorldSetting
from culver.bench.line_plot import LinePlot

VARIATIONS = "11"
_DIMENSIONS = (1, 2, 3, 4)
_DEVIATIONS = (250, 500, 750, 1000)
_SKEWED = (0, 1, 2, 3, 4)


def variations(world: World) -> FigureResult:
    matchers = max(world.plan.matchers)
    scale = world.service.scale
    dimensions = {
        count: scale * world.saturation(WorldSetting(EQUAL, matchers, dimensions=count))
        for count in _DIMENSIONS
    }
    deviations = {
        each: scale * world.saturation(WorldSetting(EQUAL, matchers, deviation=float(each)))
        for each in _DEVIATIONS
    }
    skewed = {
        count: scale * world.saturation(WorldSetting(EQUAL, matchers, skewed=count)) for count in _SKEWED
    }
    one = scale * world.saturation(WorldSetting(ONE_DIMENSION, matchers))
    adverse = scale * world.saturation(WorldSetting(ONE_DIMENSION, matchers, skewed=max(_SKEWED)))
    flat = scale * world.saturation(WorldSetting(ONE_DIMENSION, matchers, deviation=float(max(_DEVIATIONS))))

    def value(figure: str, what: str, ours: float, unit: str = "times", quoted: float | None = None) -> Value:
        return Value(
            figure=figure, what=what, unit=unit, ours=ours, system=EQUAL, policy=world.policy(WorldSetting()),
            matchers=matchers, paper=quoted,
        )  # fmt: skip

    values = [
        value("11a", f"saturation rate, {count} dimensions", rate, "events/s")
        for count, rate in dimensions.items()
    ]
    values.append(
        value(
            "11a",
            "4 dimensions, times 1",
            dimensions[4] / dimensions[1],
            quoted=bluedove_paper.FOUR_DIMENSIONS_OVER_ONE,
        )
    )
    values += [
        value("11b", f"saturation rate, standard deviation {each}", rate, "events/s")
        for each, rate in deviations.items()
    ]
    left = deviations[1000] / deviations[250]
    values.append(
        value("11b", "deviation 1000, times 250", left, quoted=bluedove_paper.LEFT_AT_DEVIATION_1000)
    )
    values.append(value("11b", "deviation 1000, times one-dimension there", deviations[1000] / flat))
    values += [
        value("11c", f"saturation rate, {count} dimensions adversely skewed", rate, "events/s")
        for count, rate in skewed.items()
    ]
    left = skewed[4] / skewed[0]
    values.append(value("11c", "4 skewed, times none", left, quoted=bluedove_paper.LEFT_WITH_FOUR_SKEWED))
    values.append(
        value(
            "11c", "4 skewed, times one-dimension with even events", skewed[4] / one,
            quoted=bluedove_paper.SKEWED_OVER_ONE_DIMENSION,
        )
    )  # fmt: skip
    values.append(value("11c", "4 skewed, times one-dimension with the same events", skewed[4] / adverse))
    plots = [
        _plot("figure-11a", "dimensions", dimensions, world),
        _plot("figure-11b", "standard deviation", deviations, world),
        _plot("figure-11c", "dimensions adversely skewed", skewed, world),
    ]
    return FigureResult(values, plots)


def _plot(name: str, across: str, rates: Mapping[int, float], world: World) -> LinePlot:
    points: Sequence[tuple[float, float]] = [(each, rate) for each, rate in rates.items()]
    title = f"{name.capitalize().replace('-', ' ')}: {world.service.name} costs"
    return LinePlot(name, title, across, "events/s", {EQUAL: points})
