"""Channels over HTTP, Server-Sent Events and the WebSocket."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection

from culver.config import ChannelSettings, Settings
from culver.errors import ServerAccessDenied, Unavailable
from culver.gateway.server.gateway_server import GatewayServer
from culver.gateway.websocket import websocket_endpoint
from culver.roles import ChannelLoss
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run, served, socket_to
from support.until import until

pytestmark = pytest.mark.timeout(60)

BINARY = b"\x00\xff"
LOST = ChannelLoss(publisher=2**63 + 1, first=4, last=7)


def site_with_channels(**gateway: Any) -> FakeSite:
    settings = gateway_settings(Settings(channels=ChannelSettings(url="http://channels.test")), **gateway)
    return FakeSite(settings)


async def hear(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        answer: dict[str, Any] = json.loads(await socket.recv())
    return answer


async def ask(socket: ClientConnection, **message: Any) -> dict[str, Any]:
    await socket.send(json.dumps(message))
    return await hear(socket)


@asynccontextmanager
async def stream(
    server: GatewayServer, path: str, **headers: str
) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """The event and data of each message."""
    async with (
        httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client,
        client.stream("GET", path, headers=headers) as answer,
    ):
        assert answer.status_code == 200

        async def events() -> AsyncIterator[tuple[str, Any]]:
            event = ""
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield event, json.loads(line.removeprefix("data: "))
                elif line.startswith(":"):
                    yield "comment", line

        yield events()


# --- HTTP -----------------------------------------------------------------------------------------------


def test_a_message_is_published_as_text_or_as_bytes() -> None:
    async def scenario() -> None:
        site = FakeSite()
        reader = await site.channels.subscribe("news")
        async with memory_client(site) as client:
            one = await client.post("/v1/channels/news", json={"data": "Zoë"})
            data = base64.b64encode(BINARY).decode()
            two = await client.post("/v1/channels/news", json={"data": data, "encoding": "base64"})
        assert (one.status_code, one.json(), two.json()) == (200, {"receivers": 1}, {"receivers": 1})
        assert await reader.receive(9, 0) == ["Zoë".encode(), BINARY]

    run(scenario())


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("news", {"data": "a?", "encoding": "base64"}, 400, "data"),
        ("news", {}, 400, "data"),
        ("news", {"data": "a", "encoding": "utf-16"}, 400, "encoding"),
        ("__culver:ring", {"data": "a"}, 400, "channel"),
        ("x" * 5_000, {"data": "a"}, 413, "channel"),
    ],
)
def test_a_message_that_cannot_be_published_is_refused_with_its_field(
    name: str, body: dict[str, Any], status: int, field: str
) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            refused = await client.post(f"/v1/channels/{name}", json=body)
        assert (refused.status_code, refused.json()["field"]) == (status, field)
        if field == "encoding":
            assert refused.json()["detail"] == "encoding must be one of base64, text"

    run(scenario())


def test_a_site_without_a_channel_service_says_so_everywhere() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with memory_client(site) as client:
            for answer in (
                await client.post("/v1/channels/news", json={"data": "a"}),
                await client.get("/v1/channels/news/stream"),
            ):
                assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
                assert "--channels-url" in answer.json()["detail"]
            assert (await client.get("/v1/channels")).json()["state"] == "off"
        async with served(site) as server, socket_to(server) as socket:
            for message in ({"op": "channel_subscribe"}, {"op": "channel_publish", "data": "a"}):
                refused = await ask(socket, **message, ref=1, channel="news")
                assert (refused["op"], refused["ref"], refused["status"]) == ("error", 1, 409)

    run(scenario())


def test_a_service_that_does_not_answer_is_a_problem_that_passes() -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.failures["channels.publish"] = Unavailable("no channel service answers")
        async with memory_client(site) as client:
            refused = await client.post("/v1/channels/news", json={"data": "a"})
        assert (refused.status_code, refused.json()["retryable"]) == (503, True)
        assert "retry-after" in refused.headers

    run(scenario())


# --- Server-Sent Events ---------------------------------------------------------------------------------


def test_a_stream_has_the_messages_and_gaps_of_a_channel_and_ends_with_its_connection() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server:
            async with stream(server, "/v1/channels/news/stream") as events:
                assert await anext(events) == ("subscribed", {"channel": "news"})
                await site.channels.publish("news", b"one\ntwo")
                site.channels.lose("news", LOST)
                await site.channels.publish("news", BINARY)
                assert await anext(events) == ("message", {"data": "one\ntwo"})
                gap = {"reason": "lost", "publisher": "8000000000000001", "first": 4, "last": 7}
                assert await anext(events) == ("gap", gap)
                assert await anext(events) == ("message", {"data": "AP8=", "encoding": "base64"})
            await until(lambda: not site.channels.readers["news"])

    run(scenario())


def test_a_reconnected_stream_begins_with_a_gap() -> None:
    async def scenario() -> None:
        async with (
            served(site_with_channels()) as server,
            stream(server, "/v1/channels/news/stream", **{"Last-Event-ID": "7"}) as events,
        ):
            assert [(await anext(events)) for _ in range(2)] == [
                ("subscribed", {"channel": "news"}),
                ("gap", {"reason": "disconnected"}),
            ]

    run(scenario())


def test_a_quiet_stream_has_a_heartbeat() -> None:
    async def scenario() -> None:
        async with (
            served(site_with_channels(), heartbeat_seconds=0.01) as server,
            stream(server, "/v1/channels/news/stream") as events,
        ):
            await anext(events)
            assert await anext(events) == ("comment", ": heartbeat")

    run(scenario())


def test_a_stopping_gateway_ends_the_stream_with_a_problem() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server, stream(server, "/v1/channels/news/stream") as events:
            await anext(events)
            stopping = asyncio.create_task(server.stop())
            event, problem = await anext(events)
            assert (event, problem["code"]) == ("error", "unavailable")
            await stopping
        assert not site.channels.readers["news"]

    run(scenario())


# --- WebSocket ------------------------------------------------------------------------------------------


def test_channels_are_subscribed_published_and_left_over_one_connection() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server:
            async with socket_to(server) as socket:
                begun = await ask(socket, op="channel_subscribe", ref=1, channel="news")
                assert begun == {"op": "channel_subscribed", "ref": 1, "channel": "news"}
                answers = [
                    await ask(socket, op="channel_publish", ref=2, channel="news", data="hello"),
                    await hear(socket),
                ]
                answers.sort(key=lambda answer: answer["op"])
                assert answers == [
                    {"op": "channel_messages", "channel": "news", "messages": [{"data": "hello"}]},
                    {"op": "channel_published", "ref": 2, "channel": "news", "receivers": 1},
                ]
                await site.channels.publish("news", b"a")
                site.channels.lose("news", LOST)
                await site.channels.publish("news", BINARY)
                assert await hear(socket) == {
                    "op": "channel_messages",
                    "channel": "news",
                    "messages": [{"data": "a"}],
                }
                gap = {"reason": "lost", "publisher": "8000000000000001", "first": 4, "last": 7}
                assert await hear(socket) == {"op": "channel_gap", "channel": "news", **gap}
                assert (await hear(socket))["messages"] == [{"data": "AP8=", "encoding": "base64"}]
                left = await ask(socket, op="channel_unsubscribe", ref=3, channel="news")
                assert left == {"op": "channel_unsubscribed", "ref": 3, "channel": "news"}
                assert not site.channels.readers["news"]
                again = await ask(socket, op="channel_subscribe", channel="news")
                assert again["op"] == "channel_subscribed"
            await until(lambda: not site.channels.readers["news"])

    run(scenario())


def test_a_wrong_request_about_a_channel_is_refused_and_leaves_the_others() -> None:
    async def scenario() -> None:
        async with served(site_with_channels()) as server, socket_to(server) as socket:
            await ask(socket, op="channel_subscribe", channel="news")
            twice = await ask(socket, op="channel_subscribe", ref=1, channel="news")
            assert (twice["status"], twice["field"]) == (409, "channel")
            unknown = await ask(socket, op="channel_unsubscribe", ref=2, channel="other")
            assert (unknown["status"], unknown["field"]) == (404, "channel")
            reserved = await ask(socket, op="channel_subscribe", ref=3, channel="__culver:ring")
            assert (reserved["status"], reserved["field"]) == (400, "channel")
            bad = await ask(socket, op="channel_publish", ref=4, channel="news", data="?", encoding="base64")
            assert (bad["status"], bad["field"]) == (400, "data")
            published = await ask(socket, op="channel_publish", ref=5, channel="other", data="a")
            assert published["receivers"] == 0

    run(scenario())


def test_a_channel_that_a_server_refuses_ends_and_leaves_the_connection() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server, socket_to(server) as socket:
            await ask(socket, op="channel_subscribe", channel="news")
            site.channels.interrupt("news", ServerAccessDenied("the channel is forbidden", url="redis://a"))
            refused = await hear(socket)
            assert (refused["op"], refused["channel"], refused["code"]) == (
                "error",
                "news",
                "server_access_denied",
            )
            assert not site.channels.readers["news"]
            site.failures.clear()
            again = await ask(socket, op="channel_subscribe", ref=2, channel="news")
            assert again["op"] == "channel_subscribed"

    run(scenario())


def test_a_channel_that_a_server_refuses_ends_its_stream_with_a_problem() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server, stream(server, "/v1/channels/news/stream") as events:
            await anext(events)
            site.channels.interrupt("news", ServerAccessDenied("the channel is forbidden", url="redis://a"))
            event, problem = await anext(events)
            assert (event, problem["code"]) == ("error", "server_access_denied")
            await until(lambda: not site.channels.readers["news"])

    run(scenario())


def test_a_reader_that_is_too_slow_hears_how_much_it_missed() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server, socket_to(server) as socket:
            await ask(socket, op="channel_subscribe", channel="news")
            for _ in range(105):
                await site.channels.publish("news", b"a")
            first = await hear(socket)
            assert len(first["messages"]) == 100
            assert await hear(socket) == {
                "op": "channel_gap",
                "channel": "news",
                "reason": "overflow",
                "publisher": "0000000000000001",
                "first": 1,
                "last": 5,
            }

    run(scenario())


def test_too_many_channels_on_one_connection_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_endpoint, "MAX_CHANNELS", 2)

    async def scenario() -> None:
        site = site_with_channels()
        async with served(site) as server, socket_to(server) as socket:
            for name in ("a", "b"):
                await ask(socket, op="channel_subscribe", channel=name)
            await socket.send(json.dumps({"op": "channel_subscribe", "channel": "c"}))
            await socket.wait_closed()
            assert socket.close_code == 1008
        assert not any(site.channels.readers.values())

    run(scenario())


def test_figures_of_channels_are_among_the_metrics() -> None:
    async def scenario() -> None:
        site = site_with_channels()
        status = replace(site.channels.status(), subscriptions=3, failing=2, published=17)
        site.channels.status = lambda: status  # type: ignore[method-assign]
        async with memory_client(site) as client:
            text = (await client.get("/metrics")).text
            assert (await client.get("/v1/channels")).json()["failing"] == 2
        assert "culver_channel_subscriptions 3.0" in text
        assert "culver_channel_subscriptions_failing 2.0" in text
        assert "culver_channel_deliveries_published_total 17.0" in text

    run(scenario())
