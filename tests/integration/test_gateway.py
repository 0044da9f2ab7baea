"""The gateway on real sockets: WebSocket, Server-Sent Events, slow clients, and stopping."""

import asyncio
import json
import socket as sockets
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from culver.config import GatewaySettings, RegistrySettings, Settings
from culver.errors import InvalidConfiguration, StorageError
from culver.gateway.app import create_app
from culver.gateway.server.gateway_server import GatewayServer
from culver.gateway.websocket import subscription_attachments
from support.event_streams import streaming
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served, socket_to
from support.until import settled, until

pytestmark = pytest.mark.timeout(60)


def client_of(server: GatewayServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20)


async def ask(socket: ClientConnection, **message: Any) -> dict[str, Any]:
    await socket.send(json.dumps(message))
    return await hear(socket)


async def hear(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        answer: dict[str, Any] = json.loads(await socket.recv())
    return answer


async def close_code(socket: ClientConnection) -> int | None:
    async with asyncio.timeout(10):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed:
            return socket.close_code


# --- WebSocket ------------------------------------------------------------------------------------------


def test_a_live_subscription_gets_what_matches_and_ends_with_its_connection() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            async with socket_to(server) as socket:
                made = await ask(socket, op="subscribe", ref="a", filter="price > 20")
                assert made["op"] == "subscribed"
                assert made["subscription"].startswith("live-")
                assert (made["ref"], made["since"]) == ("a", 0)
                events = [{"price": 10}, {"price": 30}, {"price": 40, "name": "Zoë"}]
                answers = [await ask(socket, op="publish", ref=2, events=events), await hear(socket)]
                answers.sort(key=lambda answer: answer["op"])
                assert answers[1] == {"op": "published", "ref": 2, "first_offset": 0, "next_offset": 3}
                assert answers[0] == {
                    "op": "events",
                    "events": [
                        {"offset": 1, "event": events[1], "to": [made["subscription"]]},
                        {"offset": 2, "event": events[2], "to": [made["subscription"]]},
                    ],
                }
                assert len(site.registrations) == 1
            await until(lambda: not site.registrations and not site.open_sessions)

    run(scenario())


def test_a_durable_subscription_is_attached_acknowledged_and_resumed() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            await client.post("/v1/events", json=[{"n": n} for n in range(4)])
            async with socket_to(server) as socket:
                attached = await ask(socket, op="attach", ref=1, subscription="alerts")
                assert attached == {"op": "subscribed", "ref": 1, "subscription": "alerts", "since": 0}
                got = await hear(socket)
                assert [(item["to"], item["offset"]) for item in got["events"]] == [
                    (["alerts"], n) for n in range(4)
                ]
                answer = await ask(socket, op="ack", ref=2, delivery_id="alerts:1")
                assert answer == {"op": "acknowledged", "ref": 2, "offset": 1}
                await socket.send('{"op": "ack", "delivery_id": "alerts:2"}')
                assert (await ask(socket, op="ping", ref=3)) == {"op": "pong", "ref": 3}
                detached = await ask(socket, op="detach", ref=4, subscription="alerts")
                assert detached == {"op": "detached", "ref": 4, "subscription": "alerts"}
                again = await ask(socket, op="attach", ref=5, subscription="alerts", after="alerts:2")
                assert again["op"] == "subscribed"
                assert [item["offset"] for item in (await hear(socket))["events"]] == [3]
            await until(lambda: not site.open_sessions)
            assert "alerts" in site.registrations
            assert site.acknowledged == {"alerts": 2}

    run(scenario())


def test_a_reconnected_live_subscriber_is_told_of_the_gap() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client, socket_to(server) as socket:
            await client.post("/v1/events", json=[{}] * 10)
            made = await ask(socket, op="subscribe", ref=1, filter="n > 0", after=3)
            gap = await hear(socket)
            assert gap == {
                "op": "gap",
                "to": [made["subscription"]],
                "start": 4,
                "end": 10,
                "dropped": None,
                "reason": "disconnected",
            }

    run(scenario())


def test_a_removed_subscription_is_announced_as_ended() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client, socket_to(server) as socket:
            made = await ask(socket, op="subscribe", ref=1, filter="n > 0")
            await client.delete(f"/v1/subscriptions/{made['subscription']}")
            assert await hear(socket) == {"op": "ended", "subscription": made["subscription"]}
            lost = await ask(socket, op="detach", ref=2, subscription=made["subscription"])
            assert (lost["op"], lost["code"]) == ("error", "not_found")

    run(scenario())


def test_a_client_may_ask_for_a_message_for_each_subscription() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server, subprotocols=["culver.v1.json"]) as socket:
            assert socket.subprotocol == "culver.v1.json"
            names = [
                (await ask(socket, op="subscribe", ref=n, filter="n >= 0", after=0))["subscription"]
                for n in range(2)
            ]
            await socket.send('{"op": "publish", "events": [{"n": 1}, {"n": 2}]}')
            answers = [await hear(socket) for _ in range(3)]
            found = {answer["subscription"]: answer for answer in answers if answer["op"] == "events"}
            assert set(found) == set(names)
            for name in names:
                assert found[name]["deliveries"] == [
                    {"delivery_id": f"{name}:{n}", "offset": n, "event": {"n": n + 1}} for n in range(2)
                ]
            refused = await ask(socket, op="follow", ref=3, prefix="a")
            assert (refused["op"], refused["field"]) == ("error", "op")

    run(scenario())


def test_an_unknown_subprotocol_is_refused_with_the_known_ones() -> None:
    async def scenario() -> None:
        async with served(FakeSite(gateway_settings())) as server:
            with pytest.raises(InvalidStatus) as caught:
                async with socket_to(server, subprotocols=["graphql-ws"]):
                    pass
            assert caught.value.response.status_code == 400
            assert "culver.v2.json, culver.v2.msgpack" in caught.value.response.body.decode()

    run(scenario())


def test_events_come_as_message_pack_where_the_client_asks_for_it() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            async with socket_to(server, subprotocols=["culver.v2.msgpack"]) as socket:
                assert (await ask(socket, op="follow", ref=1, prefix="al"))["count"] == 1
                made = await ask(socket, op="subscribe", ref=2, filter="n >= 0")
                await socket.send('{"op": "publish", "events": [{"n":1}]}')
                answers = [await socket.recv(), await socket.recv()]
                (packed,) = [answer for answer in answers if isinstance(answer, bytes)]
                expected = [[0, [made["subscription"]], {1: ["alerts"]}, b'{"n":1}']]
                assert msgspec.msgpack.decode(packed, strict=False) == expected

    run(scenario())


def test_a_group_is_followed_acknowledged_and_left() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client, socket_to(server) as socket:
            rows = {"filter": "n >= ?", "rows": [[0], [1], [2]]}
            assert (await client.post("/v1/sets/quotes", json=rows)).status_code == 201
            followed = await ask(socket, op="follow", ref=1, set="quotes")
            assert followed == {"op": "followed", "ref": 1, "group": 1, "count": 3, "gateways": []}
            await client.post("/v1/events", json=[{"n": 1}, {"n": 2}])
            received: list[Any] = []
            while len(received) < 2:
                received += (await hear(socket))["events"]
            assert received == [
                {"offset": 0, "event": {"n": 1}, "groups": {"1": ["quotes.0", "quotes.1"]}},
                {"offset": 1, "event": {"n": 2}, "groups": {"1": ["quotes.0", "quotes.1", "quotes.2"]}},
            ]
            done = await ask(socket, op="ack", ref=2, group=1, offset=0)
            assert done == {"op": "acknowledged", "ref": 2, "offset": 0}
            assert site.acknowledged == {f"quotes.{place}": 0 for place in range(3)}
            assert (await ask(socket, op="ack", ref=3, group=1, offset=2))["field"] == "offset"
            detached = await ask(socket, op="detach", ref=4, group=1)
            assert detached == {"op": "detached", "ref": 4, "group": 1}
            assert (await ask(socket, op="ack", ref=5, group=1, offset=1))["code"] == "not_found"
            again = await ask(socket, op="follow", ref=6, subscriptions=["quotes.2"], after=0)
            assert (again["group"], again["count"]) == (2, 1)
            expected = [{"offset": 1, "event": {"n": 2}, "groups": {"2": ["quotes.2"]}}]
            assert (await hear(socket))["events"] == expected
            await client.delete("/v1/sets/quotes")
            assert await hear(socket) == {"op": "ended", "group": 2}

    run(scenario())


@pytest.mark.parametrize(
    ("message", "field", "code"),
    [
        ({"op": "follow"}, "set", "invalid_request"),
        ({"op": "follow", "set": "a", "prefix": "b"}, "set", "invalid_request"),
        ({"op": "follow", "set": 7}, "set", "invalid_request"),
        ({"op": "follow", "set": "unknown"}, "set", "not_found"),
        ({"op": "follow", "prefix": ""}, "prefix", "invalid_request"),
        ({"op": "follow", "prefix": "a" * 200}, "prefix", "invalid_request"),
        ({"op": "follow", "subscriptions": []}, "subscriptions", "invalid_request"),
        ({"op": "follow", "subscriptions": ["alerts", "*"]}, "subscriptions[1]", "invalid_request"),
        ({"op": "follow", "subscriptions": ["alerts", "b"]}, "subscriptions[1]", "not_found"),
        ({"op": "follow", "subscriptions": ["a"] * 10_001}, "subscriptions", "invalid_request"),
        ({"op": "follow", "prefix": "a", "after": -1}, "after", "invalid_request"),
        ({"op": "follow", "prefix": "a", "to": 1}, "to", "invalid_request"),
        ({"op": "ack"}, "delivery_id", "invalid_request"),
        ({"op": "ack", "group": 1}, "delivery_id", "invalid_request"),
        ({"op": "ack", "group": 1, "offset": 0, "delivery_id": "a:1"}, "delivery_id", "invalid_request"),
        ({"op": "ack", "group": 9, "offset": 0}, "group", "not_found"),
        ({"op": "ack", "group": "1", "offset": 0}, "group", "invalid_request"),
        ({"op": "ack", "group": 1, "offset": 2**63}, "offset", "invalid_request"),
        ({"op": "detach"}, "subscription", "invalid_request"),
        ({"op": "detach", "group": 1, "subscription": "a"}, "subscription", "invalid_request"),
        ({"op": "detach", "group": 4}, "group", "not_found"),
    ],
)
def test_bad_messages_about_groups_are_refused_by_field(
    message: dict[str, Any], field: str, code: str
) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client, socket_to(server) as socket:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            refused = await ask(socket, ref="x", **message)
            assert (refused["op"], refused["ref"], refused["code"]) == ("error", "x", code)
            assert refused["field"] == field
            assert (await ask(socket, op="ping"))["op"] == "pong"

    run(scenario())


def test_subscriptions_beyond_the_limit_are_refused_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_attachments, "MAX_SUBSCRIPTIONS", 2)

    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            for n in range(2):
                assert (await ask(socket, op="subscribe", ref=n, filter="n >= 0"))["op"] == "subscribed"
            refused = await ask(socket, op="subscribe", ref=2, filter="n >= 0")
            assert (refused["code"], refused["limit"]) == ("too_many_subscriptions", 2)
            await socket.send('{"op": "publish", "events": [{"n": 1}]}')
            answers = [await hear(socket), await hear(socket)]
            (events,) = [answer["events"] for answer in answers if answer["op"] == "events"]
            assert len(events[0]["to"]) == 2
            assert len(site.registrations) == 2

    run(scenario())


def test_groups_with_too_many_members_together_are_refused_and_the_others_stay() -> None:
    async def scenario() -> None:
        settings = gateway_settings(Settings(registry=RegistrySettings(max_subscriptions=3)))
        async with served(FakeSite(settings)) as server, client_of(server) as client:
            await client.post("/v1/sets/quotes", json={"filter": "n >= ?", "rows": [[0], [1], [2]]})
            async with socket_to(server) as socket:
                for n in (1, 2):
                    assert (await ask(socket, op="follow", ref=n, set="quotes"))["op"] == "followed"
                refused = await ask(socket, op="follow", ref=3, subscriptions=["quotes.0"])
                assert (refused["code"], refused["limit"]) == ("too_many_subscriptions", 6)
                assert (await ask(socket, op="ack", ref=4, group=3, offset=0))["code"] == "not_found"
                assert (await ask(socket, op="detach", ref=5, group=1))["op"] == "detached"
                assert (await ask(socket, op="follow", ref=6, subscriptions=["quotes.0"]))["count"] == 1

    run(scenario())


def test_a_failing_mailbox_ends_one_subscription_and_not_the_connection() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            made = await ask(socket, op="subscribe", ref=1, filter="n > 0")
            site.failures["receive"] = StorageError("the disk refused")
            await socket.send('{"op": "publish", "ref": 2, "events": [{"n": 1}]}')
            answers = {answer["op"]: answer for answer in [await hear(socket), await hear(socket)]}
            assert answers["error"]["subscription"] == made["subscription"]
            assert answers["error"]["code"] == "storage_error"
            assert (await ask(socket, op="ping"))["op"] == "pong"

    run(scenario())


def test_publications_are_pipelined_and_keep_their_order() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            site.hold.clear()
            for number in range(200):
                await socket.send(json.dumps({"op": "publish", "ref": number, "events": [{"n": number}]}))
            await settled()
            site.hold.set()
            answers = [await hear(socket) for _ in range(200)]
            assert {answer["ref"] for answer in answers} == set(range(200))
            assert [event.data["n"] for event in site.events] == list(range(200))

    run(scenario())


WRONG_MESSAGES: list[tuple[str, str, str | None]] = [
    ("not json", "invalid_request", "body"),
    ("[]", "invalid_request", "body"),
    ("{}", "invalid_request", "op"),
    ('{"op": 7}', "invalid_request", "op"),
    ('{"op": "fly", "ref": 9}', "invalid_request", "op"),
    ('{"op": "ping", "ref": 9, "more": 1}', "invalid_request", "more"),
    ('{"op": "ping", "ref": {}}', "invalid_request", "ref"),
    ('{"op": "ping", "op": "ping"}', "invalid_request", "op"),
    ('{"op": "publish", "ref": 9}', "invalid_request", "events"),
    ('{"op": "publish", "ref": 9, "events": []}', "invalid_request", "events"),
    ('{"op": "publish", "ref": 9, "events": [7]}', "invalid_event", "events[0]"),
    ('{"op": "publish", "ref": 9, "events": [{}, {"a": NaN}]}', "invalid_event", "events[1].a"),
    ('{"op": "publish", "events": [{"a": 9223372036854775808}], "ref": 9}', "invalid_event", "events[0].a"),
    ('{"op": "publish", "ref": 9, "events": [{"a": 1, "a": 2}]}', "invalid_event", "events[0].a"),
    ('{"op": "ping", "ref": 9, "op": "ping"}', "invalid_request", "op"),
    ('{"op": "subscribe", "ref": 9}', "invalid_request", "filter"),
    ('{"op": "subscribe", "ref": 9, "filter": "a ="}', "invalid_filter", "filter"),
    ('{"op": "subscribe", "ref": 9, "filter": "a = 1", "after": -1}', "invalid_request", "after"),
    ('{"op": "subscribe", "ref": 9, "filter": "a = 1", "scheme": "magic"}', "invalid_request", "scheme"),
    ('{"op": "attach", "ref": 9, "subscription": "none"}', "not_found", "id"),
    ('{"op": "attach", "ref": 9, "subscription": "a/b"}', "invalid_request", "subscription"),
    ('{"op": "attach", "ref": 9, "subscription": "a", "after": "b:1"}', "invalid_request", "after"),
    ('{"op": "ack", "ref": 9, "delivery_id": "none:1"}', "not_found", "delivery_id"),
    ('{"op": "ack", "ref": 9, "delivery_id": "x"}', "invalid_request", "delivery_id"),
    ('{"op": "detach", "ref": 9, "subscription": "none"}', "not_found", "subscription"),
    ('{"op": "publish", "ref": 9, "events": [' + "[" * 60 + "]" * 60 + "]}", "invalid_event", None),
]


def test_a_wrong_message_is_answered_and_the_connection_stays() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            for message, code, field in WRONG_MESSAGES:
                await socket.send(message)
                answer = await hear(socket)
                assert (answer["op"], answer["code"]) == ("error", code), message
                assert answer["type"] == f"urn:culver:problem:{code}"
                if field is not None:
                    assert answer["field"] == field, message
                assert answer.get("ref") == (9 if '"ref": 9' in message else None), message
                assert (await ask(socket, op="ping", ref=1)) == {"op": "pong", "ref": 1}

    run(scenario())


def test_attaching_twice_on_one_connection_is_a_conflict() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client, socket_to(server) as socket:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            assert (await ask(socket, op="attach", subscription="alerts"))["op"] == "subscribed"
            assert (await ask(socket, op="attach", subscription="alerts"))["code"] == "conflict"

    run(scenario())


@pytest.mark.parametrize(
    ("message", "code"),
    [(b"binary", 1003), ("x" * 2_000_000, 1009)],
)
def test_a_message_of_the_wrong_kind_closes_the_connection(message: str | bytes, code: int) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            await ask(socket, op="subscribe", filter="n > 0")
            await socket.send(message)
            assert await close_code(socket) == code
            await until(lambda: not site.open_sessions and not site.registrations)

    run(scenario())


def test_text_that_is_not_utf8_closes_the_connection() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            await socket.send(b"\xff\xfe", text=True)
            assert await close_code(socket) == 1007

    run(scenario())


def test_a_hundred_erroneous_messages_close_the_connection() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            for _ in range(99):
                assert (await ask(socket, op="fly"))["op"] == "error"
            assert (await ask(socket, op="ping"))["op"] == "pong"
            await socket.send("oops")
            assert await close_code(socket) == 1008

    run(scenario())


def test_a_websocket_elsewhere_is_refused_with_a_problem() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            from websockets.asyncio.client import connect

            with pytest.raises(InvalidStatus) as refused:
                async with connect(server.url.replace("http", "ws") + "/v1/nothing", proxy=None):
                    pass
            assert refused.value.response.status_code == 404
            assert json.loads(refused.value.response.body or b"")["code"] == "not_found"

    run(scenario())


@pytest.mark.parametrize(
    ("operation", "answer"), [("publish", "published"), ("publish_each", "published_each")]
)
def test_a_websocket_is_slowed_down_rather_than_refused_when_it_sends_too_fast(
    operation: str, answer: str
) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(events_per_second=1_000))
        async with served(site) as server, socket_to(server) as socket:
            loop = asyncio.get_running_loop()
            started = loop.time()
            for _ in range(15):
                await socket.send(json.dumps({"op": operation, "events": [{}] * 100}))
            assert {(await hear(socket))["op"] for _ in range(15)} == {answer}
            assert loop.time() - started > 0.3

    run(scenario())


def test_each_event_of_a_message_is_published_or_refused() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            events = [{"n": 0}, 7, {"n": 1}, {"n": 2}, {"at": {"$timestamp": "\ud800"}}]
            answer = await ask(socket, op="publish_each", ref="r", events=events)
            refused = answer.pop("refused")
            assert answer == {"op": "published_each", "ref": "r", "ranges": [[0, 3]]}
            assert [each["index"] for each in refused] == [1, 4]
            assert [each["problem"]["code"] for each in refused] == ["invalid_event", "invalid_event"]
            assert [each["problem"].get("field") for each in refused] == [None, "at"]
            assert [event.data["n"] for event in site.events] == [0, 1, 2]
            answer = await ask(socket, op="publish_each", ref=2, events=[{"n": 3}])
            assert answer == {"op": "published_each", "ref": 2, "ranges": [[3, 4]], "refused": []}
            answer = await ask(socket, op="publish_each", ref=3, events=[[], {"": 1}])
            assert (answer["ranges"], len(answer["refused"])) == ([], 2)
            large = [{"n": n, "text": "x" * 1_000} for n in range(200)] + [None]
            answer = await ask(socket, op="publish_each", ref=4, events=large)
            assert (answer["ranges"], answer["refused"][0]["index"]) == ([[4, 204]], 200)

    run(scenario())


def test_failure_that_concerns_all_events_of_a_message_is_one_error() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        site.failures["publish"] = StorageError("the disk is broken")
        async with served(site) as server, socket_to(server) as socket:
            answer = await ask(socket, op="publish_each", ref=1, events=[{"n": 0}, 7])
            assert (answer["op"], answer["ref"], answer["code"]) == ("error", 1, "storage_error")
            answer = await ask(socket, op="publish_each", ref=2, events=[{}] * 10_001)
            assert (answer["op"], answer["ref"], answer["code"]) == ("error", 2, "too_large")

    run(scenario())


def test_every_refused_event_counts_as_an_erroneous_message() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            answer = await ask(socket, op="publish_each", ref=1, events=[7] * 99)
            assert len(answer["refused"]) == 99
            answer = await ask(socket, op="publish_each", ref=2, events=[{"n": 1}, 7])
            assert (answer["ranges"], len(answer["refused"])) == ([[0, 1]], 1)
            assert await close_code(socket) == 1008

    run(scenario())


# --- Server-Sent Events ---------------------------------------------------------------------------------


def test_a_live_event_stream_gets_what_matches_and_ends_with_its_connection() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            async with streaming(client, "/v1/stream", params={"filter": "n > 1"}) as (stream, hello):
                await client.post("/v1/events", json=[{"n": 1}, {"n": 2}])
                message = await stream.message()
                assert message["event"] == "event"
                assert message["id"] == f"{hello['subscription']}:1"
                assert json.loads(message["data"]) == {
                    "type": "event",
                    "delivery_id": message["id"],
                    "offset": 1,
                    "event": {"n": 2},
                }
            await until(lambda: not site.registrations and not site.open_sessions)

    run(scenario())


def test_a_durable_event_stream_resumes_and_acknowledges_by_its_last_id() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            await client.post("/v1/events", json=[{"n": n} for n in range(5)])
            path = "/v1/subscriptions/alerts/stream"
            async with streaming(client, path) as (stream, hello):
                assert hello == {"subscription": "alerts", "since": 0}
                assert [(await stream.message())["id"] for _ in range(5)] == [f"alerts:{n}" for n in range(5)]
            async with streaming(client, path, headers={"Last-Event-ID": "alerts:2"}) as (stream, _):
                assert (await stream.message())["id"] == "alerts:3"
            assert site.acknowledged == {"alerts": 2}
            await until(lambda: not site.open_sessions)

    run(scenario())


def test_a_live_event_stream_announces_the_gap_since_its_last_id() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            await client.post("/v1/events", json=[{}] * 9)
            options: dict[str, Any] = {
                "params": {"filter": "n > 1"},
                "headers": {"Last-Event-ID": "live-old:4"},
            }
            async with streaming(client, "/v1/stream", **options) as (stream, _):
                message = await stream.message()
                assert message["event"] == "gap"
                assert json.loads(message["data"]) == {
                    "type": "gap",
                    "start": 5,
                    "end": 9,
                    "dropped": None,
                    "reason": "disconnected",
                }

    run(scenario())


@pytest.mark.parametrize(
    ("path", "last", "field"),
    [
        ("/v1/stream", None, "filter"),
        ("/v1/stream?filter=a%20%3D", None, "filter"),
        ("/v1/stream?filter=a%3D1", "nonsense", "last-event-id"),
        ("/v1/stream?filter=a%3D1&x=1", None, "x"),
        ("/v1/subscriptions/alerts/stream", "other:1", "last-event-id"),
        ("/v1/subscriptions/alerts/stream", "alerts:99", "delivery_id"),
    ],
)
def test_a_wrong_event_stream_is_a_problem_and_leaves_nothing(
    path: str, last: str | None, field: str
) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            answer = await client.get(path, headers={"Last-Event-ID": last} if last else {})
            assert (answer.status_code, answer.json()["field"]) == (400, field)
            assert set(site.registrations) == {"alerts"}
            assert site.open_sessions == set()

    run(scenario())


def test_a_quiet_event_stream_has_a_heartbeat() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with (
            served(site, heartbeat_seconds=0.05) as server,
            client_of(server) as client,
            streaming(client, "/v1/stream", params={"filter": "n > 1"}) as (stream, _),
        ):
            assert await stream.message() == {"": "heartbeat"}
            assert await stream.message() == {"": "heartbeat"}

    run(scenario())


def test_an_event_stream_of_a_removed_subscription_says_so_and_ends() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            async with streaming(client, "/v1/subscriptions/alerts/stream") as (stream, _):
                await client.delete("/v1/subscriptions/alerts")
                assert await stream.message() == {"event": "ended", "data": '{"subscription":"alerts"}'}
                assert await stream.message() == {"event": "END"}

    run(scenario())


# --- slow clients ---------------------------------------------------------------------------------------


async def connect_raw(server: GatewayServer, request: bytes) -> sockets.socket:
    """A connection with a small receive buffer that sends a request and then reads nothing."""
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4_096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", server.port))
    await loop.sock_sendall(raw, request)
    return raw


HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(payload: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """A client's WebSocket frame with a mask of zeros."""
    head = bytes([opcode | (0x80 if final else 0)])
    if len(payload) < 126:
        head += bytes([0x80 | len(payload)])
    elif len(payload) < 65_536:
        head += b"\xfe" + len(payload).to_bytes(2, "big")
    else:
        head += b"\xff" + len(payload).to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


STREAM_REQUEST = b"GET /v1/stream?filter=n%3E%3D0 HTTP/1.1\r\nHost: localhost\r\n\r\n"

OPEN_STREAM_OF_LINES = (
    b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"a": 0}\n\r\n'
)


@pytest.mark.parametrize("kind", ["sse", "websocket"])
def test_a_client_that_does_not_read_stops_its_session_instead_of_filling_memory(kind: str) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, client_of(server) as client:
            raw = await connect_raw(server, STREAM_REQUEST if kind == "sse" else HANDSHAKE)
            if kind == "websocket":
                await until(lambda: ready(raw))
                await asyncio.get_running_loop().sock_sendall(
                    raw, frame(b'{"op": "subscribe", "filter": "n >= 0"}')
                )
            await until(lambda: len(site.open_sessions) == 1)
            (session,) = site.open_sessions
            event = {"n": 1, "text": "x" * 10_000}
            for _ in range(30):
                await client.post("/v1/events", json=[event] * 100)
            await settled(lambda: session.received)
            # 30 MB wait at the site; the gateway took what fits socket buffers and one batch.
            assert session.received * 10_000 < 8_000_000
            raw.close()
            await until(lambda: not site.open_sessions)

    run(scenario())


def ready(raw: sockets.socket) -> bool:
    try:
        raw.recv(1, sockets.MSG_PEEK)
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("kind", ["sse", "websocket"])
def test_a_client_that_never_reads_is_cut_off(kind: str) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site, stall_seconds=0.3) as server, client_of(server) as client:
            raw = await connect_raw(server, STREAM_REQUEST if kind == "sse" else HANDSHAKE)
            if kind == "websocket":
                await until(lambda: ready(raw))
                await asyncio.get_running_loop().sock_sendall(
                    raw, frame(b'{"op": "subscribe", "filter": "n >= 0"}')
                )
            await until(lambda: len(site.open_sessions) == 1)
            for _ in range(30):
                await client.post("/v1/events", json=[{"n": 1, "text": "x" * 10_000}] * 100)
            await until(lambda: not site.open_sessions and not site.registrations)
            raw.close()

    run(scenario())


# --- starting and stopping ------------------------------------------------------------------------------


def test_stopping_tells_every_open_connection_and_takes_no_time() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        loop = asyncio.get_running_loop()
        async with served(site) as server, client_of(server) as client, socket_to(server) as socket:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            await ask(socket, op="subscribe", filter="n >= 0")
            polling = asyncio.create_task(client.get("/v1/subscriptions/alerts/events?wait=50"))
            lines = await connect_raw(server, OPEN_STREAM_OF_LINES)
            async with streaming(client, "/v1/stream", params={"filter": "n > 1"}) as (stream, _):
                await until(lambda: len(site.open_sessions) == 3 and len(site.events) == 1)
                started = loop.time()
                await server.stop()
                assert loop.time() - started < 2
                farewell = await stream.message()
                assert farewell["event"] == "error"
                assert json.loads(farewell["data"])["code"] == "unavailable"
                assert await stream.message() == {"event": "END"}
            assert (await polling).status_code == 503
            answer = lines.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["accepted"] == 1
            assert await close_code(socket) == 1012
            lines.close()
        assert site.open_sessions == set()
        assert set(site.registrations) == {"alerts"}

    run(scenario())


def test_stopping_does_not_wait_for_clients_that_do_not_read() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        loop = asyncio.get_running_loop()
        async with served(site) as server, client_of(server) as client:
            deaf = [await connect_raw(server, STREAM_REQUEST), await connect_raw(server, HANDSHAKE)]
            await until(lambda: ready(deaf[1]))
            await loop.sock_sendall(deaf[1], frame(b'{"op": "subscribe", "filter": "n >= 0"}'))
            await until(lambda: len(site.open_sessions) == 2)
            for _ in range(20):
                await client.post("/v1/events", json=[{"n": 1, "text": "x" * 10_000}] * 100)
            started = loop.time()
            await server.stop()
            assert loop.time() - started < 3
            assert site.open_sessions == set()
            for raw in deaf:
                raw.close()

    run(scenario())


def test_a_site_that_stops_closes_websockets_with_1012() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server, socket_to(server) as socket:
            await ask(socket, op="subscribe", filter="n > 0")
            site.stop()
            assert await close_code(socket) == 1012

    run(scenario())


def test_a_port_in_use_names_the_setting() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            taken = GatewaySettings(port=server.port)
            with pytest.raises(InvalidConfiguration, match="in use") as refused:
                await GatewayServer(create_app(site), taken).__aenter__()
            assert refused.value.field == "gateway.port"

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (GatewaySettings(port=70_000), "gateway.port"),
        (GatewaySettings(host="no such host.invalid", port=0), "gateway.host"),
        (GatewaySettings(host="192.0.2.1", port=0), "gateway.host"),
    ],
)
def test_an_address_that_cannot_be_used_names_the_setting(settings: GatewaySettings, field: str) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidConfiguration) as refused:
            await GatewayServer(create_app(FakeSite()), settings).__aenter__()
        assert refused.value.field == field

    run(scenario())


def test_serving_ends_when_its_task_is_cancelled_and_frees_the_port() -> None:
    async def scenario() -> None:
        ports: list[int] = []

        async def serve() -> None:
            async with GatewayServer(create_app(FakeSite()), GatewaySettings(port=0)) as server:
                ports.append(server.port)
                await asyncio.Event().wait()

        task = asyncio.create_task(serve())
        await until(lambda: bool(ports))
        (port,) = ports
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        async with GatewayServer(create_app(FakeSite()), GatewaySettings(port=port)) as server:
            assert server.port == port

    run(scenario())


def test_answers_do_not_name_the_server_software() -> None:
    async def scenario() -> None:
        async with served(FakeSite(gateway_settings())) as server, client_of(server) as client:
            assert "server" not in (await client.get("/healthz")).headers

    run(scenario())
