"""Health, readiness, metrics, routing, and what is refused before any endpoint."""

import re

import httpx
import pytest

from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run


async def get(site: FakeSite, path: str, method: str = "GET") -> httpx.Response:
    async with memory_client(site) as client:
        return await client.request(method, path)


def test_a_living_process_is_healthy_even_when_it_is_not_ready() -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.ready = False
        assert (await get(site, "/healthz")).status_code == 200
        starting = await get(site, "/readyz")
        assert starting.status_code == 503
        assert starting.json()["state"] == "starting"
        assert starting.headers["retry-after"] == "1"
        site.ready = True
        assert (await get(site, "/readyz")).json()["ready"] is True

    run(scenario())


def test_metrics_count_what_happens() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "s"})
            await client.post("/v1/events", json=[{"n": 1}, {"n": 2}])
            await client.get("/v1/subscriptions/s/events")
            await client.get("/nothing")
            text = (await client.get("/metrics")).text
        values = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.M))
        assert float(values["culver_events_published_total"]) == 2
        assert float(values["culver_event_bytes_published_total"]) == 14
        assert float(values["culver_publish_seconds_count"]) == 1
        assert float(values['culver_deliveries_sent_total{kind="poll"}']) == 2
        assert float(values['culver_errors_total{code="not_found"}']) == 1
        assert float(values['culver_connections{kind="poll"}']) == 0
        assert float(values["culver_subscriptions"]) == 1
        assert float(values["culver_log_next_offset"]) == 2
        assert float(values["culver_delivery_lag_events"]) == 0
        assert float(values["culver_ready"]) == 1

    run(scenario())


def test_pipeline_tells_counters_and_queues_with_what_the_gateway_has_sent() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            spec = {"filter": "n >= 0", "id": "s", "scheme": "counting"}
            await client.post("/v1/subscriptions", json=spec)
            await client.post("/v1/events", json=[{"n": 1}, {"n": 2}])
            await client.get("/v1/subscriptions/s/events")
            document = (await client.get("/v1/pipeline")).json()
            text = (await client.get("/metrics")).text
        assert document["deliveries_sent"] == 2
        assert document["queues"]["mailboxes"] == 3
        assert document["pipeline"]["slices"][0]["pairs"] == 6
        assert document["pipeline"]["schemes"][1] == {"scheme": "counting", "pairs": 2, "seconds": 0.2}
        assert document["schemes"] == [{"scheme": "counting", "registrations": 1, "bytes": 10}]
        values = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.M))
        assert float(values['culver_operator_events_total{operator="m",slice="0"}']) == 2
        assert float(values['culver_operator_pairs_total{operator="ep",slice="0"}']) == 6
        assert float(values['culver_operator_seconds_total{operator="ap",slice="0"}']) == pytest.approx(0.2)
        assert float(values['culver_slice_registrations{slice="0"}']) == 1
        assert float(values['culver_scheme_registrations{scheme="counting"}']) == 1
        assert float(values['culver_scheme_pairs_total{scheme="columnar"}']) == 4
        assert float(values['culver_scheme_seconds_total{scheme="counting"}']) == pytest.approx(0.2)
        assert float(values['culver_queue_events{queue="match"}']) == 4
        assert float(values["culver_mailbox_deliveries"]) == 3
        assert float(values['culver_batch_seconds_bucket{le="0.1"}']) == 1
        assert float(values['culver_batch_seconds_bucket{le="+Inf"}']) == 2
        assert 'culver_placement_info{name="replicated",' in text

    run(scenario())


def test_two_applications_do_not_share_their_metrics() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await client.post("/v1/events", json={})
        text = (await get(FakeSite(), "/metrics")).text
        assert "culver_events_published_total 0.0" in text

    run(scenario())


def test_a_status_that_lacks_positions_still_gives_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        site = FakeSite()
        status = {"engine": "fake", "log_next_offset": None}
        monkeypatch.setattr(site.observation, "status", lambda: status)
        answer = await get(site, "/metrics")
        assert answer.status_code == 200
        assert "culver_log_next_offset" not in answer.text

    run(scenario())


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/events/", "/v1/subscriptions/a/b", "/%00"])
def test_an_unknown_path_is_a_404_problem(path: str) -> None:
    async def scenario() -> None:
        answer = await get(FakeSite(), path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert answer.headers["content-type"] == "application/problem+json"

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/events", "POST"),
        ("PATCH", "/v1/subscriptions", "GET, POST"),
        ("POST", "/v1/subscriptions/s", "DELETE, GET, PUT"),
        ("HEAD", "/v1/stream", "GET"),
        ("OPTIONS", "/v1/filters/test", "POST"),
    ],
)
def test_a_wrong_method_is_a_405_problem_that_names_the_right_ones(
    method: str, path: str, allowed: str
) -> None:
    async def scenario() -> None:
        answer = await get(FakeSite(), path, method)
        assert answer.status_code == 405
        assert answer.headers["allow"] == allowed
        if method != "HEAD":
            assert answer.json()["field"] == "method"

    run(scenario())


def test_the_start_page_leads_to_the_documentation() -> None:
    async def scenario() -> None:
        answer = await get(FakeSite(), "/")
        assert answer.status_code in (302, 307)
        assert answer.headers["location"] == "/docs"

    run(scenario())


def test_a_client_that_asks_too_often_is_refused_but_operators_are_not() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite(gateway_settings(requests_per_second=5))) as client:
            statuses = [(await client.get("/v1/subscriptions")).status_code for _ in range(8)]
            assert statuses[:5] == [200] * 5
            assert statuses[-1] == 429
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/metrics")).status_code == 200

    run(scenario())
