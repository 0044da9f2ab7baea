"""A page of another origin changes nothing; the site's own page and other programs are not affected."""

import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from culver.gateway.app import is_same_origin
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
