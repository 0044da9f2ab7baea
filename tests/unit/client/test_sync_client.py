import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import culver
from support.site_thread import site_in_thread


@pytest.fixture
def url() -> Iterator[str]:
    with site_in_thread() as address:
        yield address


def test_a_program_without_asyncio_publishes_and_receives(url: str) -> None:
    with culver.connect_sync(url) as client, client.subscribe("price > 20") as stream:
        assert client.ready()
        assert client.publish([{"price": 10}, {"price": 30}]) == culver.Receipt(0, 2)
        client.publish(price=40)
        assert [next(stream)["price"] for _ in range(2)] == [30, 40]
        assert stream.next(timeout_seconds=0.01) is None


def test_many_publications_may_be_under_way(url: str) -> None:
    with culver.connect_sync(url) as client:
        futures = [client.publish_soon(n=n) for n in range(200)]
        assert sorted(future.result(10).first_offset for future in futures) == list(range(200))


def test_durable_messages_are_acknowledged(url: str) -> None:
    with culver.connect_sync(url) as client:
        with client.subscribe("TRUE", durable="alerts", ack="manual") as stream:
            client.publish([{"n": 0}, {"n": 1}])
            message = next(stream)
            assert message.delivery_id == "alerts:0"
            message.ack()
        assert client.subscription("alerts").pending == 1
        with client.subscribe(durable="alerts") as stream:
            assert next(stream)["n"] == 1


def test_groups_are_followed_without_asyncio(url: str) -> None:
    with culver.connect_sync(url) as client:
        client.subscribe_many("n >= ?", [[0], [1]], name="quotes")
        with (
            client.subscribe_set("quotes", ack="manual") as quotes,
            client.subscribe_prefix("quotes.1", gaps=True) as prefix,
            client.subscribe_group(["quotes.0"]) as single,
        ):
            assert (quotes.count, prefix.count, single.count) == (2, 1, 1)
            client.publish([{"n": 0}, {"n": 1}])
            messages = [next(quotes) for _ in range(2)]
            assert all(isinstance(message, culver.SyncGroupMessage) for message in messages)
            assert messages[1].delivery_ids == ("quotes.0:1", "quotes.1:1")
            first = next(prefix)
            assert isinstance(first, culver.SyncGroupMessage)
            assert (first["n"], first.offset) == (1, 1)
            assert next(single)["n"] == 0
            messages[0].ack()
            assert [each.pending for each in client.subscriptions()] == [1, 1]
            messages[1].ack()
            assert [each.pending for each in client.subscriptions()] == [0, 0]
            assert quotes.next(timeout_seconds=0.01) is None


def test_subscriptions_and_filters_are_managed(url: str) -> None:
    with culver.connect_sync(url) as client:
        client.create_subscription("a > 1", id="one")
        assert client.subscription("one").scheme == "columnar"
        client.replace_subscription("one", "a > 2", scheme="counting")
        assert client.create_subscription("a > 1", id="two", scheme="reference").scheme == "reference"
        assert [each.scheme for each in client.subscriptions()] == ["counting", "reference"]
        client.delete_subscription("two")
        assert [each.filter for each in client.subscriptions()] == ["a > 2"]
        client.delete_subscription("one")
        assert client.subscriptions() == []
        assert client.test_filter("a > 1", {"a": 2}).matches
        assert client.explain_filter("a > 1") == ["a > 1"]
        assert client.status()["engine"] == "fake"


def test_errors_come_through_as_they_are(url: str) -> None:
    with culver.connect_sync(url) as client:
        with pytest.raises(culver.RequestRefused):
            next(client.subscribe("price >"))
        with pytest.raises(culver.InvalidEvent):
            client.publish(n=float("nan"))


def test_a_closed_client_leaves_no_thread_and_refuses_work(url: str) -> None:
    before = threading.active_count()
    client = culver.connect_sync(url)
    with pytest.raises(culver.ClientError, match="not open"):
        client.publish(n=1)
    with client:
        stream = client.subscribe("TRUE")
        stream.start()
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(culver.ClientError, match="closed"):
        client.publish(n=1)
    client.close()


def test_several_threads_share_a_client(url: str) -> None:
    with culver.connect_sync(url) as client:
        threads = [threading.Thread(target=lambda n=n: client.publish(n=n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.publish(last=True) == culver.Receipt(8, 9)


def test_many_subscriptions_of_one_form_are_made_and_removed_together(url: str) -> None:
    with culver.connect_sync(url) as client:
        done: list[int] = []
        rows = client.subscribe_many(
            "symbol = ? AND close >= ?",
            [["ACME", 20.5], ["EMCA", 7.0]],
            name="quotes",
            mailbox=culver.Mailbox(max_count=5),
            progress=done.append,
        )
        assert (rows.first, rows.count, rows.id(1), done) == (0, 2, "quotes.1", [2])
        more = client.subscribe_many("n = ?", {"n": range(3)}, name="quotes", first=2)
        assert more.id(2) == "quotes.4"
        with pytest.raises(culver.RequestRefused) as caught:
            client.subscribe_many("n = ?", [[1]], name="quotes", first=2)
        assert caught.value.details["next"] == 5
        with pytest.raises(culver.InvalidRequest):
            client.subscribe_many("n = ?", [], name="quotes")
        many = client.subscribe_many("n IN (?, 1)", {"n": range(10_500)}, name="many", progress=done.append)
        assert (many.first, many.count, done) == (0, 10_500, [2, 10_000, 10_500])
        assert client.delete_set("many") == 10_500
        assert client.subscription("quotes.1").filter == "symbol = 'EMCA' AND close >= 7.0"
        assert [(each.set, each.count) for each in client.sets()] == [("quotes", 5)]
        assert client.delete_set("quotes") == 5


def test_history_is_a_plain_iterator_in_pages(url: str) -> None:
    with culver.connect_sync(url) as client:
        client.publish([{"n": n} for n in range(2_500)])
        events = client.history(1, filter_text="n <> 5")
        assert next(events)["n"] == 1
        assert [event.offset for event in events] == [n for n in range(2, 2_500) if n != 5]
        assert list(client.history(2_500)) == []
        some = client.history()
        assert next(some).offset == 0  # and nobody reads on
        with pytest.raises(culver.InvalidRequest) as caught:
            next(client.history(1, since=datetime.now(UTC)))
        assert caught.value.field == "since"
        with pytest.raises(culver.InvalidRequest, match="offset from UTC"):
            client.log(datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_mailbox_is_read_by_range_without_asyncio(url: str) -> None:
    with culver.connect_sync(url) as client:
        client.create_subscription("n > 0", id="s")
        client.publish([{"n": n} for n in range(5)])
        part = client.mailbox("s")
        assert (part.start, part.end, part.count) == (0, 5, 4)
        page = client.mailbox_table("s", 0, 5, attributes=["n"], include="attributes")
        assert page.events.column("i:n").to_pylist() == [1, 2, 3, 4]
        client.acknowledge("s", 2)
        assert client.mailbox("s").count == 2
        assert client.log_table(3, 5).events.column("event").to_pylist() == ['{"n":3}', '{"n":4}']
