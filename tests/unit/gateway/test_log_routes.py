"""Reading by offset over HTTP, as JSON and as Arrow."""

import asyncio

import httpx
import pyarrow as pa
import pytest

from support.described_api import check_answer
from support.fake_site import FakeSite
from support.gateway import memory_client, run
from support.until import until

ARROW = {"accept": "application/vnd.apache.arrow.stream"}
EVENTS = [
    {"n": 0},
    {"n": 1, "price": 2.5},
    {"n": "two"},
    {"n": 3, "at": {"$timestamp": "2026-01-05T09:30:00Z"}},
]


async def fill(client: httpx.AsyncClient) -> None:
    await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "s"})
    await client.post("/v1/events", json=EVENTS)


def test_the_log_tells_its_offsets_and_where_a_time_begins() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await fill(client)
            answer = await client.get("/v1/log")
            check_answer(answer)
            assert answer.json() == {"first_offset": 0, "next_offset": 4}
            later = await client.get("/v1/log", params={"time": "2999-01-01T00:00:00+01:00"})
            check_answer(later)
            assert later.json()["offset"] == 4
            assert (await client.get("/v1/log?time=2000-01-01T00:00:00Z")).json()["offset"] == 0

    run(scenario())


def test_a_page_of_the_log_is_json_for_people() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await fill(client)
            answer = await client.get("/v1/log/events?from=1&limit=2")
            check_answer(answer)
            page = answer.json()
            assert [(each["offset"], each["event"]) for each in page["events"]] == [
                (1, EVENTS[1]),
                (2, EVENTS[2]),
            ]
            assert page["events"][0]["received"].startswith("20")
            assert (page["next"], page["gaps"]) == (3, [])
            chosen = (await client.get("/v1/log/events", params={"from": 0, "filter": "n > 0"})).json()
            assert [each["offset"] for each in chosen["events"]] == [1, 3]
            assert chosen["next"] == 4

    run(scenario())


def test_attributes_are_columns_of_arrow_by_kind() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await fill(client)
            query = {"from": 0, "attribute": ["n", "price", "at", "none"], "include": "both"}
            answer = await client.get("/v1/log/events", params=query, headers=ARROW)
            check_answer(answer)
            with pa.ipc.open_stream(answer.content) as reader:
                table = reader.read_all()
            assert set(table.column_names) == {"offset", "received", "event", "i:n", "s:n", "r:price", "t:at"}
            assert table.column("i:n").to_pylist() == [0, 1, None, 3]
            assert table.column("s:n").to_pylist() == [None, None, "two", None]
            assert table.schema.metadata == {b"next": b"4", b"gaps": b"[]"}
            assert str(table.schema.field("received").type) == "timestamp[us, tz=UTC]"
            columns = await client.get("/v1/log/events?from=4&include=attributes", headers=ARROW)
            with pa.ipc.open_stream(columns.content) as reader:
                assert reader.read_all().column_names == ["offset", "received"]

    run(scenario())


def test_a_mailbox_is_told_in_numbers_and_read_again_until_it_is_acknowledged() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await fill(client)
            path = "/v1/subscriptions/s"
            answer = await client.get(f"{path}/mailbox?part=2")
            check_answer(answer)
            assert answer.json() == {
                "from": 0, "to": 4, "count": 3, "bounds": [0, 3, 4], "acknowledged": 0, "complete": 4, "gaps": []
            }  # fmt: skip
            limited = (await client.get(f"{path}/mailbox?limit=2")).json()
            assert (limited["to"], limited["count"]) == (2, 2)
            for _ in range(2):
                page = await client.get(f"{path}/mailbox/events?from=1&to=4")
                check_answer(page)
                assert [each["offset"] for each in page.json()["events"]] == [1, 3]
                assert page.json()["next"] == 4
            first = (await client.get(f"{path}/mailbox/events?from=0&to=4&limit=1")).json()
            assert ([each["offset"] for each in first["events"]], first["next"]) == ([0], 1)
            await client.post(f"{path}/ack", json={"delivery_id": "s:1"})
            gone = await client.get(f"{path}/mailbox/events?from=1&to=4")
            check_answer(gone)
            assert (gone.status_code, gone.json()["first_offset"]) == (410, 2)
            rest = (await client.get(f"{path}/mailbox")).json()
            assert (rest["from"], rest["to"], rest["count"], rest["acknowledged"]) == (2, 4, 1, 2)

    run(scenario())


def test_a_range_that_is_not_matched_again_yet_is_refused_for_now() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await fill(client)
            for tail in ("mailbox", "mailbox/events"):
                answer = await client.get(f"/v1/subscriptions/s/{tail}?from=0&to=5")
                check_answer(answer)
                assert (answer.status_code, answer.json()["retryable"]) == (503, True)

    run(scenario())


def test_a_mailbox_is_waited_for() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await fill(client)
            waiting = asyncio.create_task(client.get("/v1/subscriptions/s/mailbox?from=4&wait=20"))
            await until(lambda: bool(site.open_sessions))
            await client.post("/v1/events", json={"n": 4})
            assert (await waiting).json()["count"] == 1
            assert site.open_sessions == set()
            empty = await client.get("/v1/subscriptions/s/mailbox?from=5&wait=0.01")
            assert (empty.json()["from"], empty.json()["to"], empty.json()["count"]) == (5, 5, 0)

    run(scenario())


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/v1/log?time=yesterday", 400, "time"),
        ("/v1/log?time=2026-01-01T00:00:00", 400, "time"),
        ("/v1/log/events", 400, "from"),
        ("/v1/log/events?from=-1", 400, "from"),
        ("/v1/log/events?from=3&to=2", 400, "to"),
        ("/v1/log/events?from=0&limit=10001", 400, "limit"),
        ("/v1/log/events?from=0&filter=n+%3E", 400, "filter"),
        ("/v1/log/events?from=0&attribute=n", 400, "attribute"),
        ("/v1/log/events?from=0&include=all", 400, "include"),
        ("/v1/subscriptions/none/mailbox", 404, "id"),
        ("/v1/subscriptions/s/mailbox?from=3&to=2", 400, "to"),
        ("/v1/subscriptions/s/mailbox/events?to=2", 400, "from"),
    ],
)
def test_what_cannot_be_is_refused_by_name(path: str, status: int, field: str) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await fill(client)
            answer = await client.get(path)
            check_answer(answer)
            assert (answer.status_code, answer.json()["field"]) == (status, field)

    run(scenario())


def test_what_is_trimmed_is_gone() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await fill(client)
            site.first_offset = 2
            answer = await client.get("/v1/log/events?from=0")
            check_answer(answer)
            assert (answer.status_code, answer.json()["code"], answer.json()["first_offset"]) == (
                410,
                "gone",
                2,
            )

    run(scenario())


def test_another_gateway_is_named() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await fill(client)
            site.ports["s"] = 4711
            answer = await client.get("/v1/subscriptions/s/mailbox?from=0")
            assert answer.status_code == 307
            assert answer.headers["location"] == "http://site:4711/v1/subscriptions/s/mailbox?from=0"

    run(scenario())
