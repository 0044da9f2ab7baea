"""Decides when to add a slice, and when to remove one (BlueDove, section IV-E: matchers join under saturation).

    backlog                                       busy
      |            ......  grows: add             1 |-------  saturated, as last seen with so many slices
      |        ....                                 |
      |     ...   floor of the later half           |- - - -  comfortable: with one slice fewer it stays below
      | ....      is worth some seconds             |  ____   over a longer time: remove
      +---------------- window                      +---------------- idle window

The backlog tells saturation, not how busy the slices are: an engine that works in batches is saturated long before
its slices are busy all the time. How busy the slices are, compared with the last time when so many were saturated,
tells under-use. So a constant load that made a slice necessary does not take it away again.

Pure: observations in, decisions out, time passed in.
"""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Literal

from culver.config import PipelineSettings
from culver.errors import InvalidConfiguration

ELASTIC_PLACEMENTS = ("event-space", "mpartition", "one-dimension")
"""These cut dimensions into segments, and can cut or join a segment without any other slice."""

# A window with fewer says nothing.
_LEAST_OBSERVATIONS = 6
# Busy seconds a second of all slices together; below this, the engine does not work.
_WORKING = 0.01


@dataclass(frozen=True, slots=True)
class ElasticitySettings:
    """`stall_seconds` is less than half of `window_seconds`, so that a stall is recognised before its backlog can
    look like saturation."""

    least: int = 1
    most: int = 32
    window_seconds: float = 15.0  # over which the backlog must grow
    growth_share: float = 0.01  # of the arrivals: the least growth that counts
    worth_seconds: float = 2.0  # of work that the backlog must be worth, at its lowest in the later half
    idle_seconds: float = 60.0  # over which the slices must be under-used
    comfortable: float = 0.6  # share of the busy time at saturation that may be reached after a removal
    pause_seconds: float = 30.0  # after every change, also one by hand
    stall_seconds: float = 5.0  # without any work, though there is a backlog: the engine stands


def elasticity_settings(pipeline: PipelineSettings) -> ElasticitySettings:
    """The controller's settings, from those of a site. Raises InvalidConfiguration with the setting's name."""
    least, most, slices = pipeline.slices_min, pipeline.slices_max, pipeline.slices
    if most < least:
        raise InvalidConfiguration(
            f"pipeline.slices_max ({most}) must not be below pipeline.slices_min ({least})",
            field="pipeline.slices_max",
        )
    if pipeline.elastic and slices and not least <= slices <= most:
        raise InvalidConfiguration(
            f"pipeline.slices is {slices}, and with pipeline.elastic it must lie within pipeline.slices_min "
            f"({least}) and pipeline.slices_max ({most})",
            field="pipeline.slices",
        )
    if pipeline.elastic and pipeline.placement not in ("auto", *ELASTIC_PLACEMENTS):
        raise InvalidConfiguration(
            "pipeline.elastic needs a placement that can change while the site runs: "
            f"{', '.join(ELASTIC_PLACEMENTS)} or auto; pipeline.placement is {pipeline.placement!r}",
            field="pipeline.placement",
        )
    return ElasticitySettings(least, most)


@dataclass(frozen=True, slots=True)
class SliceLoad:
    slice: int
    busy: float  # seconds of work a second since the last observation; above 1 where several tasks share the slice
    registrations: int


@dataclass(frozen=True, slots=True)
class Decision:
    """`add`: a new slice is to take half of what `slice` has. `remove`: the neighbours of `slice` are to take over
    what it has. `nothing`: the slices are to stay as they are."""

    action: Literal["add", "remove", "nothing"]
    slice: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Observation:
    at_seconds: float
    backlog: int
    arrived: float
    busy: Mapping[int, float]
    total: float  # busy of all slices together


@dataclass(frozen=True, slots=True)
class _Busy:
    total: float  # of all slices together
    fullest: float  # of the one that had most to do


class ElasticityController:
    """Watches one pipeline. It relies on the observations alone: it repeats a decision that nobody carries out after
    a pause, and notices a change that somebody else makes by the numbers of the slices. Not thread-safe."""

    def __init__(self, settings: ElasticitySettings) -> None:
        self.last: tuple[float, Decision] | None = None
        """When it decided last, and what."""
        self.last_change: tuple[float, Decision] | None = None
        self._settings = settings
        self._seen: deque[_Observation] = deque()
        self._slices: Set[int] | None = None
        self._paused_until = float("-inf")
        self._worked_at = float("-inf")  # when it last saw work, or no need for any
        self._stalled = False
        # By how many slices there were, how busy they were when they were last saturated.
        self._saturated: dict[int, _Busy] = {}
        # The same for one slice, from the last saturation of any number of them.
        self._per_slice = _Busy(1.0, 1.0)

    def observe(
        self,
        at_seconds: float,
        backlog_events: int,
        arrived_per_second: float,
        slice_loads: Sequence[SliceLoad],
    ) -> Decision:
        """Returns what to do now. Call it about once a second, with any clock that goes forward; it ignores an
        observation that is not later than the last one."""
        if not slice_loads or (self.last is not None and at_seconds <= self.last[0]):
            return _keep("nothing new was observed")
        decision = self._take(at_seconds, backlog_events, arrived_per_second, slice_loads)
        self.last = at_seconds, decision
        if decision.action != "nothing":
            self.last_change = at_seconds, decision
            self._begin_anew(at_seconds)
        return decision

    def _take(
        self, at_seconds: float, backlog: int, arrived: float, slice_loads: Sequence[SliceLoad]
    ) -> Decision:
        busy = {each.slice: each.busy for each in slice_loads}
        if self._slices is not None and self._slices != busy.keys():
            self._begin_anew(at_seconds)
        self._slices = busy.keys()
        now = _Observation(at_seconds, backlog, arrived, busy, sum(busy.values()))
        self._notice_stall(now)
        self._seen.append(now)
        while at_seconds - self._seen[0].at_seconds > self._settings.idle_seconds:
            self._seen.popleft()
        if self._stalled:
            return _keep("there is a backlog and nothing is being worked on: the engine stands")
        if at_seconds < self._paused_until:
            left = self._paused_until - at_seconds
            return _keep(f"{left:.0f} seconds are left of the pause after the last change")
        return self._decide(slice_loads)

    def _begin_anew(self, at_seconds: float) -> None:
        self._seen.clear()
        self._paused_until = at_seconds + self._settings.pause_seconds

    def _notice_stall(self, now: _Observation) -> None:
        """Observations from before and during a stall say nothing about the load."""
        if now.total >= _WORKING or now.backlog == 0 or self._worked_at == float("-inf"):
            self._worked_at = now.at_seconds
            if self._stalled:
                self._stalled = False
                self._seen.clear()
        elif now.at_seconds - self._worked_at >= self._settings.stall_seconds:
            self._stalled = True

    def _decide(self, slice_loads: Sequence[SliceLoad]) -> Decision:
        count, settings = len(slice_loads), self._settings
        ranked = self._ranked(slice_loads)
        if count < settings.least:
            return Decision("add", ranked[-1], f"there are to be at least {settings.least} slices")
        if count > settings.most:
            return Decision("remove", ranked[0], f"there are to be at most {settings.most} slices")
        saturation = self._saturation(count)
        if saturation is None:
            return self._under_use(count, ranked[0])
        if count == settings.most:
            return _keep(f"{saturation}, but there are to be at most {settings.most} slices")
        return Decision("add", ranked[-1], f"{saturation}; slice {ranked[-1]} is the most loaded of {count}")

    def _ranked(self, slice_loads: Sequence[SliceLoad]) -> list[int]:
        """The slices from the least loaded on, over the shorter window; among equals the last one comes first."""
        shares = _shares(self._recent(self._settings.window_seconds))
        held = {each.slice: each.registrations for each in slice_loads}
        return sorted(held, key=lambda each: (shares[each], held[each], -each))

    def _recent(self, seconds: float) -> list[_Observation]:
        start = self._seen[-1].at_seconds - seconds
        return [each for each in self._seen if each.at_seconds >= start]

    def _saturation(self, count: int) -> str | None:
        """Returns a sentence where the backlog grows, and then remembers how busy the slices are."""
        settings = self._settings
        window = self._recent(settings.window_seconds)
        if not _covers(window, settings.window_seconds):
            return None
        middle = len(window) // 2
        floor_before = min(each.backlog for each in window[:middle])
        floor = min(each.backlog for each in window[middle:])
        arrived = fmean(each.arrived for each in window)
        points = [(each.at_seconds, float(each.backlog)) for each in window]
        # The backlog must grow over the whole window and still in its later half: after one bump it shrinks again.
        growth = min(_slope(points), _slope(points[middle:]))
        served = max(arrived - growth, 1e-9)
        if floor <= floor_before or growth <= settings.growth_share * arrived:
            return None
        if floor < settings.worth_seconds * served:
            return None
        busy = _busy(window)
        self._saturated[count] = busy
        self._per_slice = _Busy(busy.total / count, busy.fullest)
        return (
            f"the backlog has grown by {growth:,.0f} events a second for {settings.window_seconds:g} seconds and is "
            f"worth {floor / served:.1f} seconds of work"
        )

    def _under_use(self, count: int, least: int) -> Decision:
        settings, window = self._settings, list(self._seen)
        if not _covers(window, settings.idle_seconds):
            return _keep("the slices keep up")
        busy = _busy(window)
        if count in self._saturated and busy.total > self._saturated[count].total:
            self._saturated[count] = busy  # they can do more than was known
        if count == settings.least:
            return _keep(f"the slices keep up, and there are to be at least {settings.least}")
        arrived = fmean(each.arrived for each in window)
        if median(each.backlog for each in window) > settings.worth_seconds * max(arrived, 1.0):
            return _keep("the slices keep up, and work off a backlog")
        others = count - 1
        # Each of the others then works on larger sets for the same events. Where the time grows with the size of a
        # set, all together have that much more to do.
        expected = max(busy.total, _busy(self._recent(settings.idle_seconds / 4)).total) * count / others
        shares = _shares(window)
        inherited = shares[least] / min(2, others)  # by the neighbours on both sides
        fullest = inherited + max(share for each, share in shares.items() if each != least)
        known = self._per_slice
        bound = self._saturated.get(others, _Busy(known.total * others, known.fullest))
        if expected > settings.comfortable * bound.total or fullest > settings.comfortable * bound.fullest:
            return _keep("the slices keep up, and none of them is too many")
        return Decision(
            "remove",
            least,
            f"for {settings.idle_seconds:g} seconds {count} slices were busy for {busy.total:.2f} seconds a second, "
            f"which {others} can do with ease; slice {least} is the least loaded",
        )


def _keep(reason: str) -> Decision:
    return Decision("nothing", None, reason)


def _busy(window: Sequence[_Observation]) -> _Busy:
    return _Busy(fmean(each.total for each in window), max(_shares(window).values()))


def _shares(window: Sequence[_Observation]) -> dict[int, float]:
    return {number: fmean(each.busy[number] for each in window) for number in window[-1].busy}


def _covers(window: Sequence[_Observation], seconds: float) -> bool:
    """Whether there are enough observations, over nearly all of the time."""
    if len(window) < _LEAST_OBSERVATIONS:
        return False
    return window[-1].at_seconds - window[0].at_seconds >= 0.9 * seconds


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs (Theil and Sen), which outliers do not move."""
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))
