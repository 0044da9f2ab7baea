"""The gateway counts publications and serves the metrics that the documentation names."""

import re
from pathlib import Path

from culver.config import OverlaySettings, Settings
from culver.gateway.gateway_metrics import GatewayMetrics
from culver.model import Event
from support.fake_site import FakeSite
from support.gateway import run

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "api.md"


def test_publications_are_counted_with_their_events_bytes_and_seconds() -> None:
    async def scenario() -> None:
        metrics = GatewayMetrics(FakeSite())
        event = Event({}, {"n": 1}, b'{"n":1}')
        for seconds, count in ((0.0001, 1), (0.001, 2), (0.0011, 1), (60.0, 3)):
            metrics.count_publication([event] * count, seconds)
        value = metrics.registry.get_sample_value
        assert value("culver_events_published_total") == 7
        assert value("culver_event_bytes_published_total") == 49
        assert value("culver_publish_seconds_count") == 4
        assert value("culver_publish_seconds_sum") == 0.0001 + 0.001 + 0.0011 + 60.0
        for bound, fitting in (("0.0005", 1), ("0.001", 2), ("0.0025", 3), ("10.0", 3), ("+Inf", 4)):
            assert value("culver_publish_seconds_bucket", {"le": bound}) == fitting

    run(scenario())


def test_the_documentation_names_every_metric() -> None:
    async def scenario() -> None:
        overlay = OverlaySettings(name="paris", listen="127.0.0.1:7401")
        families = GatewayMetrics(FakeSite(Settings(overlay=overlay))).registry.collect()
        suffix = {"counter": "_total", "info": "_info"}
        served = {family.name + suffix.get(family.type, "") for family in families}
        named = set(re.findall(r"`(culver_\w+)", DOCUMENTATION.read_text(encoding="utf-8")))
        assert served == named

    run(scenario())
