"""Hostile requests about groups, to a site with its log, registry and mailboxes: each gets a clear error or a close
code with its reason, and the site goes on serving others."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from culver.assembly import open_site
from culver.config import PipelineSettings, Settings
from culver.gateway.app import create_app
from culver.gateway.server.gateway_server import GatewayServer
from support.gateway import gateway_settings, run, socket_to
from support.until import until

pytestmark = pytest.mark.timeout(180)

SUBPROTOCOLS = ["culver.v2.json", "culver.v2.msgpack", "culver.v1.json"]


@asynccontextmanager
async def besieged(data_dir: Path) -> AsyncIterator[tuple[GatewayServer, httpx.AsyncClient]]:
    """A site with three subscriptions and three events. Another client follows them all the time, and gets what is
    published afterwards."""
    settings = Settings(data_dir=data_dir, pipeline=PipelineSettings(engine="inline"))
    settings = gateway_settings(settings, requests_per_second=0, events_per_second=0)
    async with open_site(settings) as site:
        await until(lambda: site.observation.ready, 120)
        async with (
            GatewayServer(create_app(site), site.settings.gateway) as server,
            httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client,
        ):
            rows = {"filter": "n >= ?", "rows": [[0], [0]]}
            await client.post("/v1/sets/quotes", json=rows)
            await client.post("/v1/subscriptions", json={"id": "alerts", "filter": "n >= 0"})
            await client.post("/v1/events", json=[{"n": n} for n in range(3)])
            async with socket_to(server) as other:
                assert (await ask(other, op="follow", ref=1, set="quotes"))["count"] == 2
                await received(other, 3)
                yield server, client
                await client.post("/v1/events", json={"n": 99})
                while (event := (await received(other, 1))[-1])["event"] != {"n": 99}:
                    pass
                assert (await ask(other, op="ack", ref=2, group=1, offset=event["offset"]))["ref"] == 2


async def ask(socket: ClientConnection, **message: Any) -> dict[str, Any]:
    """Send a message and return its answer; what comes in between is left out."""
    await socket.send(json.dumps(message))
    return await answer_to(socket, message["ref"])


async def answer_to(socket: ClientConnection, reference: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            text = await socket.recv()
            answer: dict[str, Any] = {} if isinstance(text, bytes) else json.loads(text)
            if answer.get("ref") == reference:
                return answer


async def received(socket: ClientConnection, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += json.loads(await socket.recv()).get("events", [])
    return found


BEYOND = 2**64 + 17
WRONG: list[tuple[str, str, str]] = [
    # both kinds in one message, or none
    ('"op": "follow"', "set", "invalid_request"),
    ('"op": "follow", "set": "quotes", "prefix": "q"', "set", "invalid_request"),
    ('"op": "follow", "set": "quotes", "subscriptions": ["alerts"]', "set", "invalid_request"),
    ('"op": "follow", "prefix": "q", "subscriptions": ["alerts"]', "set", "invalid_request"),
    ('"op": "ack", "group": 1, "offset": 0, "delivery_id": "alerts:0"', "delivery_id", "invalid_request"),
    ('"op": "ack", "offset": 0', "delivery_id", "invalid_request"),
    ('"op": "ack", "group": 1', "delivery_id", "invalid_request"),
    ('"op": "detach", "group": 1, "subscription": "alerts"', "subscription", "invalid_request"),
    ('"op": "detach"', "subscription", "invalid_request"),
    # wrong types
    ('"op": "follow", "set": ["quotes"]', "set", "invalid_request"),
    ('"op": "follow", "prefix": 7', "prefix", "invalid_request"),
    ('"op": "follow", "subscriptions": "alerts"', "subscriptions", "invalid_request"),
    ('"op": "follow", "subscriptions": {"0": "alerts"}', "subscriptions", "invalid_request"),
    ('"op": "follow", "subscriptions": [null]', "subscriptions[0]", "invalid_request"),
    ('"op": "follow", "subscriptions": [["alerts"]]', "subscriptions[0]", "invalid_request"),
    ('"op": "ack", "group": "1", "offset": 0', "group", "invalid_request"),
    ('"op": "ack", "group": 1.5, "offset": 0', "group", "invalid_request"),
    ('"op": "ack", "group": true, "offset": 0', "group", "invalid_request"),
    ('"op": "ack", "group": 1, "offset": "0"', "offset", "invalid_request"),
    ('"op": "ack", "group": 1, "offset": [0]', "offset", "invalid_request"),
    ('"op": "detach", "group": {}', "group", "invalid_request"),
    ('"op": "publish_each", "events": {}', "events", "invalid_request"),
    ('"op": "publish_each", "events": []', "events", "invalid_request"),
    # numbers
    ('"op": "follow", "set": "quotes", "after": -1', "after", "invalid_request"),
    (f'"op": "follow", "set": "quotes", "after": {BEYOND}', "after", "invalid_request"),
    ('"op": "follow", "set": "quotes", "after": 1e400', "after", "invalid_request"),
    ('"op": "ack", "group": 1, "offset": -1', "offset", "invalid_request"),
    ('"op": "ack", "group": 1, "offset": 3', "offset", "invalid_request"),  # not reached
    (f'"op": "ack", "group": 1, "offset": {2**63 - 1}', "offset", "invalid_request"),
    (f'"op": "ack", "group": 1, "offset": {2**63}', "offset", "invalid_request"),
    (f'"op": "ack", "group": 1, "offset": {BEYOND}', "offset", "invalid_request"),
    ('"op": "ack", "group": 1, "offset": NaN', "offset", "invalid_request"),
    (f'"op": "ack", "group": {BEYOND}, "offset": 0', "group", "invalid_request"),
    # what is not there
    ('"op": "ack", "group": 0, "offset": 0', "group", "not_found"),
    ('"op": "ack", "group": -1, "offset": 0', "group", "not_found"),
    (f'"op": "ack", "group": {2**63 - 1}, "offset": 0', "group", "not_found"),
    ('"op": "detach", "group": 2', "group", "not_found"),
    ('"op": "follow", "set": "unknown"', "set", "not_found"),
    ('"op": "follow", "set": ""', "set", "not_found"),
    ('"op": "follow", "set": "quotes.0"', "set", "not_found"),
    ('"op": "follow", "set": "\\u0000"', "set", "not_found"),
    ('"op": "follow", "subscriptions": ["alerts", "nobody"]', "subscriptions[1]", "not_found"),
    ('"op": "ack", "delivery_id": "alerts:0"', "delivery_id", "not_found"),
    # names and lists
    ('"op": "follow", "prefix": ""', "prefix", "invalid_request"),
    (f'"op": "follow", "prefix": "{"x" * 129}"', "prefix", "invalid_request"),
    ('"op": "follow", "subscriptions": []', "subscriptions", "invalid_request"),
    ('"op": "follow", "subscriptions": ["alerts", "*"]', "subscriptions[1]", "invalid_request"),
    (
        f'"op": "follow", "subscriptions": {json.dumps(["alerts"] * 10_001)}',
        "subscriptions",
        "invalid_request",
    ),
    ('"op": "follow", "set": "quotes", "gateways": []', "gateways", "invalid_request"),
    ('"op": "follow", "set": "quotes", "set": "quotes"', "set", "invalid_request"),
]


@pytest.mark.parametrize("subprotocol", SUBPROTOCOLS[:2])
def test_wrong_messages_are_refused_by_field_and_the_connection_stays(
    tmp_path: Path, subprotocol: str
) -> None:
    async def scenario() -> None:
        async with besieged(tmp_path) as (server, client):
            for start in range(0, len(WRONG), 40):  # a connection may be wrong a hundred times
                async with socket_to(server, subprotocols=[subprotocol]) as socket:
                    followed = await ask(socket, op="follow", ref=-1, set="quotes")
                    assert (followed["op"], followed["group"]) == ("followed", 1)
                    for reference, (message, field, code) in enumerate(WRONG[start : start + 40]):
                        await socket.send(f'{{"ref": {reference}, {message}}}')
                        refused = await answer_to(socket, reference)
                        assert (refused["op"], refused["code"]) == ("error", code), (message, refused)
                        assert refused["field"] == field, (message, refused)
                        assert refused["detail"]
                    assert (await ask(socket, op="ping", ref=-2))["op"] == "pong"
            for subscription in ("alerts", "quotes.0", "quotes.1"):
                answer = (await client.get(f"/v1/subscriptions/{subscription}")).json()
                assert answer["pending"] == 3

    run(scenario())


def test_a_group_may_be_followed_twice_and_each_is_left_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with besieged(tmp_path) as (server, client), socket_to(server) as socket:
            for number in (1, 2):
                followed = await ask(socket, op="follow", ref=number, set="quotes", after=2)
                assert (followed["group"], followed["count"]) == (number, 2)
            await client.post("/v1/events", json={"n": 50})
            (event,) = await received(socket, 1)
            assert event["groups"] == {"1": ["quotes.0", "quotes.1"], "2": ["quotes.0", "quotes.1"]}
            assert (await ask(socket, op="detach", ref=3, group=1))["group"] == 1
            assert (await ask(socket, op="detach", ref=4, group=1))["code"] == "not_found"
            assert (await ask(socket, op="ack", ref=5, group=2, offset=3))["offset"] == 3
            assert (await client.get("/v1/subscriptions/quotes.1")).json()["pending"] == 0

    run(scenario())


def test_more_groups_than_fit_one_connection_are_refused_and_the_others_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with besieged(tmp_path) as (server, _), socket_to(server) as socket:
            for first in range(0, 1_000, 500):
                for number in range(first, first + 500):
                    await socket.send(
                        json.dumps({"op": "follow", "ref": number, "prefix": f"nobody-{number}"})
                    )
                assert (await answer_to(socket, first + 499))["op"] == "followed"
            refused = await ask(socket, op="follow", ref=-1, prefix="quotes")
            assert (refused["code"], refused["limit"]) == ("too_many_subscriptions", 1_000)
            assert (await ask(socket, op="detach", ref=-2, group=1))["op"] == "detached"
            assert (await ask(socket, op="follow", ref=-3, prefix="quotes"))["count"] == 2
            assert len(await received(socket, 3)) == 3

    run(scenario())


@pytest.mark.parametrize("subprotocol", SUBPROTOCOLS)
def test_binary_messages_close_the_connection_with_a_reason(tmp_path: Path, subprotocol: str) -> None:
    async def scenario() -> None:
        async with besieged(tmp_path) as (server, _):
            packed = msgspec.msgpack.encode({"op": "follow", "set": "quotes"})
            for content in (packed, b"", b'{"op": "ping"}'):
                async with socket_to(server, subprotocols=[subprotocol]) as socket:
                    await socket.send(content)
                    with pytest.raises(ConnectionClosed):
                        async with asyncio.timeout(10):
                            await socket.recv()
                    assert (socket.close_code, socket.close_reason) == (1003, "send JSON as text messages")

    run(scenario())


@pytest.mark.parametrize("offered", [["culver.v3.json"], ["CULVER.V2.JSON"], ["x" * 5_000], ["a"] * 1_000])
def test_unknown_subprotocols_are_refused_with_those_that_are_known(
    tmp_path: Path, offered: list[str]
) -> None:
    async def scenario() -> None:
        async with besieged(tmp_path) as (server, client):
            with pytest.raises(InvalidHandshake):
                async with socket_to(server, subprotocols=offered):
                    pass
            headers = {
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
                "Sec-WebSocket-Protocol": ", ".join(offered),
            }
            problem = await client.get("/v1/ws", headers=headers)
            assert (problem.status_code, problem.json()["field"]) == (400, "sec-websocket-protocol")
            assert "culver.v2.json, culver.v2.msgpack, culver.v1.json" in problem.json()["detail"]

    run(scenario())


def test_one_unknown_subprotocol_among_known_ones_does_no_harm(tmp_path: Path) -> None:
    async def scenario() -> None:
        offered = ["other", *SUBPROTOCOLS[1:]]
        async with besieged(tmp_path) as (server, _), socket_to(server, subprotocols=offered) as socket:
            assert socket.subprotocol == "culver.v2.msgpack"

    run(scenario())


def test_refused_events_of_a_message_name_their_places_and_stop_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with besieged(tmp_path) as (server, _), socket_to(server) as socket:
            events = f'[{{"n": 1}}, 7, {{"n": {BEYOND}}}, null, {{"n": 2}}, {{"a": {{"n": NaN}}}}, []]'
            await socket.send(f'{{"op": "publish_each", "ref": 1, "events": {events}}}')
            answer = await answer_to(socket, 1)
            assert answer["ranges"] == [[3, 5]]
            assert [each["index"] for each in answer["refused"]] == [1, 2, 3, 5, 6]
            assert all(each["problem"]["code"] == "invalid_event" for each in answer["refused"])
            assert answer["refused"][1]["problem"]["field"] == "n"

    run(scenario())
