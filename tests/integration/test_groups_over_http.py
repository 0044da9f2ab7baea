"""Groups of durable subscriptions over HTTP, against a site with its log, registry and mailboxes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from culver.assembly import open_site
from culver.config import PipelineSettings, Settings
from culver.gateway.app import create_app
from culver.gateway.server.gateway_server import GatewayServer
from support.event_streams import Stream, streaming
from support.gateway import gateway_settings, run
from support.until import until

pytestmark = pytest.mark.timeout(180)

QUOTES = {"filter": "n >= ?", "rows": [[0], [2], [4]]}
STREAM = "/v1/groups/stream?set=quotes"


@asynccontextmanager
async def site_at(data_dir: Path, **gateway: Any) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(data_dir=data_dir, pipeline=PipelineSettings(engine="inline"))
    async with open_site(gateway_settings(settings, **gateway)) as site:
        await until(lambda: site.observation.ready, 120)
        async with (
            GatewayServer(create_app(site, heartbeat_seconds=0.2), site.settings.gateway) as server,
            httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client,
        ):
            yield client


async def items_of(stream: Stream, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        message = await stream.message()
        if message.get("event") == "event":
            item = json.loads(message["data"])
            assert message["id"] == item["position"]
            found.append(item)
        else:
            assert "" in message, message  # a heartbeat
    return found


def seen(items: list[dict[str, Any]]) -> list[tuple[int, list[str]]]:
    return [(item["offset"], sorted(item["to"])) for item in items]


async def pending(client: httpx.AsyncClient, *subscriptions: str) -> list[int]:
    answers = [await client.get(f"/v1/subscriptions/{each}") for each in subscriptions]
    return [answer.json()["pending"] for answer in answers]


MEMBERS = ("quotes.0", "quotes.1", "quotes.2")


def test_a_stream_resumes_and_acknowledges_by_its_last_id_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as client:
            await client.post("/v1/sets/quotes", json=QUOTES)
            async with streaming(client, STREAM, first="following") as (stream, hello):
                assert hello == {"count": 3, "gateways": []}
                await client.post("/v1/events", json=[{"n": n} for n in range(6)])
                items = await items_of(stream, 6)
                assert seen(items)[4] == (4, ["quotes.0", "quotes.1", "quotes.2"])
                assert items[4]["event"] == {"n": 4}
            assert await pending(client, *MEMBERS) == [6, 4, 2]
            headers = {"Last-Event-ID": items[3]["position"]}
            async with streaming(client, STREAM, first="following", headers=headers) as (stream, _):
                assert await items_of(stream, 2) == items[4:]
            assert await pending(client, *MEMBERS) == [2, 2, 2]
        async with site_at(tmp_path) as client:
            assert await pending(client, *MEMBERS) == [2, 2, 2]
            async with streaming(client, STREAM, first="following") as (stream, _):
                assert await items_of(stream, 2) == items[4:]

    run(scenario())


def test_a_last_id_acknowledges_nothing_of_those_who_came_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as client:
            await client.post("/v1/sets/quotes", json=QUOTES)
            await client.post("/v1/subscriptions", json={"id": "other", "filter": "n >= 0"})
            await client.post("/v1/events", json=[{"n": n} for n in range(3)])
            path = "/v1/groups/stream?prefix=quotes"
            async with streaming(client, path, first="following") as (stream, _):
                last = (await items_of(stream, 3))[-1]
            # The set grows while nobody is connected, and events come that nobody is handed.
            await client.post("/v1/sets/quotes", json={**QUOTES, "rows": [[0]]})
            await client.post("/v1/events", json=[{"n": 9}])
            headers = {"Last-Event-ID": last["position"]}
            async with streaming(client, path, first="following", headers=headers) as (stream, hello):
                assert hello["count"] == 4
                assert seen(await items_of(stream, 1)) == [(3, [*MEMBERS, "quotes.3"])]
            # A list takes in a subscription whose events this client never had.
            path = "/v1/groups/stream?subscription=quotes.0"
            async with streaming(client, path, first="following") as (stream, _):
                last = (await items_of(stream, 1))[-1]
            headers = {"Last-Event-ID": last["position"]}
            path += "&subscription=other"
            async with streaming(client, path, first="following", headers=headers) as (stream, _):
                assert [offset for offset, _ in seen(await items_of(stream, 4))] == [0, 1, 2, 3]
            assert await pending(client, "other", *MEMBERS, "quotes.3") == [4, 1, 1, 1, 1]

    run(scenario())


def test_polls_and_acknowledgements_are_those_of_all_members(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as client:
            await client.post("/v1/sets/quotes", json=QUOTES)
            await client.post("/v1/events", json=[{"n": n} for n in range(6)])
            received: list[dict[str, Any]] = []
            query: dict[str, Any] = {"set": "quotes", "limit": 4, "wait": 10}
            while len(received) < 6:
                answer = (await client.get("/v1/groups/events", params=query)).json()
                assert (answer["count"], answer["gateways"]) == (3, [])
                received += answer["items"]
                query["after"] = received[-1]["position"]
            assert [offset for offset, _ in seen(received)] == list(range(6))
            assert await pending(client, *MEMBERS) == [6, 4, 2]
            body = {"set": "quotes", "position": received[4]["position"]}
            assert (await client.post("/v1/groups/ack", json=body)).json()["acknowledged"] == 4
            assert await pending(client, *MEMBERS) == [1, 1, 1]
            refused = await client.post("/v1/groups/ack", json={"set": "quotes", "offset": 6})
            assert (refused.status_code, refused.json()["field"]) == (400, "offset")
            one = {"delivery_id": f"quotes.1:{received[5]['offset']}"}
            assert (await client.post("/v1/subscriptions/quotes.1/ack", json=one)).is_success
        async with site_at(tmp_path) as client:
            answer = await client.get("/v1/groups/events", params={"prefix": "quotes.", "wait": 10})
            assert seen(answer.json()["items"]) == [(5, ["quotes.0", "quotes.2"])]
            body = {"subscriptions": list(MEMBERS), "offset": 5}
            assert (await client.post("/v1/groups/ack", json=body)).json()["count"] == 3
            assert await pending(client, *MEMBERS) == [0, 0, 0]

    run(scenario())


def test_gaps_name_their_subscriptions_and_are_acknowledged_one_by_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as client:
            small = {"id": "small", "filter": "n >= 0", "mailbox": {"max_count": 2}}
            await client.post("/v1/subscriptions", json=[small, {"id": "smooth", "filter": "n >= 0"}])
            await client.post("/v1/events", json=[{"n": n} for n in range(5)])
            path = "/v1/groups/events?prefix=sm&wait=0"

            async def gaps() -> list[dict[str, Any]]:
                items = (await client.get(path)).json()["items"]
                return [item for item in items if item["type"] == "gap"]

            found: list[dict[str, Any]] = []
            while not found:
                found = await gaps()
            gap = {"type": "gap", "start": 0, "end": 3, "dropped": 3, "reason": "overflow", "to": ["small"]}
            assert found == [gap]
            async with streaming(client, "/v1/groups/stream?prefix=sm", first="following") as (stream, _):
                message = await stream.message()
                assert (message["event"], json.loads(message["data"])) == ("gap", gap)
                assert "id" not in message
                offsets = [item["offset"] for item in await items_of(stream, 5)]
                assert offsets == [0, 1, 2, 3, 4]  # those of the other member
            await client.post("/v1/subscriptions/small/ack", json={"delivery_id": "small:2"})
            assert await gaps() == []
            assert await pending(client, "small", "smooth") == [2, 5]

    run(scenario())


def test_a_stream_ends_with_its_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as client:
            await client.post("/v1/sets/quotes", json=QUOTES)
            async with streaming(client, STREAM, first="following") as (stream, _):
                assert await stream.message() == {"": "heartbeat"}
                await client.delete("/v1/sets/quotes")
                while "" in (message := await stream.message()):
                    pass
                assert message == {"event": "ended", "data": '{"type":"ended"}'}
                assert await stream.message() == {"event": "END"}
            missing = await client.get(STREAM)
            assert (missing.status_code, missing.json()["field"]) == (404, "set")

    run(scenario())


@pytest.mark.parametrize("last", ["nonsense", "17-xyz", "-1", "6-00000000x", str(2**63), "99"])
def test_a_wrong_last_id_is_a_problem_that_names_it(tmp_path: Path, last: str) -> None:
    async def scenario() -> None:
        async with site_at(tmp_path) as client:
            await client.post("/v1/sets/quotes", json=QUOTES)
            answer = await client.get(STREAM, headers={"Last-Event-ID": last})
            assert (answer.status_code, answer.json()["field"]) == (400, "last-event-id")

    run(scenario())
