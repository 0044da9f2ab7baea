"""Groups of durable subscriptions over HTTP, on a site in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from culver.delivery import Selection, Share
from culver.errors import Conflict, InvalidRequest
from culver.gateway.api.group_positions import GroupMark
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run
from support.until import settled

QUOTES = {"filter": "n >= ?", "rows": [[0], [1], [2]]}


@asynccontextmanager
async def with_quotes(site: FakeSite, events: int = 0) -> AsyncIterator[httpx.AsyncClient]:
    async with memory_client(site) as client:
        assert (await client.post("/v1/sets/quotes", json=QUOTES)).status_code == 201
        if events:
            await client.post("/v1/events", json=[{"n": n} for n in range(events)])
        yield client


def test_a_poll_has_each_event_once_with_the_subscriptions_that_it_is_for() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with with_quotes(site, 3) as client:
            answer = (await client.get("/v1/groups/events?set=quotes&wait=0")).json()
            assert (answer["count"], answer["gateways"]) == (3, [])
            items = answer["items"]
            assert [(item["type"], item["offset"], item["event"], item["to"]) for item in items] == [
                ("event", 0, {"n": 0}, ["quotes.0"]),
                ("event", 1, {"n": 1}, ["quotes.0", "quotes.1"]),
                ("event", 2, {"n": 2}, ["quotes.0", "quotes.1", "quotes.2"]),
            ]
            same = (await client.get("/v1/groups/events?set=quotes&wait=0&limit=2")).json()["items"]
            assert same == items[:2]
            body = {"set": "quotes", "position": items[1]["position"]}
            done = (await client.post("/v1/groups/ack", json=body)).json()
            assert done == {"count": 3, "gateways": [], "acknowledged": 1}
            rest = (await client.get("/v1/groups/events?set=quotes&wait=0")).json()["items"]
            assert rest == items[2:]
            skipped = {"set": "quotes", "wait": 0, "after": items[2]["position"]}
            assert (await client.get("/v1/groups/events", params=skipped)).json()["items"] == []
            assert site.acknowledged == {f"quotes.{place}": 1 for place in range(3)}

    run(scenario())


@pytest.mark.parametrize(
    ("query", "members"),
    [
        ("prefix=quotes.", ["quotes.0", "quotes.1", "quotes.2"]),
        ("prefix=nobody", []),
        ("subscription=quotes.2", ["quotes.2"]),
        ("subscription=quotes.2&subscription=quotes.0&subscription=quotes.2", ["quotes.0", "quotes.2"]),
    ],
)
def test_a_group_has_those_that_are_asked_for(query: str, members: list[str]) -> None:
    async def scenario() -> None:
        async with with_quotes(FakeSite()) as client:
            await client.post("/v1/events", json={"n": 5})
            answer = (await client.get(f"/v1/groups/events?{query}&wait=0")).json()
            assert answer["count"] == len(members)
            assert [item["to"] for item in answer["items"]] == ([members] if members else [])

    run(scenario())


def test_a_poll_waits_for_the_first_event_and_ends_with_the_group() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with with_quotes(site) as client:
            polling = asyncio.create_task(client.get("/v1/groups/events?set=quotes&wait=30"))
            await settled()
            assert not polling.done()
            await client.post("/v1/events", json=[{"n": -1}, {"n": 0}])
            (item,) = (await polling).json()["items"]
            assert (item["offset"], item["to"]) == (1, ["quotes.0"])
            query = {"set": "quotes", "wait": 30, "after": item["position"]}
            polling = asyncio.create_task(client.get("/v1/groups/events", params=query))
            await settled()
            await client.delete("/v1/sets/quotes")
            assert (await polling).json()["items"] == [{"type": "ended"}]
            assert (await client.get("/v1/groups/events?set=quotes")).status_code == 404

    run(scenario())


def test_an_answer_of_large_events_is_bounded_in_bytes() -> None:
    async def scenario() -> None:
        async with with_quotes(FakeSite()) as client:
            for n in range(60):
                await client.post("/v1/events", json={"n": n, "text": "x" * 250_000})
            answer = await client.get("/v1/groups/events?prefix=quotes&limit=1000")
        assert 4_000_000 < len(answer.content) < 5_000_000

    run(scenario())


@pytest.mark.parametrize("path", ["/v1/groups/events", "/v1/groups/stream"])
@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 400, "set"),
        ("set=quotes&prefix=q", 400, "set"),
        ("set=quotes&subscription=quotes.0", 400, "set"),
        ("prefix=q&subscription=quotes.0", 400, "set"),
        ("set=quotes&set=quotes", 400, "set"),
        ("prefix=q&prefix=r", 400, "prefix"),
        ("set=unknown", 404, "set"),
        ("set=", 404, "set"),
        ("set=" + "x" * 5_000, 404, "set"),
        ("prefix=", 400, "prefix"),
        ("prefix=" + "x" * 129, 400, "prefix"),
        ("subscription=quotes.0&subscription=quotes.9", 404, "subscription[1]"),
        ("subscription=quotes.0&subscription=*", 400, "subscription[1]"),
        ("subscription=", 400, "subscription[0]"),
        ("subscriptions=quotes.0", 400, "subscriptions"),
    ],
)
def test_a_wrong_group_is_refused_by_field(path: str, query: str, status: int, field: str) -> None:
    async def scenario() -> None:
        async with with_quotes(FakeSite()) as client:
            answer = await client.get(f"{path}?{query}")
        assert (answer.status_code, answer.json()["field"]) == (status, field)

    run(scenario())


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("wait=-1", "wait"),
        ("after=-1", "after"),
        ("after=quotes.0:1", "after"),
        ("after=1-xyz", "after"),
        ("after=9223372036854775808", "after"),
        ("after=" + "9" * 5_000, "after"),
        ("after=%0a1", "after"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(query: str, field: str) -> None:
    async def scenario() -> None:
        async with with_quotes(FakeSite()) as client:
            answer = await client.get(f"/v1/groups/events?set=quotes&{query}")
        assert (answer.status_code, answer.json()["field"]) == (400, field)

    run(scenario())


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"set": "quotes", "offset": 4}, 400, "offset"),
        ({"set": "quotes", "offset": -1}, 400, "offset"),
        ({"set": "quotes", "offset": 2**63}, 400, "offset"),
        ({"set": "quotes", "offset": "1"}, 400, "offset"),
        ({"set": "quotes", "offset": 1.5}, 400, "offset"),
        ({"set": "quotes", "position": 1}, 400, "position"),
        ({"set": "quotes", "position": "4"}, 400, "position"),
        ({"set": "quotes", "position": "one"}, 400, "position"),
        ({"set": "quotes", "position": "1-00000000"}, 409, "position"),
        ({"set": "quotes", "position": "1", "offset": 1}, 400, "position"),
        ({"set": "quotes"}, 400, "position"),
        ({"offset": 1}, 400, "set"),
        ({"set": "quotes", "prefix": "q", "offset": 1}, 400, "set"),
        ({"set": "unknown", "offset": 1}, 404, "set"),
        ({"set": ["quotes"], "offset": 1}, 400, "set"),
        ({"prefix": "", "offset": 1}, 400, "prefix"),
        ({"subscriptions": [], "offset": 1}, 400, "subscriptions"),
        ({"subscriptions": "quotes.0", "offset": 1}, 400, "subscriptions"),
        ({"subscriptions": ["quotes.0", 7], "offset": 1}, 400, "subscriptions[1]"),
        ({"subscriptions": ["quotes.0", "none"], "offset": 1}, 404, "subscriptions[1]"),
        ({"subscriptions": ["quotes.0"] * 10_001, "offset": 1}, 400, "subscriptions"),
        ({"set": "quotes", "offset": 1, "group": 1}, 400, "group"),
        ([], 400, "body"),
    ],
)
def test_a_wrong_acknowledgement_is_refused_and_acknowledges_nothing(
    body: Any, status: int, field: str
) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with with_quotes(site, 3) as client:
            answer = await client.post("/v1/groups/ack", json=body)
        assert (answer.status_code, answer.json()["field"]) == (status, field)
        assert site.acknowledged == {}

    run(scenario())


def test_a_live_subscription_is_no_member_of_a_list() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with with_quotes(site) as client:
            member = site.registrations["quotes.0"]
            site.registrations["live-1"] = replace(member, id="live-1", durable=False)
            answer = await client.get("/v1/groups/events?subscription=live-1")
        assert (answer.status_code, answer.json()["field"]) == (409, "subscription[0]")

    run(scenario())


def test_other_gateways_are_named_and_have_the_other_members() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with with_quotes(site, 3) as client:
            site.ports["quotes.1"] = 8082
            answer = (await client.get("/v1/groups/events?set=quotes")).json()
            assert (answer["count"], answer["gateways"]) == (2, ["http://site:8082"])
            assert {each for item in answer["items"] for each in item["to"]} == {"quotes.0", "quotes.2"}
            # Another gateway may have all members of a set, and those of a list.
            nobody = (await client.get("/v1/groups/events?set=unknown&wait=0")).json()
            assert (nobody["count"], nobody["items"]) == (0, [])
            elsewhere = (await client.get("/v1/groups/events?subscription=quotes.1&wait=0")).json()
            assert (elsewhere["count"], elsewhere["gateways"]) == (0, ["http://site:8082"])
            done = (await client.post("/v1/groups/ack", json={"set": "quotes", "offset": 2})).json()
            assert done == {"count": 2, "gateways": ["http://site:8082"], "acknowledged": 2}
            assert site.acknowledged == {"quotes.0": 2, "quotes.2": 2}

    run(scenario())


def test_a_position_of_another_group_neither_acknowledges_nor_skips() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        async with with_quotes(site, 3) as client:
            one = "/v1/groups/events?subscription=quotes.2&wait=0"
            (item,) = (await client.get(one)).json()["items"]
            position = item["position"]
            # The list grows by a member that has events before this position.
            both = ["quotes.0", "quotes.2"]
            body = {"subscriptions": both, "position": position}
            assert (await client.post("/v1/groups/ack", json=body)).status_code == 409
            more = await client.get(f"{one}&subscription=quotes.0&after={position}")
            assert (more.status_code, more.json()["field"]) == (409, "after")
            # The members are divided among more gateways.
            site.ports["quotes.9"] = 8082
            again = await client.post("/v1/groups/ack", json={**body, "subscriptions": ["quotes.2"]})
            assert again.status_code == 409
            assert site.acknowledged == {}
            del site.ports["quotes.9"]
            again = await client.post("/v1/groups/ack", json={**body, "subscriptions": ["quotes.2"] * 2})
            assert again.json()["acknowledged"] == 2
            assert site.acknowledged == {"quotes.2": 2}

    run(scenario())


def test_a_mark_tells_groups_and_shares_apart() -> None:
    selections = [
        Selection(set_name="a"),
        Selection(prefix="a"),
        Selection(subscriptions=frozenset({"a"})),
        Selection(subscriptions=frozenset({"a", "b"})),
    ]
    shares = [Share(0, 1), Share(0, 2), Share(1, 2)]
    positions = {GroupMark(each, share).position(17) for each in selections for share in shares}
    assert len(positions) == 12
    mark = GroupMark(selections[0], shares[0])
    assert mark.position(17) == "17-c500f4de"  # clients keep it across restarts
    assert mark.offset_of("17-c500f4de", "after") == 17
    assert mark.offset_of("17", "after") == 17
    with pytest.raises(Conflict):
        mark.offset_of("17-c500f4df", "after")
    for wrong in ("", "-", "17-", "x", "17-C500F4DE", "-17", "1" * 20, str(2**63), "17-c500f4de ", "١"):
        with pytest.raises(InvalidRequest) as caught:
            mark.offset_of(wrong, "after")
        assert caught.value.field == "after"
