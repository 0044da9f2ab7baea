"""What is acknowledged to publishers is summed up for /metrics."""

from prometheus_client import CollectorRegistry

from culver.gateway.metrics.publish_metrics import PublishMetrics
from culver.model.event import Event


def test_publications_are_counted_with_their_events_bytes_and_seconds() -> None:
    metrics = PublishMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    event = Event({}, {"n": 1}, b'{"n":1}')
    for seconds, count in ((0.0001, 1), (0.001, 2), (0.0011, 1), (60.0, 3)):
        metrics.acknowledged([event] * count, seconds)
    assert registry.get_sample_value("culver_events_published_total") == 7
    assert registry.get_sample_value("culver_event_bytes_published_total") == 49
    assert registry.get_sample_value("culver_publish_seconds_count") == 4
    assert registry.get_sample_value("culver_publish_seconds_sum") == 0.0001 + 0.001 + 0.0011 + 60.0
    for bound, fitting in (("0.0005", 1), ("0.001", 2), ("0.0025", 3), ("10.0", 3), ("+Inf", 4)):
        assert registry.get_sample_value("culver_publish_seconds_bucket", {"le": bound}) == fitting
