"""The metrics of `/metrics`: the gateway counts, and asks the site for its figures with every request."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from culver.control import SiteObservation, SlicesView
from culver.messages import OverlayStatus
from culver.model import Event
from culver.pipeline import BATCH_SECONDS, SliceTotals
from culver.roles import Site

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PUBLISH_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

# The name and the help text of a metric, by the member that holds its value.
Table = dict[str, tuple[str, str]]

_STATUS: Table = {
    "subscriptions": ("culver_subscriptions", "Subscriptions in effect"),
    "log_first_offset": ("culver_log_first_offset", "The oldest offset that the log still holds"),
    "log_next_offset": ("culver_log_next_offset", "The offset that the next event gets"),
    "delivered_offset": ("culver_delivered_offset", "Events below this offset have been matched"),
    "index_version": ("culver_index_version", "The registry version that events are matched against"),
}
_OPERATOR: Table = {
    "events": ("culver_operator_events", "Events that an operator worked on"),
    "seconds": ("culver_operator_seconds", "Time that an operator was at work"),
    "pairs": ("culver_operator_pairs", "Matches that an operator found or grouped"),
}
_INDEX_SLICE: Table = {
    "registrations": ("culver_slice_registrations", "Registrations in effect in a slice of the index"),
    "bytes": ("culver_slice_bytes", "Bytes of a slice of the index"),
}
_SLICE_LOAD: Table = {
    "busy": ("culver_slice_busy", "Seconds of work a second of a slice"),
    "matched_per_second": (
        "culver_slice_match_rate",
        "Events a second that a slice matches while it is at work",
    ),
    "queue": ("culver_slice_queue_events", "Events that wait for a slice"),
}
_SET: Table = {"registrations": ("culver_set_registrations", "Registrations in a set")}
_SCHEME: Table = {
    "pairs": ("culver_scheme_pairs", "Matches that a scheme's M found"),
    "seconds": ("culver_scheme_seconds", "Time that a scheme's M was at work"),
}
_CHANNELS: Table = {
    "subscriptions": (
        "culver_channel_subscriptions",
        "Subscriptions of this gateway that deliver to a channel",
    ),
    "failing": (
        "culver_channel_subscriptions_failing",
        "Those of them whose deliveries wait for the service",
    ),
}
_REMOTE_SITE: Table = {
    "reachable": ("culver_overlay_site_reachable", "1 while there is a way to another site"),
    "pending": ("culver_overlay_backlog_events", "Events that wait in another site's mailbox here"),
    "bytes_under_way": ("culver_overlay_bytes_under_way", "Bytes sent to another site, without answer yet"),
}
_REMOTE_SITE_TOTALS: Table = {
    "resends": ("culver_overlay_resends", "How often a stream to another site was sent again"),
    "events_received": ("culver_overlay_events_received", "Events that came from another site"),
    "false_positives": ("culver_overlay_false_positives", "Those of them that matched no subscription"),
    "skipped": ("culver_overlay_events_skipped", "Events of another site that this site's limits refuse"),
}
_OVERLAY_TOTALS: Table = {
    "packets_sent": ("culver_overlay_packets_sent", "Packets sent or forwarded to neighbours"),
    "packets_received": ("culver_overlay_packets_received", "Packets that came from neighbours"),
    "packets_dropped": ("culver_overlay_packets_dropped", "Packets dropped because a link's queue was full"),
    "bytes_sent": ("culver_overlay_bytes_sent", "Bytes sent on links to other sites"),
    "bytes_received": ("culver_overlay_bytes_received", "Bytes that came on them"),
    "frames_dropped": ("culver_overlay_frames_dropped", "Frames of links that were dropped"),
    "links_opened": ("culver_overlay_links_opened", "Links that were ever opened"),
    "gaps": ("culver_overlay_gaps", "Gaps in the streams of other sites"),
}
_WRITTEN: Table = {
    "files": ("culver_written_files", "Notification files of Spark's workers"),
    "bytes": ("culver_written_bytes", "Bytes of those files"),
    "seconds": ("culver_write_seconds", "Time until those files were on disk"),
}


class GatewayMetrics(Collector):
    """The metrics of one app, in a registry of its own so that two apps in a process do not mix."""

    def __init__(self, site: Site) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._site = site
        # Plain numbers, for each publication is counted: a Histogram and two Counters take five times as long.
        self._events = 0
        self._event_bytes = 0
        self._publish_seconds = 0.0
        self._publications = [0] * (len(_PUBLISH_SECONDS) + 1)
        counter = partial(Counter, registry=self.registry)
        self.deliveries = counter("culver_deliveries_sent", "Deliveries sent to subscribers", ["kind"])
        self.gaps = counter("culver_gaps_sent", "Gaps announced to subscribers", ["reason"])
        self.channel_messages = counter(
            "culver_channel_messages_sent", "Messages of channels sent to readers", ["kind"]
        )
        self.channel_gaps = counter(
            "culver_channel_gaps_sent", "Gaps of channels announced to readers", ["reason"]
        )
        self.connections = Gauge(
            "culver_connections", "Open requests and connections", ["kind"], registry=self.registry
        )
        self.errors = counter("culver_errors", "Requests and messages answered with a problem", ["code"])
        self.registry.register(self)

    def count_publication(self, events: Sequence[Event], seconds: float) -> None:
        """Count a publication that took so long from its decoding to its acknowledgement."""
        self._events += len(events)
        self._event_bytes += sum([len(event.payload) for event in events])
        self._publish_seconds += seconds
        self._publications[bisect_left(_PUBLISH_SECONDS, seconds)] += 1

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def deliveries_sent(self) -> int:
        samples = [sample for family in self.deliveries.collect() for sample in family.samples]
        return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "culver_events_published", "Events acknowledged to publishers", self._events
        )
        yield CounterMetricFamily(
            "culver_event_bytes_published", "Payload bytes of those events", self._event_bytes
        )
        yield HistogramMetricFamily(
            "culver_publish_seconds",
            "Time from a decoded batch to its acknowledgement",
            _buckets(_PUBLISH_SECONDS, self._publications),
            self._publish_seconds,
        )
        observation = self._site.observation
        status = {member: value for member, value in observation.status().items() if value is not None}
        for member, (name, text) in _STATUS.items():
            if member in status:
                yield GaugeMetricFamily(name, text, status[member])
        if "log_next_offset" in status and "delivered_offset" in status:
            lag = max(0, status["log_next_offset"] - status["delivered_offset"])
            yield GaugeMetricFamily("culver_delivery_lag_events", "Events stored and not yet matched", lag)
        yield GaugeMetricFamily(
            "culver_ready", "1 while published events reach subscribers", observation.ready
        )
        channels = self._site.channels.status()
        yield from _families(GaugeMetricFamily, _CHANNELS, [((), channels)])
        yield CounterMetricFamily(
            "culver_channel_deliveries_published", "Deliveries published on channels", channels.published
        )
        overlay = self._site.overlay.status()
        if overlay is not None:
            yield from _overlay(overlay)
        yield from _pipeline(observation.observe())
        yield from _slices(self._site.slices.view())


def _pipeline(seen: SiteObservation) -> Iterator[Metric]:
    pipeline, placement, batches = seen.pipeline, seen.placement, seen.pipeline.batches
    yield from _families(CounterMetricFamily, _OPERATOR, _operators(pipeline.slices), "operator", "slice")
    yield from _families(CounterMetricFamily, _WRITTEN, [((), pipeline.written)])
    index = [((str(each.slice),), each) for each in seen.index]
    yield from _families(GaugeMetricFamily, _INDEX_SLICE, index, "slice")
    yield InfoMetricFamily(
        "culver_placement",
        "How subscriptions are placed on slices, and why",
        {"name": placement.name, "slices": str(placement.slices), "reason": placement.reason},
    )
    text = "Registrations in effect of a filtering scheme"
    held = {each.scheme: each.registrations for each in seen.schemes}
    yield _by_label("culver_scheme_registrations", text, "scheme", held)
    work = [((each.scheme,), each) for each in pipeline.schemes]
    yield from _families(CounterMetricFamily, _SCHEME, work, "scheme")
    queues = asdict(seen.queues)
    mailboxes = queues.pop("mailboxes")
    yield _by_label("culver_queue_events", "Events on their way, by what they wait for", "queue", queues)
    yield GaugeMetricFamily("culver_mailbox_deliveries", "Deliveries that wait in mailboxes", mailboxes)
    yield GaugeMetricFamily(
        "culver_waiting_files", "Notification files behind a missing one", pipeline.waiting_files
    )
    yield CounterMetricFamily("culver_blocks", "Results handed to delivery", pipeline.blocks)
    yield HistogramMetricFamily(
        "culver_batch_seconds",
        "Time that the engine took for a batch",
        _buckets(BATCH_SECONDS, batches.counts),
        batches.seconds,
    )
    yield CounterMetricFamily("culver_batch_events", "Events in those batches", batches.events)
    text = "Where Spark spent the time of its last batch"
    yield _by_label("culver_batch_stage_seconds", text, "stage", batches.stages)


def _overlay(seen: OverlayStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily("culver_overlay_links", "Open links to other sites", len(seen.links))
    sites = [((each.name,), each) for each in seen.sites]
    yield from _families(GaugeMetricFamily, _REMOTE_SITE, sites, "site")
    yield from _families(CounterMetricFamily, _REMOTE_SITE_TOTALS, sites, "site")
    yield from _families(CounterMetricFamily, _OVERLAY_TOTALS, [((), seen.totals)])
    refusals: dict[str, int] = {}
    for each in seen.refusals:
        refusals[each.reason] = refusals.get(each.reason, 0) + each.count
    family = CounterMetricFamily(
        "culver_overlay_refusals", "What was refused or dropped, by reason", labels=["reason"]
    )
    for reason, count in refusals.items():
        family.add_metric([reason], count)
    yield family


def _slices(seen: SlicesView) -> Iterator[Metric]:
    yield GaugeMetricFamily("culver_slices", "Slices that the index is divided into", len(seen.slices))
    loads = [((str(each.slice),), each) for each in seen.slices]
    yield from _families(GaugeMetricFamily, _SLICE_LOAD, loads, "slice")
    sets = [((str(each.set), "" if each.home is None else str(each.home)), each) for each in seen.sets]
    yield from _families(GaugeMetricFamily, _SET, sets, "set", "slice")
    yield InfoMetricFamily(
        "culver_forwarding", "The policy among an event's candidates", {"name": seen.forwarding or "none"}
    )
    change = seen.last_change
    yield InfoMetricFamily(
        "culver_elasticity",
        "The last change that the controller of the slices decided on, and why",
        {
            "elastic": str(seen.elastic).lower(),
            "action": change.action if change else "",
            "reason": change.reason if change else "",
        },
    )


class _Work(NamedTuple):
    events: int
    seconds: float
    pairs: int | None


def _operators(slices: Iterable[SliceTotals]) -> Iterator[tuple[tuple[str, str], _Work]]:
    for each in slices:
        own = str(each.slice)
        yield ("ap", own), _Work(each.events, each.ap_seconds, None)
        yield ("m", own), _Work(each.sent, each.m_seconds, each.pairs)
        yield ("ep", own), _Work(each.sent, each.ep_seconds, each.pairs)


def _families(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    table: Table,
    labelled: Iterable[tuple[Sequence[str], object]],
    *labels: str,
) -> Iterator[Metric]:
    """A family for each member in the table, with a sample from each object that has a value for it."""
    rows = list(labelled)
    for member, (name, text) in table.items():
        family = kind(name, text, labels=labels)
        for label_values, row in rows:
            value = getattr(row, member)
            if value is not None:
                family.add_metric(label_values, value)
        yield family


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def _buckets(bounds: Sequence[float], counts: Iterable[int]) -> list[tuple[str, float]]:
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))
