"""The slices of a running site: records of what they hold and do, how fast they work, and the role that changes them.

    slice    a part of the work of matching, done by one task for each range of events
     +-- set    an index with segments of its own; a slice works on the sets that it is the home of
    layer    dimensions, each divided into segments, one or more for each slice; a segment's slice is its owner
    rest     one set that every slice holds, of the registrations that belong to no layer

`check_add` and `check_remove` refuse what no implementation of the role can do.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from culver.control.elasticity import ELASTIC_PLACEMENTS, SliceLoad
from culver.control.site_observation import SiteObservation
from culver.errors import Conflict, NotFound

SegmentBound = bool | int | float | str
"""A value of a dimension; a timestamp is RFC 3339 text."""


@dataclass(frozen=True, slots=True)
class DimensionSegment:
    """[start, end) of a dimension; None where there is no bound. A hashed dimension has one for each slice."""

    slice: int
    start: SegmentBound | None = None
    end: SegmentBound | None = None


@dataclass(frozen=True, slots=True)
class DimensionView:
    attribute: str
    line: str  # the kind of its values: numbers, strings, timestamps, ...
    hashed: bool  # slices get values by their hash, so segments have no bounds
    segments: tuple[DimensionSegment, ...]  # in the order of their values


@dataclass(frozen=True, slots=True)
class LayerView:
    dimensions: tuple[DimensionView, ...]


@dataclass(frozen=True, slots=True)
class SetView:
    """`layer` and `dimension` are indexes into the view's lists; None for the rest, and for an only set."""

    set: int
    home: int | None  # the slice that works on it; None: every slice holds it
    registrations: int
    bytes: int  # of its compiled arrays
    sent_per_second: float = 0.0  # events that were sent to it
    matched_per_second: float | None = None  # events, while a slice worked on it; None: none did
    queue: float = 0.0  # events that wait for it
    layer: int | None = None
    dimension: int | None = None
    backup_of: int | None = None  # the slice all of whose copies it has, for events with no other candidate


@dataclass(frozen=True, slots=True)
class SliceView:
    slice: int
    sets: tuple[int, ...]  # whose home it is
    registrations: int  # one that is in several of its sets counts in each
    bytes: int
    sent_per_second: float = 0.0
    matched_per_second: float | None = None
    busy: float = 0.0  # seconds of work a second
    queue: float = 0.0


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A `Decision` of the controller, and how long ago it was."""

    action: str
    slice: int | None
    reason: str
    seconds_ago: float


@dataclass(frozen=True, slots=True)
class SlicesView:
    """All slices at one moment. Slices are numbered from 0 on without holes, so a removal may give others a new
    number. Rates are those of the last seconds."""

    placement: str
    reason: str  # for this placement
    slices: tuple[SliceView, ...]
    sets: tuple[SetView, ...]
    layers: tuple[LayerView, ...] = ()
    forwarding: str | None = None  # the policy among candidates; None: no event has more than one
    elastic: bool = False  # a controller adds and removes slices
    decision: DecisionView | None = None  # its last one
    last_change: DecisionView | None = None  # its last one that changed something


@dataclass(frozen=True, slots=True)
class SliceRates:
    sent_per_second: float  # events that were sent to it
    matched_per_second: float | None  # events, while its operator M worked; None: it did not
    busy: float  # seconds of work a second, of all operators
    sent_share: float  # of all events that were matched in that time


UNMEASURED = SliceRates(0.0, None, 0.0, 0.0)


_Moment = tuple[float, SiteObservation]
"""When a site was observed, in seconds, and how it was."""


class SliceMeter:
    """Not thread-safe. Feed it about once a second; it ignores an observation that is not later than the last one."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window_seconds = window_seconds
        self._moments: deque[_Moment] = deque()

    def observe(self, at_seconds: float, seen: SiteObservation) -> None:
        if self._moments and at_seconds <= self._moments[-1][0]:
            return
        self._moments.append((at_seconds, seen))
        while len(self._moments) > 2 and at_seconds - self._moments[1][0] >= self._window_seconds:
            self._moments.popleft()

    def forget(self) -> None:
        """Begin anew: slices have come or gone, and a number may mean another slice than before."""
        self._moments.clear()

    def arrived_per_second(self) -> float:
        """Events that arrived, over the whole window."""
        if len(self._moments) < 2:
            return 0.0
        (began, first), (ended, last) = self._moments[0], self._moments[-1]
        return (last.log_next_offset - first.log_next_offset) / (ended - began)

    def rates(self) -> dict[int, SliceRates]:
        """The rates of each slice that has done anything since the start, over the whole window."""
        if len(self._moments) < 2:
            return {}
        return _compared(self._moments[0], self._moments[-1])

    def loads(self, registrations: Mapping[int, int]) -> list[SliceLoad]:
        """How busy each of these slices was between the last two observations, for the controller."""
        rates = _compared(self._moments[-2], self._moments[-1]) if len(self._moments) > 1 else {}
        return [
            SliceLoad(number, rates.get(number, UNMEASURED).busy, held)
            for number, held in sorted(registrations.items())
        ]


def _compared(before: _Moment, after: _Moment) -> dict[int, SliceRates]:
    seconds = after[0] - before[0]
    earlier, later = before[1].pipeline, after[1].pipeline
    matched = later.position - earlier.position
    return {
        done.slice: SliceRates(
            done.sent / seconds,
            done.sent / done.m_seconds if done.m_seconds > 0 else None,
            done.busy_seconds / seconds,
            min(1.0, done.sent / matched) if matched > 0 else 0.0,
        )
        for done in later.slices_since(earlier)
    }


class Slices(Protocol):
    """The slices of a site, for the event loop's thread. A change happens between two batches: every event is matched
    with the slices before it, or with those after it. It is durable on return, and takes as long as moving the
    registrations does; one change waits for another."""

    async def add(self, split: int | None = None) -> SlicesView:
        """Add a slice, which takes half of each segment of `split` (None: of the most loaded one). Raises NotFound,
        and Conflict where the placement cannot."""

    async def remove(self, number: int) -> SlicesView:
        """Remove a slice, whose neighbours take over what it has. Raises NotFound, and Conflict where it is the last
        one, or the placement cannot."""

    def view(self) -> SlicesView: ...


def check_add(view: SlicesView, split: int | None) -> None:
    """Raises what `Slices.add` raises."""
    _check_placement(view)
    if split is not None:
        _check_number(view, split, "split")


def check_remove(view: SlicesView, number: int) -> None:
    """Raises what `Slices.remove` raises."""
    _check_number(view, number, "number")
    _check_placement(view)
    if len(view.slices) == 1:
        raise Conflict("this is the last slice, and a site needs one", field="number")


def slice_views(
    seen: SiteObservation, rates: Mapping[int, SliceRates], sets: Sequence[SetView]
) -> tuple[SliceView, ...]:
    """The slices of a site that has these sets."""
    views = []
    for held in seen.index:
        rate = rates.get(held.slice, UNMEASURED)
        views.append(
            SliceView(
                held.slice,
                tuple(each.set for each in sets if each.home == held.slice),
                held.registrations,
                held.bytes,
                rate.sent_per_second,
                rate.matched_per_second,
                rate.busy,
                rate.sent_share * seen.queues.match,
            )
        )
    return tuple(views)


class FixedSlices:
    """Implements Slices for a placement whose slices have one set each; it refuses changes."""

    def __init__(self, observe: Callable[[], SiteObservation]) -> None:
        self._observe = observe
        self._meter = SliceMeter()

    async def tick(self) -> None:
        """Measure how fast the slices work. Call it about once a second."""
        self._meter.observe(time.monotonic(), self._observe())

    async def add(self, split: int | None = None) -> SlicesView:
        check_add(self.view(), split)
        raise _fixed()

    async def remove(self, number: int) -> SlicesView:
        check_remove(self.view(), number)
        raise _fixed()

    def view(self) -> SlicesView:
        seen, rates = self._observe(), self._meter.rates()
        sets = []
        for held in seen.index:
            rate = rates.get(held.slice, UNMEASURED)
            rest = (rate.sent_per_second, rate.matched_per_second, rate.sent_share * seen.queues.match)
            sets.append(SetView(held.slice, held.slice, held.registrations, held.bytes, *rest))
        slices = slice_views(seen, rates, sets)
        return SlicesView(seen.placement.name, seen.placement.reason, slices, tuple(sets))


def _check_placement(view: SlicesView) -> None:
    if view.placement not in ELASTIC_PLACEMENTS:
        raise Conflict(
            f"with the placement {view.placement} slices stay as they are while the site runs; they can be added and "
            f"removed with {', '.join(ELASTIC_PLACEMENTS[:-1])} and {ELASTIC_PLACEMENTS[-1]} (setting "
            "pipeline.placement)",
            field="placement",
            known=list(ELASTIC_PLACEMENTS),
        )


def _check_number(view: SlicesView, number: int, field: str) -> None:
    last = len(view.slices) - 1
    if not 0 <= number <= last:
        known = "there is only slice 0" if last == 0 else f"there are 0 to {last}"
        raise NotFound(f"there is no slice {number}; {known}", field=field)


def _fixed() -> Conflict:
    return Conflict("the slices of this site stay as they are while it runs", field="placement")
