"""Long polling and acknowledgement."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from culver.errors import Unavailable
from culver.gateway.app import create_app
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run
from support.until import until

PATH = "/v1/subscriptions/alerts"


@asynccontextmanager
async def subscribed(site: FakeSite, events: int = 0) -> AsyncIterator[httpx.AsyncClient]:
    async with memory_client(site) as client:
        await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
        if events:
            await client.post("/v1/events", json=[{"n": n} for n in range(events)])
        yield client


def test_what_waits_comes_at_once_and_comes_again_until_it_is_acknowledged() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with subscribed(site, 3) as client:
            first = (await client.get(f"{PATH}/events")).json()["items"]
            assert first[0] == {"type": "event", "delivery_id": "alerts:0", "offset": 0, "event": {"n": 0}}
            assert (await client.get(f"{PATH}/events")).json()["items"] == first
            acknowledged = await client.post(f"{PATH}/ack", json={"delivery_id": "alerts:1"})
            assert acknowledged.json() == {"acknowledged": 1}
            rest = (await client.get(f"{PATH}/events")).json()["items"]
            assert [item["delivery_id"] for item in rest] == ["alerts:2"]
            assert (await client.get(PATH)).json()["pending"] == 1
        assert site.open_sessions == set()

    run(scenario())


def test_after_skips_without_acknowledging() -> None:
    async def scenario() -> None:
        async with subscribed(FakeSite(), 3) as client:
            items = (await client.get(f"{PATH}/events?after=alerts:1")).json()["items"]
            assert [item["offset"] for item in items] == [2]
            assert (await client.get(PATH)).json()["pending"] == 3

    run(scenario())


def test_a_poll_waits_for_the_first_event() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with subscribed(site) as client:
            polling = asyncio.create_task(client.get(f"{PATH}/events?wait=30"))
            await until(lambda: bool(site.open_sessions))
            await client.post("/v1/events", json={"n": 1})
            assert len((await polling).json()["items"]) == 1

    run(scenario())


def test_an_empty_answer_comes_when_the_time_is_up_and_the_time_is_capped() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(poll_seconds=0.05))
        async with subscribed(site) as client, asyncio.timeout(5):
            for query in ("", "?wait=0", "?wait=0.01", "?wait=99999"):
                assert (await client.get(f"{PATH}/events{query}")).json() == {"items": []}

    run(scenario())


def test_a_limit_bounds_the_items_and_a_large_one_gets_many() -> None:
    async def scenario() -> None:
        async with subscribed(FakeSite(), 1_500) as client:
            for limit, expected in ((1, 1), (999, 999), (1_000, 1_000)):
                items = (await client.get(f"{PATH}/events?limit={limit}")).json()["items"]
                assert [item["offset"] for item in items] == list(range(expected))
            assert len((await client.get(f"{PATH}/events")).json()["items"]) == 100

    run(scenario())


def test_an_answer_of_large_events_is_bounded_in_bytes() -> None:
    async def scenario() -> None:
        async with subscribed(FakeSite()) as client:
            for n in range(60):
                await client.post("/v1/events", json={"n": n, "text": "x" * 250_000})
            answer = await client.get(f"{PATH}/events?limit=1000")
        assert 4_000_000 < len(answer.content) < 5_000_000

    run(scenario())


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("wait=-1", "wait"),
        ("wait=soon", "wait"),
        ("wait=nan", "wait"),
        ("wait=inf", "wait"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("after=17", "after"),
        ("after=other:1", "after"),
        ("after=alerts:-1", "after"),
        ("after=alerts:9999999999999999999", "after"),
        ("colour=red", "colour"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(query: str, field: str) -> None:
    async def scenario() -> None:
        async with subscribed(FakeSite()) as client:
            answer = await client.get(f"{PATH}/events?{query}")
        assert (answer.status_code, answer.json()["field"]) == (400, field)

    run(scenario())


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"delivery_id": "alerts:5"}, "delivery_id"),
        ({"delivery_id": "other:0"}, "delivery_id"),
        ({"delivery_id": "alerts"}, "delivery_id"),
        ({"delivery_id": 0}, "delivery_id"),
        ({}, "delivery_id"),
        ({"delivery_id": "alerts:0", "more": 1}, "more"),
        ([], "body"),
    ],
)
def test_a_wrong_acknowledgement_is_refused(body: object, field: str) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with subscribed(site, 1) as client:
            answer = await client.post(f"{PATH}/ack", json=body)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
        assert site.acknowledged == {}
        assert site.open_sessions == set()

    run(scenario())


@pytest.mark.parametrize("path", ["/v1/subscriptions/none/events", "/v1/subscriptions/none/stream"])
def test_an_unknown_subscription_is_not_found(path: str) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            assert (await client.get(path)).status_code == 404

    run(scenario())


def test_a_subscription_removed_during_a_poll_is_not_found() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with subscribed(site) as client:
            polling = asyncio.create_task(client.get(f"{PATH}/events?wait=30"))
            await until(lambda: bool(site.open_sessions))
            await client.delete(PATH)
            assert (await polling).status_code == 404
        assert site.open_sessions == set()

    run(scenario())


def test_a_site_that_stops_during_a_poll_is_unavailable() -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.failures["receive"] = Unavailable("stopping")
        async with subscribed(site) as client:
            answer = await client.get(f"{PATH}/events?wait=30")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert site.open_sessions == set()

    run(scenario())


def test_a_client_that_leaves_ends_its_poll() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with subscribed(site):
            pass
        gone = asyncio.Event()
        sent: list[object] = []

        async def receive() -> dict[str, object]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"{PATH}/events",
            "query_string": b"wait=30",
            "headers": [(b"host", b"localhost")],
            "client": ("192.0.2.1", 1),
        }
        request = asyncio.create_task(create_app(site)(scope, receive, send))
        await until(lambda: bool(site.open_sessions))
        gone.set()
        async with asyncio.timeout(5):
            await request
        assert sent == []
        assert site.open_sessions == set()

    run(scenario())
