"""Figures 9 and 10: matchers join a saturated system, and matchers fail.

The elasticity controller is the real one, and a division changes as it does in the pipeline: between two batches,
after which all waiting events are sent again. Subscriptions move within a second.
"""

from functools import partial

import numpy as np

from culver.bench.bluedove import bluedove_paper as paper
from culver.bench.bluedove.bluedove_findings import FigureResult
from culver.bench.bluedove.simulated_world import EQUAL, World, WorldSetting
from culver.bench.bluedove.simulation import Period, Simulation, dispatchers
from culver.bench.line_plot import LinePlot
from culver.control import ElasticityController, ElasticitySettings, SliceLoad
from culver.placement import AdaptiveForwarding, MPartition

_BEGIN, _STEP = 0.85, 0.2  # rates, of the first saturation
_MOST = 32  # matchers
_FAILURE_RATE = 0.6  # of saturation with all matchers
_DRAINED = 1_000  # seconds after which what still waits counts as lost


def elasticity(world: World) -> FigureResult:
    setting = WorldSetting(EQUAL, min(world.plan.matchers))
    placement = _mpartition(world, setting)
    system, first = world.system(setting), world.saturation(setting)
    simulation = Simulation(system, dispatchers(AdaptiveForwarding.name))
    controller = ElasticityController(ElasticitySettings(least=setting.matchers, most=_MOST))
    periods: list[Period] = []
    added: list[int] = []  # periods after which there is a matcher more
    for step in range(world.plan.steps):
        for _ in range(world.plan.step_seconds):
            period = simulation.advance((_BEGIN + _STEP * step) * first)
            periods.append(period)
            held = np.bincount(
                np.maximum(system.homes, 0), system.registrations * (system.homes >= 0), placement.slices
            )
            loads = [
                SliceLoad(number, busy, int(held[number])) for number, busy in enumerate(period.busy.tolist())
            ]
            decision = controller.observe(period.end, period.backlog, period.arrived, loads)
            if decision.action == "add" and decision.slice is not None:
                placement = placement.with_slice_added(decision.slice).placement
                system = world.divided(setting, placement)
                simulation.change(system)
                added.append(len(periods) - 1)
                world.tell(f"  matcher {placement.slices} at {period.end:.0f} s: {decision.reason}")
    falls = [_seconds_to_fall(periods, at) for at in added] or [periods[-1].end]
    slow = sum(at + fall > later for at, later, fall in zip(added, added[1:], falls, strict=False))
    value, falling = partial(world.value, setting, "9"), "response time falls after a matcher was added"
    rises = (
        f"the rate rises from {_BEGIN} of saturation by {_STEP} every {world.plan.step_seconds} s; paper: 3"
    )
    anew, more = "ours: what waits is divided anew, too", "one matcher was not enough for the rate"
    values = [
        value("matchers added", "", float(len(added)), note=rises),
        value(f"{falling}, average", "s", float(np.mean(falls)), paper.FALLS_WITHIN_SECONDS, anew),
        value(f"{falling}, median", "s", float(np.median(falls))),
        value("matchers after which it rose until another came", "", float(slow), note=more),
    ]
    return values, [_over_time("figure-9", "Figure 9: matchers added", periods, world)]


def _seconds_to_fall(periods: list[Period], at: int) -> float:
    """Seconds until responses are faster than in the period before the change, or until the end."""
    later = (each for each in periods[at + 1 :] if each.response < periods[at].response)
    return next(later, periods[-1]).end - periods[at].end


def failures(world: World) -> FigureResult:
    setting = WorldSetting(EQUAL, max(world.plan.matchers))
    rate = _FAILURE_RATE * world.saturation(setting)
    every = min(paper.FAILURE_EVERY_SECONDS, world.plan.failure_events / rate / (world.plan.failures + 1))
    seconds = max(round(every), round(3 * paper.DETECTED_AFTER_SECONDS))
    periods, lost, delayed = _failing(world, setting, rate, seconds)
    quiet = [each.response for each in periods[seconds // 2 : seconds]]
    after = [each.response for each in periods[-seconds // 3 :]]
    note = f"one of {setting.matchers} fails every {seconds} s, {world.plan.failures} in all"
    slowed = float(np.median(after) / np.median(quiet))
    until_known = f"for {paper.DETECTED_AFTER_SECONDS} s, which is the paper's; its are lost"
    again, more = f"{note}; ours: sent again from the log", "paper: slightly more"
    value = partial(world.value, setting, "10")
    values = [
        value("events lost", "%", float(lost), paper.LOST_PERCENT, again),
        value("events delayed until a failure is known", "%", delayed, paper.LOST_PERCENT, until_known),
        value("response time after all failures, times that before", "times", slowed, note=more),
    ]
    return values, [_over_time("figure-10", "Figure 10: matchers fail", periods, world)]


def _failing(world: World, setting: WorldSetting, rate: float, every: int) -> tuple[list[Period], int, float]:
    """Let one matcher after another fail. After each failure the remaining slices are renumbered.

    Returns the periods, how many events were lost, and the share of events in percent that came before a failure
    was known."""
    placement = _mpartition(world, setting)
    simulation = Simulation(world.system(setting), dispatchers(AdaptiveForwarding.name))
    known_after = int(np.ceil(paper.DETECTED_AFTER_SECONDS))
    periods = [simulation.advance(rate) for _ in range(every)]
    delayed: list[float] = []
    for failure in range(world.plan.failures):
        dead = (7 * failure) % placement.slices
        simulation.stop(dead)
        before = [simulation.advance(rate) for _ in range(known_after)]
        delayed.append(100 * simulation.waiting(dead) / sum(each.arrived for each in before))
        placement = placement.with_slice_removed(dead).placement
        simulation.change(world.divided(setting, placement))
        periods += before
        periods += [simulation.advance(rate) for _ in range(every - known_after)]
    arrived, answered = sum(each.arrived for each in periods), sum(each.answered for each in periods)
    while answered < arrived and simulation.now < periods[-1].end + _DRAINED:
        answered += simulation.advance(0.0).answered
    return periods, arrived - answered, float(np.mean(delayed))


def _mpartition(world: World, setting: WorldSetting) -> MPartition:
    placement = world.placement(setting)
    assert isinstance(placement, MPartition)
    return placement


def _over_time(name: str, title: str, periods: list[Period], world: World) -> LinePlot:
    lines = {"mean": [(each.end, each.response) for each in periods]}
    return LinePlot(name, f"{title}, {world.service.name} costs", "seconds", "seconds", lines)
