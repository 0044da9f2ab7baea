"""What `/metrics` tells: counters of the gateway, and the site's positions read when they are asked for."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from culver.gateway.metrics.pipeline_metrics import PipelineCollector
from culver.gateway.metrics.publish_metrics import PublishMetrics
from culver.roles import Site

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_POSITIONS = {
    "subscriptions": ("culver_subscriptions", "Subscriptions in effect"),
    "log_first_offset": ("culver_log_first_offset", "The oldest offset that the log still holds"),
    "log_next_offset": ("culver_log_next_offset", "The offset that the next event gets"),
    "delivered_offset": ("culver_delivered_offset", "Events below this offset have been matched"),
    "index_version": ("culver_index_version", "The registry version that events are matched against"),
}


class Metrics:
    """The metrics of one app, in a registry of its own so that two apps in a process do not mix."""

    def __init__(self, site: Site) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.published = PublishMetrics()
        self.registry.register(self.published)
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

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def deliveries_sent(self) -> int:
        """Of all kinds together."""
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
