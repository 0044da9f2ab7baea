"""The stream reader as Spark calls it, with crashes at every point: a site in memory, and no Spark."""

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructType

from culver.client import SyncClient
from culver.delivery import DeliveryGap, Waiting
from culver.errors import Conflict, DataLoss, NotFound, RequestRefused, StorageCorrupt, Unavailable
from culver.registry import Registration, SubscriptionSpec
from culver.spark import live_lease, stream_source
from culver.spark.site_access import close_clients
from culver.spark.stream_source import MailboxStreamReader, stream_reader
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread
from support.until import until

SCHEMA = StructType().add("offset", LongType()).add("delivery_id", StringType()).add("n", LongType())
Offset = dict[str, Any]


@pytest.fixture
def site() -> FakeSite:
    return FakeSite(gateway_settings())


@pytest.fixture(autouse=True)
def waits_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "_WAIT_SECONDS", 0.01)


@pytest.fixture
def client(site: FakeSite) -> Iterator[SyncClient]:
    with site_in_thread(site) as url, SyncClient(url) as client:
        try:
            yield client
        finally:
            close_clients()


def reader_of(client: SyncClient, **options: str) -> MailboxStreamReader:
    return stream_reader({"url": client.url, "waitSeconds": "1", **options}, SCHEMA)


def rows_of(reader: MailboxStreamReader, start: Offset, end: Offset) -> list[int]:
    """What a batch reads, its parts in any order."""
    parts = reader.partitions(start, end)
    random.shuffle(parts)
    return sorted(row for part in parts for row in read_part(reader, part))


def read_part(reader: MailboxStreamReader, part: InputPartition) -> list[int]:
    return [row for batch in reader.read(part) for row in batch.column("n").to_pylist()]


def wait_for_renewals(site: FakeSite, subscription: str) -> None:
    before = site.registrations[subscription].number
    asyncio.run(until(lambda: site.registrations[subscription].number >= before + 2))


class Query:
    """What Spark keeps of a query: its logs of offsets and commits, and a sink that replaces a batch by its number.
    A crash loses everything else, at any step."""

    def __init__(self, client: SyncClient, **options: str) -> None:
        self._client = client
        self._options = options
        self.offsets: list[Offset] = []
        self.committed = 0
        self.sink: dict[int, list[int]] = {}

    def run(self, steps: int) -> None:
        """Start, and crash after so many steps."""
        reader = reader_of(self._client, **self._options)
        for _, _ in zip(range(steps), self._steps(reader), strict=False):
            pass
        reader.stop()

    def _steps(self, reader: MailboxStreamReader) -> Iterator[None]:
        while True:
            if len(self.offsets) == self.committed:
                if self.committed:
                    reader.commit(self.offsets[-1])
                    yield
                start = self._start(reader)
                end = reader.latestOffset(start, ReadMaxRows(random.randint(1, 9)))
                yield
                if end == start:
                    return
                self.offsets.append(end)
                yield
            self.sink[self.committed] = rows_of(reader, self._start(reader), self.offsets[self.committed])
            yield
            self.committed += 1
            yield

    def _start(self, reader: MailboxStreamReader) -> Offset:
        """Where the batch that is to be committed next begins: Spark keeps no initial offset."""
        return self.offsets[self.committed - 1] if self.committed else reader.initialOffset()

    @property
    def rows(self) -> list[int]:
        return sorted(row for batch in self.sink.values() for row in batch)


@pytest.mark.parametrize("seed", range(8))
def test_every_event_comes_once_whenever_the_query_crashes(client: SyncClient, seed: int) -> None:
    random.seed(seed)
    client.create_subscription("n > 2", id="s")
    query = Query(client, subscription="s", eventsPerPartition="3")
    published = 0
    for _ in range(12):
        count = random.randint(0, 8)
        if count:
            client.publish([{"n": published + number} for number in range(count)])
        published += count
        query.run(random.randint(1, 12))
    query.run(200)
    assert query.rows == list(range(3, published))
    assert client.subscription("s").pending == 0


def test_the_same_range_is_read_again_in_the_same_parts_until_it_is_committed(client: SyncClient) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(10)])
    reader = reader_of(client, subscription="s", eventsPerPartition="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(9))
    assert (start, end) == ({"subscription": "s", "offset": 0}, {"subscription": "s", "offset": 9})
    parts = [(part.start, part.end) for part in reader.partitions(start, end)]
    assert parts == [(0, 4), (4, 8), (8, 9)]
    client.publish([{"n": 10}])
    again = reader_of(client, subscription="s", eventsPerPartition="4")
    assert [(part.start, part.end) for part in again.partitions(start, end)] == parts
    assert rows_of(again, start, end) == rows_of(reader, start, end) == list(range(9))
    assert client.subscription("s").pending == 11
    reader.commit(end)
    reader.commit(end)
    assert client.subscription("s").pending == 2
    with pytest.raises(DataLoss, match="somebody else has acknowledged"):
        rows_of(reader, start, end)


def test_the_offset_stays_behind_the_last_delivery_whatever_else_is_published(client: SyncClient) -> None:
    client.create_subscription("n = 0", id="s")
    client.publish([{"n": 0}, {"n": 1}])
    reader = reader_of(client, subscription="s")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(9))
    assert end["offset"] == 1
    client.publish([{"n": 2}])
    assert reader.latestOffset(end, ReadMaxRows(9)) == end


def test_a_query_of_what_is_there_now_ends_there(client: SyncClient) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(5)])
    reader = reader_of(client, subscription="s")
    reader.prepareForTriggerAvailableNow()
    client.publish([{"n": 5}])
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    second = reader.latestOffset(first, ReadMaxRows(3))
    assert (first["offset"], second["offset"]) == (3, 5)
    assert reader.latestOffset(second, ReadMaxRows(3)) == second


def test_a_query_of_what_is_there_now_fails_where_matching_stands_still(
    client: SyncClient, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(5)])
    reader = reader_of(client, subscription="s", waitSeconds="0")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    frontiers = iter([1, 2, 3])

    def matched(registration: Any, start: int, limit: int) -> Waiting:
        frontier = next(frontiers, 3)
        return Waiting([], [], max(start, frontier), frontier, -1)

    monkeypatch.setattr(site.sessions, "waiting", matched)
    with pytest.raises(Unavailable, match="up to offset 3 and no more for 0 s; this query ends at offset 5"):
        reader.latestOffset(start, ReadMaxRows(9))


def test_a_checkpoint_belongs_to_one_subscription(client: SyncClient) -> None:
    client.create_subscription("n >= 0", id="s")
    reader = reader_of(client, subscription="s")
    with pytest.raises(Conflict) as caught:
        reader.latestOffset({"subscription": "other", "offset": 3}, ReadMaxRows(3))
    assert caught.value.field == "subscription"


def test_a_site_that_went_back_is_noticed(client: SyncClient) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": 0}])
    with pytest.raises(DataLoss, match="ends at offset 1, before offset 9 of this query"):
        reader_of(client, subscription="s").latestOffset({"subscription": "s", "offset": 9}, ReadMaxRows(3))


def test_a_subscription_that_is_not_there_is_refused_at_once(client: SyncClient) -> None:
    with pytest.raises(RequestRefused) as caught:
        reader_of(client, subscription="nobody").initialOffset()
    assert caught.value.field == "id"


def test_acknowledgements_of_somebody_else_fail_the_query(client: SyncClient) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(5)])
    reader = reader_of(client, subscription="s")
    start = reader.initialOffset()
    client.acknowledge("s", 2)
    with pytest.raises(DataLoss, match="a subscription belongs to one query"):
        reader.latestOffset(start, ReadMaxRows(3))


def test_of_a_range_that_is_partly_acknowledged_the_rest_is_read_where_that_is_wanted(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(9)])
    reader = reader_of(client, subscription="s", failOnDataLoss="false", eventsPerPartition="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(9))
    client.acknowledge("s", 1)
    assert rows_of(reader, start, end) == list(range(2, 9))
    parts = reader.partitions(start, end)
    client.acknowledge("s", 6)
    assert sorted(row for part in parts for row in read_part(reader, part)) == [7, 8]
    assert "somebody else has acknowledged" in caplog.text


def with_gap(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mailbox has dropped the event at offset 1."""
    waiting = site.sessions.waiting

    def dropped(registration: Any, start: int, limit: int) -> Waiting:
        found = waiting(registration, start, limit)
        gaps = [DeliveryGap("s", 1, 2, 1, "overflow")] if start < 2 else []
        offsets = [each for each in found.offsets if each != 1]
        return Waiting(offsets, gaps, found.end, found.frontier, found.cursor)

    monkeypatch.setattr(site.sessions, "waiting", dropped)


def test_a_gap_fails_the_query_with_words(
    client: SyncClient, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(5)])
    with_gap(site, monkeypatch)
    reader = reader_of(client, subscription="s")
    said = r"1 events from offset 1 up to 2 are missing from the mailbox \(overflow\); .*failOnDataLoss=false"
    with pytest.raises(DataLoss, match=said):
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(9))


def test_a_gap_is_passed_over_where_that_is_wanted(
    client: SyncClient,
    site: FakeSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(5)])
    with_gap(site, monkeypatch)
    query = Query(client, subscription="s", failOnDataLoss="false")
    query.run(100)
    assert query.rows == [0, 2, 3, 4]
    assert "1 events from offset 1 up to 2 are missing" in caplog.text


@pytest.mark.parametrize("failure", [Unavailable("not now"), StorageCorrupt("damaged"), RuntimeError()])
def test_failure_of_the_site_is_not_taken_for_lost_events(
    client: SyncClient, site: FakeSite, failure: Exception
) -> None:
    client.create_subscription("n >= 0", id="s")
    client.publish([{"n": number} for number in range(5)])
    reader = reader_of(client, subscription="s", failOnDataLoss="false", waitSeconds="0")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(9))
    parts = reader.partitions(start, end)
    site.failures["waiting"] = failure
    for work in (
        lambda: reader.latestOffset(end, ReadMaxRows(9)),
        lambda: reader.partitions(start, end),
        lambda: list(reader.read(parts[0])),
    ):
        with pytest.raises(RequestRefused):
            work()
    site.failures["waiting"] = NotFound("ended")
    assert reader.partitions(start, end) == list(reader.read(parts[0])) == []


def test_a_live_query_gets_what_happens_from_its_start_on(client: SyncClient) -> None:
    client.publish([{"n": 0}])
    query = Query(client, filter="n <> 2")
    query.run(3)
    (made,) = client.subscriptions()
    assert made.id.startswith("spark-")
    assert made.expires_at is not None
    client.publish([{"n": number} for number in range(1, 5)])
    query.run(6)
    query.run(100)
    assert query.rows == [1, 3, 4]
    assert [each.id for each in client.subscriptions()] == [made.id]


def test_a_live_query_begins_though_an_answer_was_lost(
    client: SyncClient, site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, answers = site.subscriptions.add, iter([Unavailable("the answer was lost")])

    async def added(specs: Sequence[SubscriptionSpec]) -> list[Registration]:
        made = await add(specs)
        for failure in answers:
            raise failure
        return made

    monkeypatch.setattr(site.subscriptions, "add", added)
    reader = reader_of(client, filter="n >= 0")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(9))
    reader.stop()
    assert end["subscription"] in [each.id for each in client.subscriptions()]


def test_a_live_subscription_is_renewed_until_the_query_stops(
    client: SyncClient,
    site: FakeSite,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(live_lease, "_RENEWAL_SECONDS", 0.01)
    first = reader_of(client, filter="n >= 0")
    end = first.latestOffset(first.initialOffset(), ReadMaxRows(9))
    wait_for_renewals(site, end["subscription"])
    site.failures["get"] = Unavailable("not now")
    asyncio.run(until(lambda: "cannot be renewed now: not now" in caplog.text))
    site.failures.clear()
    wait_for_renewals(site, end["subscription"])
    first.stop()
    assert "culver-live-lease" not in [thread.name for thread in threading.enumerate()]
    again = reader_of(client, filter="n >= 0")
    client.publish([{"n": 0}])
    again.partitions(end, {**end, "offset": 1})  # a batch that Spark repeats
    wait_for_renewals(site, end["subscription"])
    again.stop()
    again.stop()


def test_a_live_query_that_was_away_for_too_long_goes_on_and_says_so(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(client, filter="n >= 0")
    client.publish([{"n": 0}])
    query.run(4)
    (made,) = client.subscriptions()
    client.delete_subscription(made.id)  # as if it had expired
    client.publish([{"n": 1}])
    query.run(100)
    client.publish([{"n": 2}])
    query.run(100)
    assert query.rows == [2]
    assert "may be missing" in caplog.text
    (again,) = client.subscriptions()
    client.delete_subscription(again.id)
    strict = reader_of(client, filter="n >= 0", failOnDataLoss="true")
    with pytest.raises(DataLoss, match="may be missing"):
        strict.latestOffset(query.offsets[-1], ReadMaxRows(9))
    strict.stop()


def test_a_site_that_is_busy_is_asked_again(client: SyncClient, site: FakeSite) -> None:
    client.create_subscription("n >= 0", id="s")
    reader = reader_of(client, subscription="s")
    site.failures["waiting"] = Unavailable("not now")
    with pytest.raises(RequestRefused, match="not now"):
        reader.initialOffset()
    site.failures["waiting"] = NotFound("ended")
    with pytest.raises(RequestRefused, match="ended"):
        reader.initialOffset()
