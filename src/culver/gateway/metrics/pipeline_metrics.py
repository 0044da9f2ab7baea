"""The pipeline's metrics: operators, slices, queues and batches, collected from the site with every request."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from culver.control import SiteObservation, SlicesView
from culver.pipeline import BATCH_SECONDS, BatchTotals, FileTotals, SliceTotals
from culver.roles import Site


class PipelineCollector(Collector):
    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterator[Metric]:
        seen = self._site.observation.observe()
        yield from _operators(seen.pipeline.slices)
        yield from _written(seen.pipeline.written)
        yield from _slices(seen)
        yield from _loads(self._site.slices.view())
        yield from _schemes(seen)
        queue = GaugeMetricFamily(
            "culver_queue_events", "Events on their way, by what they wait for", None, ["queue"]
        )
        for name, length in asdict(seen.queues).items():
            if name != "mailboxes":
                queue.add_metric([name], length)
        yield queue
        yield GaugeMetricFamily(
            "culver_mailbox_deliveries", "Deliveries that wait in mailboxes", seen.queues.mailboxes
        )
        yield GaugeMetricFamily(
            "culver_waiting_files", "Notification files behind a missing one", seen.pipeline.waiting_files
        )
        yield CounterMetricFamily("culver_blocks", "Results handed to delivery", seen.pipeline.blocks)
        yield from _batches(seen.pipeline.batches)


def _operators(slices: Iterable[SliceTotals]) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "culver_operator_events", "Events that an operator worked on", None, ["operator", "slice"]
    )
    seconds = CounterMetricFamily(
        "culver_operator_seconds", "Time that an operator was at work", None, ["operator", "slice"]
    )
    pairs = CounterMetricFamily(
        "culver_operator_pairs", "Matches that an operator found or grouped", None, ["operator", "slice"]
    )
    for each in slices:
        own = str(each.slice)
        for operator, count, took in (
            ("ap", each.events, each.ap_seconds),
            ("m", each.sent, each.m_seconds),
            ("ep", each.sent, each.ep_seconds),
        ):
            events.add_metric([operator, own], count)
            seconds.add_metric([operator, own], took)
        pairs.add_metric(["m", own], each.pairs)
        pairs.add_metric(["ep", own], each.pairs)
    yield from (events, seconds, pairs)


def _written(written: FileTotals) -> Iterator[Metric]:
    yield CounterMetricFamily("culver_written_files", "Notification files of Spark's workers", written.files)
    yield CounterMetricFamily("culver_written_bytes", "Bytes of those files", written.bytes)
    yield CounterMetricFamily("culver_write_seconds", "Time until those files were on disk", written.seconds)


def _slices(seen: SiteObservation) -> Iterator[Metric]:
    registrations = GaugeMetricFamily(
        "culver_slice_registrations", "Registrations in effect in a slice of the index", None, ["slice"]
    )
    size = GaugeMetricFamily("culver_slice_bytes", "Bytes of a slice of the index", None, ["slice"])
    for each in seen.index:
        registrations.add_metric([str(each.slice)], each.registrations)
        size.add_metric([str(each.slice)], each.bytes)
    yield from (registrations, size)
    placement = seen.placement
    yield InfoMetricFamily(
        "culver_placement",
        "How subscriptions are placed on slices, and why",
        {"name": placement.name, "slices": str(placement.slices), "reason": placement.reason},
    )


def _loads(seen: SlicesView) -> Iterator[Metric]:
    yield GaugeMetricFamily("culver_slices", "Slices that the index is divided into", len(seen.slices))
    busy = GaugeMetricFamily("culver_slice_busy", "Seconds of work a second of a slice", None, ["slice"])
    matched = GaugeMetricFamily(
        "culver_slice_match_rate", "Events a second that a slice matches while it is at work", None, ["slice"]
    )
    queue = GaugeMetricFamily("culver_slice_queue_events", "Events that wait for a slice", None, ["slice"])
    for each in seen.slices:
        own = [str(each.slice)]
        busy.add_metric(own, each.busy)
        queue.add_metric(own, each.queue)
        if each.matched_per_second is not None:
            matched.add_metric(own, each.matched_per_second)
    yield from (busy, matched, queue)
    held = GaugeMetricFamily("culver_set_registrations", "Registrations in a set", None, ["set", "slice"])
    for one in seen.sets:
        held.add_metric([str(one.set), "" if one.home is None else str(one.home)], one.registrations)
    yield held
    yield InfoMetricFamily(
        "culver_forwarding", "The policy among an event's candidates", {"name": seen.forwarding or "none"}
    )
    told = seen.last_change
    yield InfoMetricFamily(
        "culver_elasticity",
        "The last change that the controller of the slices decided on, and why",
        {
            "elastic": str(seen.elastic).lower(),
            "action": told.action if told else "",
            "reason": told.reason if told else "",
        },
    )


def _schemes(seen: SiteObservation) -> Iterator[Metric]:
    registrations = GaugeMetricFamily(
        "culver_scheme_registrations", "Registrations in effect of a filtering scheme", None, ["scheme"]
    )
    pairs = CounterMetricFamily("culver_scheme_pairs", "Matches that a scheme's M found", None, ["scheme"])
    seconds = CounterMetricFamily(
        "culver_scheme_seconds", "Time that a scheme's M was at work", None, ["scheme"]
    )
    for held in seen.schemes:
        registrations.add_metric([held.scheme], held.registrations)
    for done in seen.pipeline.schemes:
        pairs.add_metric([done.scheme], done.pairs)
        seconds.add_metric([done.scheme], done.seconds)
    yield from (registrations, pairs, seconds)


def _batches(batches: BatchTotals) -> Iterator[Metric]:
    bounds = [*(str(bound) for bound in BATCH_SECONDS), "+Inf"]
    yield HistogramMetricFamily(
        "culver_batch_seconds",
        "Time that the engine took for a batch",
        list(zip(bounds, accumulate(batches.counts), strict=True)),
        batches.seconds,
    )
    yield CounterMetricFamily("culver_batch_events", "Events in those batches", batches.events)
    stages = GaugeMetricFamily(
        "culver_batch_stage_seconds", "Where Spark spent the time of its last batch", None, ["stage"]
    )
    for name, took in batches.stages.items():
        stages.add_metric([name], took)
    yield stages
