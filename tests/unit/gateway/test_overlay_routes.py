"""`/v1/overlay`, the positions of subscriptions at other sites, and waiting for them."""

import asyncio
from typing import Any

from culver.config import GatewaySettings, OverlaySettings, Settings
from support.fake_site import FakeSite
from support.gateway import memory_client, run
from support.until import until


def site_of_an_overlay(**positions: int | None) -> FakeSite:
    overlay = OverlaySettings(name="paris", listen="127.0.0.1:7401")
    site = FakeSite(Settings(gateway=GatewaySettings(port=0), overlay=overlay))
    site.overlay.positions_at = dict(positions)
    return site


def ask(site: FakeSite, method: str, path: str, json: Any = None) -> tuple[int, Any]:
    answers: list[tuple[int, Any]] = []

    async def scenario() -> None:
        async with memory_client(site) as client:
            answer = await client.request(method, path, json=json)
            is_text = answer.headers["content-type"].startswith("text/")
            answers.append((answer.status_code, answer.text if is_text else answer.json()))

    run(scenario())
    return answers[0]


def test_other_sites_are_shown() -> None:
    status, seen = ask(site_of_an_overlay(lyon=512), "GET", "/v1/overlay")
    assert status == 200
    assert (seen["site"]["name"], seen["site"]["address"]) == ("paris", "127.0.0.1:7401")
    assert [(each["name"], each["applied_from"]) for each in seen["sites"]] == [("lyon", 512)]


def test_site_in_no_overlay_has_none_to_show() -> None:
    status, problem = ask(FakeSite(), "GET", "/v1/overlay")
    assert (status, problem["code"]) == (404, "not_found")
    assert "--overlay" in problem["detail"]


def test_site_that_is_gone_is_forgotten() -> None:
    site = site_of_an_overlay(lyon=512, bonn=3)
    site.overlay.unreachable = {"lyon"}
    status, forgotten = ask(site, "DELETE", "/v1/overlay/sites/lyon")
    assert (status, forgotten["name"], forgotten["events"]) == (200, "lyon", 2)
    assert [each["name"] for each in ask(site, "GET", "/v1/overlay")[1]["sites"]] == ["bonn"]


def test_site_that_is_there_or_unknown_is_not_forgotten() -> None:
    site = site_of_an_overlay(bonn=3)
    for name, expected in (("bonn", (409, "conflict")), ("lyon", (404, "not_found"))):
        status, problem = ask(site, "DELETE", f"/v1/overlay/sites/{name}")
        assert (status, problem["code"], problem["field"]) == (*expected, "name")
    assert ask(FakeSite(), "DELETE", "/v1/overlay/sites/lyon")[0] == 404


def test_subscription_has_positions_at_other_sites() -> None:
    site = site_of_an_overlay(lyon=512, bonn=None)
    status, made = ask(site, "POST", "/v1/subscriptions", {"filter": "a > 1", "id": "s"})
    assert (status, made["sites"]) == (201, {"lyon": 512, "bonn": None})
    assert ask(site, "GET", "/v1/subscriptions/s")[1]["sites"] == {"lyon": 512, "bonn": None}
    assert ask(site, "PUT", "/v1/subscriptions/s", {"filter": "a > 2"})[1]["sites"]["lyon"] == 512
    (listed,) = ask(site, "GET", "/v1/subscriptions")[1]["subscriptions"]
    assert "sites" not in listed
    assert site.overlay.waited_seconds == []


def test_subscription_of_a_site_in_no_overlay_has_no_positions() -> None:
    body = {"filter": "a > 1", "id": "s", "wait": "sites"}
    status, made = ask(FakeSite(), "POST", "/v1/subscriptions", body)
    assert status == 201
    assert "sites" not in made


def test_answer_waits_until_the_subscription_is_in_effect_everywhere() -> None:
    async def scenario() -> None:
        site = site_of_an_overlay(lyon=None)
        async with memory_client(site) as client:
            body = {"filter": "a > 1", "wait": "sites", "wait_seconds": 20}
            asking = asyncio.create_task(client.post("/v1/subscriptions", json=body))
            await until(lambda: site.overlay.waited_seconds)
            assert not asking.done()
            site.overlay.positions_at = {"lyon": 7}
            assert (await asking).json()["sites"] == {"lyon": 7}
        assert site.overlay.waited_seconds == [20]

    run(scenario())


def test_answer_comes_when_the_time_is_up() -> None:
    site = site_of_an_overlay(lyon=None)
    body = [{"filter": "a > 1", "wait": "sites", "wait_seconds": 0.01}, {"filter": "a > 2"}]
    status, made = ask(site, "POST", "/v1/subscriptions", body)
    assert status == 201
    assert [each["sites"] for each in made["subscriptions"]] == [{"lyon": None}, {"lyon": None}]


def test_only_sites_can_be_waited_for_and_not_for_ever() -> None:
    site = site_of_an_overlay(lyon=None)
    for body, field in (({"wait": "all"}, "wait"), ({"wait_seconds": 61}, "wait_seconds")):
        status, problem = ask(site, "POST", "/v1/subscriptions", {"filter": "a > 1", **body})
        assert (status, problem["field"]) == (400, field)


def test_ids_of_other_sites_are_refused() -> None:
    site, theirs = site_of_an_overlay(), "site~lyon~0123456789abcdef"
    status, problem = ask(site, "POST", "/v1/subscriptions", {"filter": "a > 1", "id": theirs})
    assert (status, problem["field"]) == (400, "id")
    assert ask(site, "GET", f"/v1/subscriptions/{theirs}")[0] == 404
    assert ask(site, "GET", f"/v1/subscriptions/{theirs}/events?wait=0")[0] == 404


def test_metrics_tell_of_the_overlay() -> None:
    _, text = ask(site_of_an_overlay(lyon=1), "GET", "/metrics")
    for line in (
        "culver_overlay_links 1.0",
        'culver_overlay_site_reachable{site="lyon"} 1.0',
        'culver_overlay_backlog_events{site="lyon"} 2.0',
        'culver_overlay_false_positives_total{site="lyon"} 1.0',
        "culver_overlay_packets_sent_total 5.0",
        'culver_overlay_refusals_total{reason="a loop"} 2.0',
    ):
        assert line in text.splitlines()
    assert "culver_overlay" not in ask(FakeSite(), "GET", "/metrics")[1]
