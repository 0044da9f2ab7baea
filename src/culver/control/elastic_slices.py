"""Changes the slices of a running site: by hand, by the controller, and as subscriptions and events change.

    every second   subscriptions have doubled?   --> learn from a sample; clearly better? --> divide anew
                   the controller, if the site is elastic               --> add or remove
    by hand        culver slices add | remove                           --> add or remove

A change makes an index version. An engine matches each batch with the version that it was planned with, so a change
takes place between two batches, and no event is matched by halves.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import pyarrow as pa

from culver.config import PipelineSettings
from culver.control.catalogue import Catalogue
from culver.control.elasticity import Decision, ElasticityController, elasticity_settings
from culver.control.index_placement import dividing_of, recent_events
from culver.control.site_observation import SiteObservation
from culver.control.slices import (
    UNMEASURED,
    DecisionView,
    DimensionSegment,
    DimensionView,
    FixedSlices,
    LayerView,
    SetView,
    SliceMeter,
    SlicesView,
    check_add,
    check_remove,
    slice_views,
)
from culver.log import ReadableLog
from culver.matching import ANYWHERE, ClauseTable, IndexWriter
from culver.pipeline import LoadReport
from culver.placement import (
    LEARNING_SAMPLE,
    MPartition,
    Redivision,
    covering_sets,
    is_clearly_better,
    redivide_anew,
)

logger = logging.getLogger(__name__)

# Subscriptions to learn from, and events.
_ENOUGH = 128
# Learn again when there have been so many times as many events.
_MORE_EVENTS = 8
# After a division that could not be written: each writes most of the index.
_PAUSE_SECONDS = 60.0


def slices_of(
    index: IndexWriter,
    catalogue: Catalogue,
    observe: Callable[[], SiteObservation],
    log: ReadableLog,
    settings: PipelineSettings,
) -> "FixedSlices | ElasticSlices":
    """The slices of a site, by the placement of its index. Call their `tick` about once a second."""
    if isinstance(index.partitioner, MPartition):
        return ElasticSlices(index, catalogue, observe, log, settings)
    return FixedSlices(observe)


class ElasticSlices:
    """Implements Slices for the placements that can be cut again. Lives on the event loop."""

    def __init__(
        self,
        index: IndexWriter,
        catalogue: Catalogue,
        observe: Callable[[], SiteObservation],
        log: ReadableLog,
        settings: PipelineSettings,
    ) -> None:
        self._index = index
        self._catalogue = catalogue
        self._observe = observe
        self._log = log
        # For `mpartition`; the others know how they divide.
        self._dividing = dividing_of(settings) if index.placement.name == MPartition.name else None
        self._forwarding = settings.forwarding
        # Without one, slices change by hand only.
        self._controller = ElasticityController(elasticity_settings(settings)) if settings.elastic else None
        self._meter = SliceMeter()
        self._changing = asyncio.Lock()
        # How many subscriptions, and how many events ever, there were at the last look at the division.
        self._learnt_at = (0, 0)
        self._not_before = float("-inf")

    async def add(self, split: int | None = None) -> SlicesView:
        async with self._changing:
            check_add(self.view(), split)
            loaded = self._most_loaded() if split is None else split
            events = recent_events(self._log)

            def change(present: MPartition) -> Redivision:
                # A single slice has everything in the rest, and no segment to split.
                if present.slices == 1:
                    return redivide_anew(present, self._learnt(present, 2, events))
                return present.with_slice_added(loaded)

            await self._change(change)
            return self.view()

    async def remove(self, number: int) -> SlicesView:
        async with self._changing:
            check_remove(self.view(), number)

            def change(present: MPartition) -> Redivision:
                if present.slices == 2:
                    return redivide_anew(present, type(present)(1))
                return present.with_slice_removed(number)

            await self._change(change)
            return self.view()

    async def tick(self) -> None:
        """Measure how fast the slices work, and change them if that is better. Call it about once a second."""
        seen, now = self._observe(), time.monotonic()
        self._meter.observe(now, seen)
        await self._look_at_division(seen.subscriptions, seen.log_next_offset)
        if self._controller is None:
            return
        held = {each.slice: each.registrations for each in seen.index}
        decision = self._controller.observe(
            now, seen.queues.match, self._meter.arrived_per_second(), self._meter.loads(held)
        )
        if decision.action == "add":
            logger.warning("a slice is added: %s", decision.reason)
            await self.add(decision.slice)
        elif decision.action == "remove" and decision.slice is not None:
            logger.warning("slice %d is removed: %s", decision.slice, decision.reason)
            await self.remove(decision.slice)

    def view(self) -> SlicesView:
        seen, rates = self._observe(), self._meter.rates()
        placement, contents = self._index.division()
        assert isinstance(placement, MPartition)
        waiting, load = seen.queues.match, seen.pipeline.load
        if load.division != self._index.placement.fingerprint():
            load = LoadReport()  # the report is about other sets with the same numbers
        arrived = sum(load.arrivals) or 1.0
        sets: list[SetView] = []
        for number, (label, home, (count, size)) in enumerate(
            zip(placement.set_labels(), placement.homes.tolist(), contents, strict=True)
        ):
            sent = load.arrivals[number] if number < len(load.arrivals) else 0.0
            rate = load.rates[number] if number < len(load.rates) else 0.0
            sets.append(
                SetView(
                    number,
                    None if home == ANYWHERE else home,
                    count,
                    size,
                    sent,
                    rate or None,
                    waiting * sent / arrived,
                    label.layer,
                    label.dimension,
                    label.backup_of,
                )
            )
        return SlicesView(
            seen.placement.name,
            seen.placement.reason,
            slice_views(seen, rates, sets),
            tuple(sets),
            _layers(placement),
            self._forwarding,
            self._controller is not None,
            _told(self._controller.last) if self._controller else None,
            _told(self._controller.last_change) if self._controller else None,
        )

    def _placement(self) -> MPartition:
        placement = self._index.partitioner
        assert isinstance(placement, MPartition)
        return placement

    def _most_loaded(self) -> int:
        """The busiest slice; where none has done anything, the fullest."""
        rates = self._meter.rates()
        held = self._index.contents_of_slices()
        return max(
            range(len(held)), key=lambda number: (rates.get(number, UNMEASURED).busy, held[number], -number)
        )

    async def _change(self, change: Callable[[MPartition], Redivision | None]) -> bool:
        def run(horizon: int) -> bool:
            redivision = change(self._placement())
            if redivision is None:
                return False
            self._index.redivide(
                redivision.placement,
                redivision.kept.tolist(),
                redivision.sources.tolist(),
                redivision.changed.tolist(),
                horizon,
            )
            return True

        changed = await self._catalogue.redivide(run)
        if changed:
            self._meter.forget()
        return changed

    def _sample(self, present: MPartition) -> ClauseTable:
        return self._index.sample(covering_sets(present), LEARNING_SAMPLE)

    def _learnt(self, present: MPartition, slices: int, events: pa.RecordBatch | None) -> MPartition:
        return type(present).learnt(self._sample(present), slices, events, self._dividing)

    async def _look_at_division(self, count: int, events_ever: int) -> None:
        """Learn again when subscriptions have doubled or halved since the last time, or when there are many times as
        many events. The first events matter most, because subscriptions usually come before them."""
        if count < _ENOUGH or self._placement().slices == 1 or time.monotonic() < self._not_before:
            return
        known, known_events = self._learnt_at
        if known / 2 < count < 2 * known and events_ever < max(_ENOUGH, _MORE_EVENTS * known_events):
            return
        events = recent_events(self._log)

        def change(present: MPartition) -> Redivision | None:
            fresh = self._learnt(present, present.slices, events)
            sample = self._sample(present)
            return (
                redivide_anew(present, fresh) if is_clearly_better(fresh, present, sample, events) else None
            )

        async with self._changing:
            try:
                if await self._change(change):
                    logger.info("%d subscriptions are divided anew", count)
            except Exception:
                self._not_before = time.monotonic() + _PAUSE_SECONDS
                raise
            self._learnt_at = count, events_ever


def _told(said: tuple[float, Decision] | None) -> DecisionView | None:
    if said is None:
        return None
    at_seconds, decision = said
    return DecisionView(decision.action, decision.slice, decision.reason, time.monotonic() - at_seconds)


def _layers(placement: MPartition) -> tuple[LayerView, ...]:
    return tuple(
        LayerView(
            tuple(
                DimensionView(
                    each["attribute"],
                    each["type"],
                    each["divided_by"] != "ranges",
                    tuple(
                        DimensionSegment(part["slice"], part.get("from"), part.get("below"))
                        for part in each["segments"]
                    ),
                )
                for each in dimensions
            )
        )
        for dimensions in placement.describe()
    )
