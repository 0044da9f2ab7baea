"""The metrics of `/metrics`: the gateway counts, and asks the site for its figures with every request."""

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from culver.gateway.metrics.pipeline_metrics import PipelineCollector
from culver.model import Event
from culver.roles import Site

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PUBLISH_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_POSITIONS = {
    "subscriptions": ("culver_subscriptions", "Subscriptions in effect"),
    "log_first_offset": ("culver_log_first_offset", "The oldest offset that the log still holds"),
    "log_next_offset": ("culver_log_next_offset", "The offset that the next event gets"),
    "delivered_offset": ("culver_delivered_offset", "Events below this offset have been matched"),
    "index_version": ("culver_index_version", "The registry version that events are matched against"),
}


class GatewayMetrics:
    """The metrics of one app, in a registry of its own so that two apps in a process do not mix."""

    def __init__(self, site: Site) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._events = Counter(
            "culver_events_published", "Events acknowledged to publishers", registry=self.registry
        )
        self._event_bytes = Counter(
            "culver_event_bytes_published", "Payload bytes of those events", registry=self.registry
        )
        self._publish_seconds = Histogram(
            "culver_publish_seconds",
            "Time from a decoded batch to its acknowledgement",
            buckets=_PUBLISH_SECONDS,
            registry=self.registry,
        )
        self.deliveries = Counter(
            "culver_deliveries_sent", "Deliveries sent to subscribers", ["kind"], registry=self.registry
        )
        self.gaps = Counter(
            "culver_gaps_sent", "Gaps announced to subscribers", ["reason"], registry=self.registry
        )
        self.connections = Gauge(
            "culver_connections", "Open requests and connections", ["kind"], registry=self.registry
        )
        self.errors = Counter(
            "culver_errors", "Requests and messages answered with a problem", ["code"], registry=self.registry
        )
        self.registry.register(_SiteCollector(site))
        self.registry.register(PipelineCollector(site))

    def count_publication(self, events: Sequence[Event], seconds: float) -> None:
        """Count a publication that took so long from its decoding to its acknowledgement."""
        self._events.inc(len(events))
        self._event_bytes.inc(sum([len(event.payload) for event in events]))
        self._publish_seconds.observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def deliveries_sent(self) -> int:
        """Sums the deliveries of all kinds."""
        samples = [sample for family in self.deliveries.collect() for sample in family.samples]
        return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


class _SiteCollector(Collector):
    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterator[GaugeMetricFamily]:
        status: dict[str, Any] = self._site.observation.status()
        for key, (name, text) in _POSITIONS.items():
            value = status.get(key)
            if isinstance(value, int | float):
                yield GaugeMetricFamily(name, text, value=value)
        end, delivered = status.get("log_next_offset"), status.get("delivered_offset")
        if isinstance(end, int) and isinstance(delivered, int):
            yield GaugeMetricFamily(
                "culver_delivery_lag_events",
                "Events stored and not yet matched",
                value=max(0, end - delivered),
            )
        yield GaugeMetricFamily(
            "culver_ready", "1 while published events reach subscribers", self._site.observation.ready
        )
