"""Numbers of publications, as clients give them over HTTP and over the WebSocket."""

import json
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection

from culver.roles import MOST_SEQUENCE
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run, served, socket_to

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


async def post(site: FakeSite, body: Any, headers: dict[str, str] = JSON, **query: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with memory_client(site) as client:
        return await client.post("/v1/events", params=query, content=content, headers=headers)


async def ask(socket: ClientConnection, **message: Any) -> dict[str, Any]:
    await socket.send(json.dumps(message))
    answer: dict[str, Any] = json.loads(await socket.recv())
    return answer


def events(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def stored(site: FakeSite) -> list[Any]:
    return [event.data["n"] for event in site.events]


def test_repeat_over_http_has_the_answer_of_the_first_time() -> None:
    async def scenario() -> None:
        site = FakeSite()
        first = await post(site, events(7, 8), publisher="p", sequence=7)
        again = await post(site, events(7, 8), publisher="p", sequence=7)
        assert first.json() == {"accepted": 2, "first_offset": 0, "next_offset": 2, "repeated": 0}
        assert again.json() == {"accepted": 2, "first_offset": 0, "next_offset": 2, "repeated": 2}
        assert stored(site) == [7, 8]

    run(scenario())


def test_stream_of_lines_may_be_sent_again_as_a_whole() -> None:
    async def scenario() -> None:
        site = FakeSite()
        lines = [json.dumps(event) for event in events(*range(2_500))]
        broken = "\n".join([*lines[:1_700], "{", *lines[1_700:]]).encode()
        whole = "\n".join(lines).encode()
        answer = await post(site, broken, NDJSON, publisher="p", sequence=10)
        assert answer.json()["accepted"] == 1_700
        await post(site, {"n": -1})
        answer = await post(site, whole, NDJSON, publisher="p", sequence=10)
        assert answer.json() == {
            "accepted": 2_500,
            "repeated": 1_700,
            "first_offset": 0,
            "next_offset": 2_501,
            "ranges": [
                {"first_offset": 0, "next_offset": 1_700},
                {"first_offset": 1_701, "next_offset": 2_501},
            ],
        }
        assert stored(site) == [*range(1_700), -1, *range(1_700, 2_500)]

    run(scenario())


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"publisher": "p"}, "sequence"),
        ({"sequence": 1}, "publisher"),
        ({"publisher": "", "sequence": 1}, "publisher"),
        ({"publisher": "a b", "sequence": 1}, "publisher"),
        ({"publisher": "p\n", "sequence": 1}, "publisher"),
        ({"publisher": "p" * 201, "sequence": 1}, "publisher"),
        ({"publisher": "p", "sequence": -1}, "sequence"),
        ({"publisher": "p", "sequence": "1.5"}, "sequence"),
        ({"publisher": "p", "sequence": MOST_SEQUENCE}, "sequence"),
        ({"publisher": "p", "sequence": 2**63}, "sequence"),
        ({"publisher": "p", "sequence": 1, "more": 1}, "more"),
    ],
)
def test_wrong_numbers_are_refused_by_name(query: dict[str, Any], field: str) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        answer = await post(site, events(1, 2), **query)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
        if field != "more":
            lines = await post(site, b'{"n": 1}\n{"n": 2}', NDJSON, **query)
            assert (lines.status_code, lines.json()["field"]) == (400, field)
        async with served(site) as server, socket_to(server) as socket:
            for operation in ("publish", "publish_each"):
                refused = await ask(socket, op=operation, ref=1, events=events(1, 2), **query)
                assert (refused["op"], refused["field"]) == ("error", field)
        assert [n for n in stored(site) if n != 1] == []

    run(scenario())


def test_conflict_says_which_sequence() -> None:
    async def scenario() -> None:
        site = FakeSite()
        await post(site, events(1), publisher="p", sequence=1)
        answer = await post(site, events(2), publisher="p", sequence=1)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["field"]) == (409, "conflict", "sequence")

    run(scenario())


def test_messages_over_a_websocket_are_numbered() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            message = {"op": "publish", "ref": 1, "events": events(0, 1), "publisher": "p", "sequence": 0}
            answer = {"op": "published", "ref": 1, "first_offset": 0, "next_offset": 2}
            assert await ask(socket, **message) == {**answer, "repeated": 0}
            assert await ask(socket, **message) == {**answer, "repeated": 2}
            await ask(socket, op="publish", events=events(-1))
            message["events"] = events(0, 1, 2)
            assert await ask(socket, **message) == {
                **answer,
                "next_offset": 4,
                "repeated": 2,
                "ranges": [[0, 2], [3, 4]],
            }
        assert stored(site) == [0, 1, -1, 2]

    run(scenario())


def test_refused_event_among_others_uses_up_its_number() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        wrong = {"at": {"$timestamp": "soon"}}
        async with served(site) as server, socket_to(server) as socket:
            message = {"op": "publish_each", "ref": 1, "publisher": "p", "sequence": 5}
            first = await ask(socket, **message, events=[{"n": 5}, wrong, {"n": 7}])
            assert (first["ranges"], first["repeated"]) == ([[0, 2]], 0)
            assert [each["index"] for each in first["refused"]] == [1]
            again = await ask(socket, **message, events=[{"n": 5}, {"n": 6}, {"n": 7}])
            assert (again["ranges"], again["repeated"]) == ([[0, 1], [2, 3], [1, 2]], 2)
        assert stored(site) == [5, 7, 6]

    run(scenario())


def test_only_what_is_stored_is_counted() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            for _ in range(2):
                await client.post("/v1/events", params={"publisher": "p", "sequence": 0}, json=events(0, 1))
            metrics = (await client.get("/metrics")).text
        assert "culver_events_published_total 2.0" in metrics

    run(scenario())
