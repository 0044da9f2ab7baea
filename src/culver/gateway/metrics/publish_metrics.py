"""What was acknowledged to publishers, as metrics.

Plain sums, made into metrics when they are asked for: they change with every message, and the library's own counters
take 1.5 µs longer for it."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from culver.model import Event

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class PublishMetrics(Collector):
    """Written from the event loop's thread only."""

    def __init__(self) -> None:
        self._events = 0
        self._bytes = 0
        self._seconds = 0.0
        self._counts = [0] * (len(_BUCKETS) + 1)  # publications, by the first bucket that they fit

    def acknowledged(self, events: Sequence[Event], seconds: float) -> None:
        """Count a publication that took so long from its decoding to its acknowledgement."""
        self._events += len(events)
        self._bytes += sum([len(event.payload) for event in events])
        self._seconds += seconds
        self._counts[bisect_left(_BUCKETS, seconds)] += 1

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "culver_events_published", "Events acknowledged to publishers", self._events
        )
        yield CounterMetricFamily(
            "culver_event_bytes_published", "Payload bytes of those events", self._bytes
        )
        bounds = [*(str(bound) for bound in _BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "culver_publish_seconds",
            "Time from a decoded batch to its acknowledgement",
            list(zip(bounds, accumulate(self._counts), strict=True)),
            self._seconds,
        )
