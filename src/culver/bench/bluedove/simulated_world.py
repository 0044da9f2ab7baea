"""Systems to simulate: the paper's workload, divided by our placements, with one of the cost models."""

import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.bench_frame import BenchmarkFailed, Tell
from culver.bench.bluedove.bluedove_findings import Value
from culver.bench.bluedove.bluedove_plan import SEED, BluedovePlan
from culver.bench.bluedove.service_times import Service
from culver.bench.bluedove.simulation import System, saturation
from culver.bench.matching.drawn_subscriptions import Form, draw
from culver.bench.workloads.uniform_ranges import LENGTH, RangesWorkload
from culver.matching import ClauseTable, compile_rows
from culver.model.language import prepare
from culver.placement import (
    AdaptiveForwarding,
    DivisionOptions,
    MPartition,
    OneDimension,
    Placement,
    RandomForwarding,
    Replicated,
)

EQUAL, QUANTILES = "mpartition", "mpartition, quantiles"
ONE_DIMENSION, REPLICATED = OneDimension.name, Replicated.name
_LEARNT_FROM = 8_192  # events


@dataclass(frozen=True, slots=True)
class Scene:
    """The subscriptions of a workload, and the pool of its events."""

    form: Form
    table: ClauseTable
    cropped: ClauseTable  # the same without what lies outside the space: the paper's dimensions end there
    events: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class WorldSetting:
    """A system of the paper's evaluation."""

    system: str = EQUAL
    matchers: int = 20
    dimensions: int = 4
    deviation: float = 250.0
    skewed: int = 0  # dimensions in which events are where subscriptions are
    subscriptions: int | None = None  # None: the plan's


class World:
    """Builds systems and finds their saturation. Caches every result."""

    def __init__(self, plan: BluedovePlan, service: Service, tell: Tell) -> None:
        self.plan = plan
        self.service = service
        self.tell = tell
        self.scene = functools.cache(self._scene)
        self.placement = functools.cache(self._placement)
        self.system = functools.cache(self._system)
        self._saturated = functools.cache(self._search)

    def divided(self, setting: WorldSetting, placement: Placement) -> System:
        """The system that results when this placement divides the setting's subscriptions and events."""
        scene = self.scene(setting.deviation, setting.skewed, setting.subscriptions)
        held = placement.assign(scene.table)
        sizes = np.count_nonzero(held, axis=0)
        candidates = _only_choice(placement.route(scene.events).choices, sizes)
        times = self.service.times(scene.form, held, scene.events, candidates)
        return System(
            placement.slices, placement.homes, sizes, times.fixed, times.each, times.most, candidates
        )

    def saturation(self, setting: WorldSetting, policy: str | None = None) -> float:
        """The saturation rate of the simulated matchers, in events per second."""
        return self._saturated(setting, policy or self.policy(setting))

    def policy(self, setting: WorldSetting) -> str:
        """The forwarding policy that the paper uses with such a system."""
        return RandomForwarding.name if setting.system == REPLICATED else AdaptiveForwarding.name

    def value(
        self,
        setting: WorldSetting,
        figure: str,
        what: str,
        unit: str,
        ours: float,
        paper: float | None = None,
        note: str = "",
        policy: str | None = None,
    ) -> Value:
        """A number of this world. The policy is the paper's, unless told otherwise."""
        return Value(
            figure=figure, what=what, unit=unit, ours=ours, system=setting.system,
            policy=policy or self.policy(setting), matchers=setting.matchers, paper=paper, note=note,
        )  # fmt: skip

    def _scene(self, deviation: float, skewed: int, subscriptions: int | None) -> Scene:
        workload = RangesWorkload(deviation, skewed)
        form = draw(workload, subscriptions or self.plan.subscriptions, SEED).forms[0]
        cropped = [np.clip(column, 0.0, LENGTH) for column in form.columns]
        return Scene(
            form,
            compile_rows(prepare(form.text), form.numbers, form.columns),
            compile_rows(prepare(form.text), form.numbers, cropped),
            workload.event_batch(self.plan.pool, SEED),
        )

    def _placement(self, setting: WorldSetting) -> Placement:
        scene = self.scene(setting.deviation, setting.skewed, setting.subscriptions)
        if setting.system == REPLICATED:
            return Replicated(setting.matchers)
        if setting.system == ONE_DIMENSION:
            return OneDimension.learnt(scene.cropped, setting.matchers)
        dividing = DivisionOptions(setting.dimensions, 1, "equal" if setting.system == EQUAL else "quantiles")
        events = scene.events.slice(0, _LEARNT_FROM)
        return MPartition.learnt(scene.cropped, setting.matchers, events, dividing)

    def _system(self, setting: WorldSetting) -> System:
        return self.divided(setting, self.placement(setting))

    def _search(self, setting: WorldSetting, policy: str) -> float:
        found = saturation(self.system(setting), policy, self.plan)
        shown = f"{found * self.service.scale:,.0f}/s"
        self.tell(f"  {setting.system}, {setting.matchers} matchers, {policy}: {shown}")
        return found


def _only_choice(choices: tuple[NDArray[np.int64], ...], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The only choice that leads to subscriptions. Raises BenchmarkFailed where there are several, which the
    simulation does not cover."""
    leading = [choice for choice in choices if sizes[choice[choice >= 0]].any()]
    if len(leading) != 1:
        raise BenchmarkFailed(
            f"the placement has divided the paper's workload into {len(leading)} choices instead of one"
        )
    return np.ascontiguousarray(leading[0])
