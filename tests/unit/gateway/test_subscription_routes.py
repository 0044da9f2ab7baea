"""`/v1/subscriptions`: make, list, read, replace, remove; and strictness about what is sent."""

from dataclasses import replace
from typing import Any

import pytest

from culver.config import Settings
from culver.gateway.routes.subscription_routes import timestamp_text
from culver.model.language.parser import parse
from culver.registry.registration import SubscriptionSpec
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run

JSON = {"content-type": "application/json"}


def test_a_subscription_is_made_with_its_position_and_can_be_read_again() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await client.post("/v1/events", json=[{}] * 7)
            made = await client.post("/v1/subscriptions", json={"filter": "price > 20", "id": "alerts"})
            read = await client.get("/v1/subscriptions/alerts")
        assert made.status_code == 201
        assert made.headers["location"] == "/v1/subscriptions/alerts"
        assert made.json() == read.json()
        assert made.json() == {
            "id": "alerts",
            "filter": "price > 20",
            "scheme": "columnar",
            "durable": True,
            "since": 7,
            "created_at": made.json()["created_at"],
            "expires_at": None,
            "mailbox": {"max_count": 1_000_000, "max_bytes": 1024**3, "max_age_seconds": 604_800},
            "pending": 0,
            "deliver": None,
        }

    run(scenario())


def test_a_subscription_names_the_channel_that_it_delivers_to() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            body = {"filter": "a = 1", "id": "s", "deliver": {"channel": "alerts.eu"}}
            made = await client.post("/v1/subscriptions", json=body)
            assert made.json()["deliver"] == {"channel": "alerts.eu"}
            listed = (await client.get("/v1/subscriptions")).json()["subscriptions"]
            assert [each["deliver"] for each in listed] == [{"channel": "alerts.eu"}]
            put = await client.put("/v1/subscriptions/s", json={"filter": "a = 2"})
            assert put.json()["deliver"] is None

    run(scenario())


@pytest.mark.parametrize(
    ("deliver", "status", "field"),
    [
        ({"channel": ""}, 400, "deliver.channel"),
        ({"channel": "__culver:ring"}, 400, "deliver.channel"),
        ({"channel": "\u00e9" * 2_049}, 413, "deliver.channel"),
        ({"channel": 7}, 400, "deliver.channel"),
        ({}, 400, "deliver.channel"),
        ({"channel": "c", "qos": 1}, 400, "deliver.qos"),
        ("c", 400, "deliver"),
    ],
)
def test_a_delivery_that_there_cannot_be_is_refused_with_its_field(
    deliver: Any, status: int, field: str
) -> None:
    async def scenario() -> None:
        body = {"filter": "a = 1", "deliver": deliver}
        async with memory_client(FakeSite()) as client:
            one = await client.post("/v1/subscriptions", json=body)
            many = await client.post("/v1/subscriptions", json=[body])
        assert (one.status_code, one.json()["field"]) == (status, field)
        assert (many.status_code, many.json()["field"]) == (status, f"[0].{field}")

    run(scenario())


def test_a_channel_is_refused_where_the_site_has_no_channel_service() -> None:
    async def scenario() -> None:
        body = {"filter": "a = 1", "id": "s", "deliver": {"channel": "c"}}
        async with memory_client(FakeSite(gateway_settings())) as client:
            refused = await client.post("/v1/subscriptions", json=body)
            assert (refused.status_code, refused.json()["field"]) == (409, "deliver.channel")
            assert "--channels-url" in refused.json()["detail"]
            assert (await client.get("/v1/subscriptions/s")).status_code == 404

    run(scenario())


def test_a_subscription_without_an_id_gets_one() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            made = await client.post("/v1/subscriptions", json={"filter": "a = 1"})
            assert made.headers["location"] == "/v1/subscriptions/" + made.json()["id"]

    run(scenario())


def test_options_of_a_subscription_are_kept() -> None:
    async def scenario() -> None:
        site = FakeSite()
        body = {
            "filter": "a = 1",
            "id": "s",
            "expires_in_seconds": 2.5,
            "mailbox": {"max_count": 5, "max_bytes": 1_000, "max_age_seconds": 60},
        }
        async with memory_client(site) as client:
            made = (await client.post("/v1/subscriptions", json=body)).json()
        assert made["mailbox"] == body["mailbox"]
        expires_at = site.registrations["s"].expires_at_us
        assert expires_at is not None
        assert 0 < expires_at - site.now_us < 60_000_000
        assert made["expires_at"].endswith("Z")

    run(scenario())


def test_a_subscription_names_its_filtering_scheme_and_a_replacement_its_own() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            body = {"filter": "a = 1", "id": "s", "scheme": "counting"}
            assert (await client.post("/v1/subscriptions", json=body)).json()["scheme"] == "counting"
            listed = (await client.get("/v1/subscriptions")).json()["subscriptions"]
            assert [each["scheme"] for each in listed] == ["counting"]
            for sent, kept in (("reference", "reference"), (None, "columnar")):
                put = await client.put("/v1/subscriptions/s", json={"filter": "a = 2", "scheme": sent})
                assert put.json()["scheme"] == kept

    run(scenario())


@pytest.mark.parametrize("scheme", ["magic", "encoded"])
def test_a_filtering_scheme_that_clients_cannot_have_is_refused_wherever_it_is_named(scheme: str) -> None:
    async def scenario() -> None:
        site = FakeSite()
        body = {"filter": "a = 1", "scheme": scheme}
        async with memory_client(site) as client:
            await client.post("/v1/subscriptions", json={"filter": "a = 1", "id": "s"})
            answers = [
                (await client.post("/v1/subscriptions", json=body), "scheme"),
                (await client.post("/v1/subscriptions", json=[{"filter": "TRUE"}, body]), "[1].scheme"),
                (await client.put("/v1/subscriptions/s", json=body), "scheme"),
                (await client.get("/v1/stream", params=body), "scheme"),
            ]
        for answer, field in answers:
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (400, "invalid_request")
            assert problem["field"] == field
            assert problem["known"] == ["columnar", "counting", "reference"]
            assert "known: columnar, counting, reference" in problem["detail"]
        assert list(site.registrations) == ["s"]

    run(scenario())


def test_an_array_makes_all_its_subscriptions_or_none() -> None:
    async def scenario() -> None:
        site = FakeSite()
        good = [{"filter": f"a = {n}", "id": f"s{n}"} for n in range(300)]
        bad = [{"filter": "a = 1"}] * 17 + [{"filter": "a ="}]
        async with memory_client(site) as client:
            refused = await client.post("/v1/subscriptions", json=bad)
            assert site.registrations == {}
            made = await client.post("/v1/subscriptions", json=good)
        assert (refused.status_code, refused.json()["field"]) == (400, "[17].filter")
        assert refused.json()["code"] == "invalid_filter"
        assert made.status_code == 201
        assert made.json()["subscriptions"][299] == {"id": "s299", "since": 0}

    run(scenario())


def test_a_list_is_read_page_by_page() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await client.post("/v1/subscriptions", json=[{"filter": "a=1", "id": f"s{n}"} for n in range(5)])
            seen: list[str] = []
            after = ""
            while True:
                page = (await client.get(f"/v1/subscriptions?limit=2{after}")).json()
                seen += [subscription["id"] for subscription in page["subscriptions"]]
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            assert seen == ["s0", "s1", "s2", "s3", "s4"]

    run(scenario())


def test_a_subscription_is_replaced_and_removed() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await client.post("/v1/subscriptions", json={"filter": "a = 1", "id": "s"})
            replaced = await client.put("/v1/subscriptions/s", json={"filter": "a = 2"})
            assert (replaced.status_code, replaced.json()["filter"]) == (200, "a = 2")
            assert (await client.delete("/v1/subscriptions/s")).status_code == 204
            assert (await client.delete("/v1/subscriptions/s")).status_code == 404
            assert (await client.get("/v1/subscriptions/s")).json()["code"] == "not_found"
            assert (await client.put("/v1/subscriptions/s", json={"filter": "a = 2"})).status_code == 404

    run(scenario())


def test_an_id_that_is_taken_is_a_conflict() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            body = {"filter": "a = 1", "id": "s"}
            await client.post("/v1/subscriptions", json=body)
            again = await client.post("/v1/subscriptions", json=body)
        assert (again.status_code, again.json()["code"], again.json()["field"]) == (409, "conflict", "id")

    run(scenario())


def test_the_site_s_limit_on_subscriptions_is_a_403_and_a_request_s_a_413() -> None:
    async def scenario() -> None:
        settings = Settings()
        registry = replace(settings.registry, max_subscriptions=1, max_batch=3)
        async with memory_client(FakeSite(replace(settings, registry=registry))) as client:
            two = await client.post("/v1/subscriptions", json=[{"filter": "a = 1"}] * 2)
            four = await client.post("/v1/subscriptions", json=[{"filter": "a = 1"}] * 4)
        assert (two.status_code, two.json()["code"]) == (403, "too_many_subscriptions")
        assert (four.status_code, four.json()["limit"]) == (413, 3)

    run(scenario())


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ("7", "invalid_request", "body"),
        ("[]", "invalid_request", "body"),
        ("[7]", "invalid_request", "[0]"),
        ("{}", "invalid_request", "filter"),
        ('{"filter": 7}', "invalid_request", "filter"),
        ('{"filter": null}', "invalid_request", "filter"),
        ('{"filter": "a ="}', "invalid_filter", "filter"),
        ('{"filter": "a = 1", "filter": "b = 1"}', "invalid_request", "filter"),
        ('{"filter": "a = 1", "colour": 1}', "invalid_request", "colour"),
        ('{"filter": "\\ud800"}', "invalid_request", "filter"),
        ('{"filter": "a = 1", "id": 7}', "invalid_request", "id"),
        ('{"filter": "a = 1", "id": ""}', "invalid_request", "id"),
        ('{"filter": "a = 1", "id": "a/b"}', "invalid_request", "id"),
        ('{"filter": "a = 1", "id": "a b"}', "invalid_request", "id"),
        ('{"filter": "a = 1", "id": "a\\n"}', "invalid_request", "id"),
        ('{"filter": "a = 1", "id": "live-mine"}', "invalid_request", "id"),
        ('{"filter": "a = 1", "expires_in_seconds": 0}', "invalid_request", "expires_in_seconds"),
        ('{"filter": "a = 1", "expires_in_seconds": true}', "invalid_request", "expires_in_seconds"),
        ('{"filter": "a = 1", "expires_in_seconds": 1e300}', "invalid_request", "expires_in_seconds"),
        ('{"filter": "a = 1", "expires_in_seconds": NaN}', "invalid_request", "expires_in_seconds"),
        ('{"filter": "a = 1", "mailbox": 1}', "invalid_request", "mailbox"),
        ('{"filter": "a = 1", "mailbox": {"max_count": 0}}', "invalid_request", "mailbox.max_count"),
        ('{"filter": "a = 1", "mailbox": {"max_count": 1.5}}', "invalid_request", "mailbox.max_count"),
        ('{"filter": "a = 1", "mailbox": {"max_count": 1000001}}', "invalid_request", "mailbox.max_count"),
        ('{"filter": "a = 1", "mailbox": {"size": 1}}', "invalid_request", "mailbox.size"),
        ('[{"filter": "a = 1"}, {"filter": "a = 1", "x": 1}]', "invalid_request", "[1].x"),
        ('[{"filter": "a = 1", "mailbox": {"max_bytes": -1}}]', "invalid_request", "[0].mailbox.max_bytes"),
        ("{" * 50, "invalid_request", "body"),
        ('{"filter": ' + "[" * 50 + "]" * 50 + "}", "invalid_request", None),
    ],
)
def test_a_body_that_is_wrong_is_refused_by_name(body: str, code: str, field: str | None) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            answer = await client.post("/v1/subscriptions", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
        if field is not None:
            assert answer.json()["field"] == field
        assert site.registrations == {}

    run(scenario())


def test_an_invalid_filter_says_where_and_what_was_expected() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            problem = (await client.post("/v1/subscriptions", json={"filter": "price >"})).json()
        assert problem["position"] == 7
        assert problem["expected"]

    run(scenario())


def test_a_filter_beyond_its_length_is_too_large() -> None:
    async def scenario() -> None:
        text = " OR ".join(["a = 1"] * 10_000)
        async with memory_client(FakeSite()) as client:
            answer = await client.post("/v1/subscriptions", json={"filter": text})
        assert (answer.status_code, answer.json()["field"]) == (413, "filter")

    run(scenario())


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
@pytest.mark.parametrize("path", ["/v1/subscriptions", "/v1/filters/explain", "/v1/subscriptions/s/ack"])
def test_only_json_is_taken(path: str, kind: str | None) -> None:
    async def scenario() -> None:
        headers = {} if kind is None else {"content-type": kind}
        async with memory_client(FakeSite()) as client:
            answer = await client.post(path, content=b'{"filter": "a = 1"}', headers=headers)
        assert (answer.status_code, answer.json()["field"]) == (415, "content-type")

    run(scenario())


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=1.5", "limit"),
        ("limit=99999999999999999999999", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("after=%00", "after"),
        ("page=2", "page"),
    ],
)
def test_a_wrong_query_is_refused_by_name(query: str, field: str) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            answer = await client.get(f"/v1/subscriptions?{query}")
        assert (answer.status_code, answer.json()["field"]) == (400, field)

    run(scenario())


@pytest.mark.parametrize("name", ["%00", "a%20b", "x" * 129, "%F0%9F%A6%8A", "-a", "%ff"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_that_can_be_no_subscription_is_refused(method: str, name: str) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            answer = await client.request(method, f"/v1/subscriptions/{name}")
        assert (answer.status_code, answer.json()["field"]) == (400, "id")

    run(scenario())


def test_a_live_subscription_is_listed_and_belongs_to_its_connection() -> None:
    async def scenario() -> None:
        site = FakeSite()
        spec: Any = SubscriptionSpec(parse("a = 1"), "live-1", durable=False)
        await site.subscriptions.add([spec])
        async with memory_client(site) as client:
            listed = (await client.get("/v1/subscriptions")).json()["subscriptions"][0]
            assert (listed["id"], listed["durable"], listed["mailbox"]) == ("live-1", False, None)
            for path in ("events?wait=0", "stream"):
                answer = await client.get(f"/v1/subscriptions/live-1/{path}")
                assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
            replaced = await client.put("/v1/subscriptions/live-1", json={"filter": "a = 2"})
            assert replaced.status_code == 409
            assert (await client.delete("/v1/subscriptions/live-1")).status_code == 204

    run(scenario())


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_893_456_000_000_001, "2030-01-01T00:00:00.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_times_are_rfc_3339_in_utc(microseconds: int, text: str) -> None:
    assert timestamp_text(microseconds) == text
