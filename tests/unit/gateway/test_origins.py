"""A page of an origin or by a name that is not allowed changes nothing; the site's own page and other programs may do
all."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from culver.config import GatewaySettings
from culver.errors import InvalidConfiguration
from culver.gateway.origin_policy import OriginPolicy, is_same_origin
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run, served, socket_to

pytestmark = pytest.mark.timeout(30)

SAME = [
    ("http://site", "site"),
    ("http://site:8080", "site:8080"),
    ("http://site", "site:80"),
    ("http://site:80", "site"),
    ("https://site", "site"),
    ("https://site", "site:443"),
    ("https://Site", "SITE"),
    ("http://[::1]:8080", "[::1]:8080"),
    ("http://127.0.0.1:8080", "127.0.0.1:8080"),
]
FOREIGN = [
    ("http://other", "site"),
    ("http://site:8081", "site:8080"),
    ("http://site", "site:8080"),
    ("http://site", "site:443"),
    ("https://site", "site:80"),
    ("http://site.other", "site"),
    ("http://other", "other.site"),
    ("http://127.0.0.1:8080", "localhost:8080"),
    ("null", "site"),
    ("null", "null"),
    ("", "site"),
    ("", ""),
    ("http://", ""),
    ("site", "site"),
    ("file://site", "site"),
    ("chrome-extension://site", "site"),
    ("http://[::1", "[::1"),
    ("http://site:x", "site:x"),
    ("http://site:99999", "site:99999"),
]


@pytest.mark.parametrize(("origin", "host"), SAME)
def test_the_same_host_and_port_is_the_same_origin(origin: str, host: str) -> None:
    assert is_same_origin(origin, host)


@pytest.mark.parametrize(("origin", "host"), FOREIGN)
def test_another_host_or_port_or_no_origin_of_the_web_is_foreign(origin: str, host: str) -> None:
    assert not is_same_origin(origin, host)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/events"),
        ("POST", "/v1/subscriptions"),
        ("PUT", "/v1/subscriptions/kept"),
        ("DELETE", "/v1/subscriptions/kept"),
        ("POST", "/v1/subscriptions/kept/ack"),
        ("POST", "/v1/filters/test"),
    ],
)
def test_a_request_of_a_foreign_page_changes_nothing(method: str, path: str) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await client.post("/v1/subscriptions", json={"filter": "n > 0", "id": "kept"})
            before = dict(site.registrations)
            for origin in ("http://other", "null"):
                answer = await client.request(method, path, json={"n": 1}, headers={"origin": origin})
                problem = answer.json()
                assert (answer.status_code, problem["status"]) == (403, 403)
                assert (problem["code"], problem["field"]) == ("invalid_request", "origin")
                assert "access-control-allow-origin" not in answer.headers
            assert site.registrations == before
            assert not site.events

    run(scenario())


def test_two_origins_are_as_foreign_as_one() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            headers = [("origin", "http://site"), ("origin", "http://other")]
            answer = await client.post("/v1/events", json={"n": 1}, headers=headers)
            assert answer.status_code == 403

    run(scenario())


def test_the_sites_own_page_may_publish_and_a_foreign_one_may_ask() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            own = await client.post("/v1/events", json={"n": 1}, headers={"origin": "http://site"})
            assert own.status_code == 200
            foreign = await client.get("/healthz", headers={"origin": "http://other"})
            assert foreign.status_code == 200
            assert "access-control-allow-origin" not in foreign.headers

    run(scenario())


def test_a_member_called_origin_is_an_ordinary_mistake() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            for name in ("origin", "method", "content-type"):
                answer = await client.post("/v1/filters/explain", json={"filter": "a = 1", name: 1})
                assert (answer.status_code, answer.json()["field"]) == (400, name)

    run(scenario())


def test_a_foreign_page_opens_no_websocket_and_the_sites_own_does() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with served(site) as server:
            address = server.url.replace("http", "ws", 1) + "/v1/ws"
            for origin in ("http://other", "null", f"http://127.0.0.1:{server.port + 1}"):
                with pytest.raises(InvalidStatus) as refused:
                    async with connect(address, proxy=None, additional_headers={"Origin": origin}):
                        pass
                response = refused.value.response
                assert response.status_code == 403
                assert response.headers["content-type"] == "application/problem+json"
                problem = json.loads(response.body or b"")
                assert (problem["code"], problem["field"]) == ("invalid_request", "origin")
            async with socket_to(server, additional_headers={"Origin": server.url}) as socket:
                await socket.send('{"op": "ping"}')
                assert json.loads(await socket.recv())["op"] == "pong"

    run(scenario())


# --- host names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/subscriptions", "/healthz", "/metrics", "/docs", "/nothing"])
def test_a_page_whose_name_was_led_here_is_refused(path: str) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            headers = {"host": "evil.example", "origin": "http://evil.example"}
            answer = await client.get(path, headers=headers)
            problem = answer.json()
            assert (answer.status_code, problem["code"], problem["field"]) == (403, "invalid_request", "host")
            assert (await client.get(path, headers={"host": "localhost:8080"})).status_code in (200, 404)

    run(scenario())


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: localhost\r\n"])
@pytest.mark.parametrize("upgrade", [b"", b"Upgrade: websocket\r\nConnection: Upgrade\r\n"])
def test_a_request_without_one_host_is_refused(hosts: bytes, upgrade: bytes) -> None:
    async def scenario() -> None:
        async with served(FakeSite(gateway_settings())) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            key = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            writer.write(b"GET /v1/ws HTTP/1.1\r\n" + hosts + upgrade + key + b"\r\n")
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            writer.transport.abort()

    run(scenario())


def test_a_websocket_by_a_foreign_name_is_refused_and_by_an_allowed_one_opened() -> None:
    async def scenario() -> None:
        async with served(FakeSite(gateway_settings(allowed_hosts="culver.example"))) as server:
            here: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "proxy": None}
            for name, refused in (("evil.example", True), ("culver.example", False)):
                with pytest.raises(InvalidStatus) if refused else contextlib.nullcontext():
                    async with connect(f"ws://{name}/v1/ws", origin=Origin(f"http://{name}"), **here):
                        pass

    run(scenario())


# --- pages of allowed origins ---------------------------------------------------------------------------

APP = "https://app.example"


def test_a_page_of_an_allowed_origin_may_do_and_read_everything() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(allowed_origins=f"http://localhost:5173 {APP}:443"))
        async with memory_client(site, origin=APP) as client:
            answers = [
                await client.post("/v1/events", json={"n": 1}),
                await client.get("/healthz"),
                await client.post("/v1/subscriptions", json={"filter": "n ="}),
                await client.get("/nothing"),
                await client.get("/v1/subscriptions", headers={"host": "evil.example"}),
            ]
            assert [answer.status_code for answer in answers] == [200, 200, 400, 404, 403]
            for answer in answers:
                assert answer.headers["access-control-allow-origin"] == APP
                assert answer.headers["vary"] == "Origin"

    run(scenario())


def test_a_browser_that_asks_first_is_told_what_an_allowed_page_may_send() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(allowed_origins=APP))
        async with memory_client(site) as client:
            asked = {
                "access-control-request-method": "PUT",
                "access-control-request-headers": "content-type,ce-id",
            }
            answer = await client.options("/v1/subscriptions/a", headers={"origin": APP, **asked})
            assert answer.status_code == 204
            assert answer.headers["access-control-allow-origin"] == APP
            assert answer.headers["access-control-allow-headers"] == "content-type,ce-id"
            assert "PUT" in answer.headers["access-control-allow-methods"]
            for origin in ("https://other.example", "null", f"{APP}:444", "http://app.example"):
                refused = await client.options("/v1/subscriptions/a", headers={"origin": origin, **asked})
                assert refused.status_code == 405
                assert "access-control-allow-origin" not in refused.headers
                assert refused.headers["vary"] == "Origin"

    run(scenario())


def test_a_star_allows_the_pages_of_every_origin() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite(gateway_settings(allowed_origins="*"))) as client:
            answer = await client.post(
                "/v1/events", json={"n": 1}, headers={"origin": "https://other.example"}
            )
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (
                200,
                "https://other.example",
            )

    run(scenario())


def test_an_allowed_page_is_told_the_other_gateway_and_not_redirected() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(allowed_origins=APP))
        site.ports["alerts"] = 8082
        async with memory_client(site) as client:
            for origin in ({}, {"origin": "http://site"}, {"origin": APP}):
                answer = await client.get("/v1/subscriptions/alerts/events", headers=origin)
                assert (answer.status_code, answer.json()["url"]) == (307, "http://site:8082")
                assert ("location" in answer.headers) == (origin != {"origin": APP})

    run(scenario())


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "null", "https://", "https://a@b"])
def test_what_is_no_origin_is_refused_with_its_setting(origin: str) -> None:
    with pytest.raises(InvalidConfiguration, match="must be an origin such as") as refused:
        OriginPolicy(GatewaySettings(allowed_origins=origin))
    assert refused.value.field == "gateway.allowed_origins"
