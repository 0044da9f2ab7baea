from datetime import UTC, datetime

import pytest

from culver.errors import InvalidConfiguration
from culver.spark.source_options import history_options, sink_options, stream_options

URL = "http://127.0.0.1:1"


def test_options_are_read_without_their_case() -> None:
    options = stream_options(
        {"URL": URL, "Subscription": "s", "MAXEVENTSPERBATCH": "7", "failondataloss": "False"}
    )
    assert (options.subscription, options.max_events_per_batch, options.fail_on_data_loss) == ("s", 7, False)


def test_a_durable_query_fails_where_events_are_missing_and_a_live_one_does_not() -> None:
    assert stream_options({"url": URL, "subscription": "s"}).fail_on_data_loss
    assert not stream_options({"url": URL, "filter": "a > 1"}).fail_on_data_loss


def test_a_site_that_is_away_may_be_asked_once() -> None:
    assert stream_options({"url": URL, "subscription": "s", "waitSeconds": "0"}).wait_seconds == 0
    assert sink_options({"url": URL, "waitSeconds": "0"}, is_streaming=False).wait_seconds == 0


def test_a_range_has_offsets_or_times() -> None:
    by_offset = history_options({"url": URL, "from": "3", "to": "9"})
    assert (by_offset.start, by_offset.end) == (3, 9)
    by_time = history_options({"url": URL, "since": "2026-01-05T09:30:00Z", "to": "9"})
    assert (by_time.start, by_time.end) == (datetime(2026, 1, 5, 9, 30, tzinfo=UTC), 9)
    everything = history_options({"url": URL})
    assert (everything.start, everything.end) == (None, None)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "url"),
        ({"subscription": "s"}, "url"),
        ({"url": URL}, "subscription"),
        ({"url": URL, "subscription": "s", "filter": "a > 1"}, "subscription"),
        ({"url": URL, "subscription": "s", "maxEventsPerBatch": "0"}, "maxEventsPerBatch"),
        ({"url": URL, "subscription": "s", "maxEventsPerBatch": "many"}, "maxEventsPerBatch"),
        ({"url": URL, "subscription": "s", "failOnDataLoss": "no"}, "failOnDataLoss"),
        ({"url": URL, "subscription": "s", "from": "1"}, "from"),
        ({"url": URL, "subscription": "s", "fliter": "1"}, "fliter"),
    ],
)
def test_a_stream_s_option_is_refused_by_name(given: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        stream_options(given)
    assert caught.value.field == field
    assert field in caught.value.message


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"from": "-1"}, "from"),
        ({"from": "1", "since": "2026-01-05T09:30:00Z"}, "since"),
        ({"to": "1", "until": "2026-01-05T09:30:00Z"}, "until"),
        ({"since": "2026-01-05T09:30:00"}, "since"),
        ({"until": "tomorrow"}, "until"),
        ({"subscription": "s"}, "subscription"),
        ({"eventsPerPartition": "1e3"}, "eventsPerPartition"),
    ],
)
def test_an_option_of_the_history_is_refused_by_name(given: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        history_options({"url": URL, **given})
    assert caught.value.field == field
