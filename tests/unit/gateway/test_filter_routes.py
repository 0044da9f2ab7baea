"""Trying filters out without publishing."""

from typing import Any

import pytest

from support.fake_site import FakeSite
from support.gateway import memory_client, run

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("filter_text", "event", "matches", "result", "clause"),
    [
        ("price > 20", {"price": 21}, True, True, 0),
        ("price > 20", {"price": 20}, False, False, None),
        ("price > 20", {"volume": 1}, False, None, None),
        ("symbol = 'A' OR price > 20", {"price": 21}, True, True, 1),
        ("type = 'quote' AND price = 3", "cloudevent", True, True, 0),
    ],
)
def test_a_test_says_whether_and_by_which_clause(
    filter_text: str, event: Any, matches: bool, result: bool | None, clause: int | None
) -> None:
    if event == "cloudevent":
        event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "quote", "data": {"price": 3}}

    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            answer = await client.post("/v1/filters/test", json={"filter": filter_text, "event": event})
        assert answer.status_code == 200
        assert answer.json()["matches"] is matches
        assert answer.json()["result"] is result
        assert answer.json()["clause"] == clause
        assert site.events == []

    run(scenario())


def test_an_explanation_lists_the_clauses() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            answer = await client.post("/v1/filters/explain", json={"filter": "a = 1 AND (b = 2 OR c = 3)"})
        assert answer.json() == {"clauses": ["a = 1 AND b = 2", "a = 1 AND c = 3"]}

    run(scenario())


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ('{"filter": "a = 1"}', "invalid_request", "event"),
        ('{"event": {}}', "invalid_request", "filter"),
        ('{"filter": "a ==", "event": {}}', "invalid_filter", "filter"),
        ('{"filter": "a = 1", "event": 7}', "invalid_event", "event"),
        ('{"filter": "a = 1", "event": {"a": 1e999}}', "invalid_event", "event.a"),
        ('{"filter": "a = 1", "event": {"a": 1, "a": 2}}', "invalid_event", "event.a"),
        ('{"filter": "a = 1", "event": {"": 2}}', "invalid_event", "event"),
        ('{"filter": "a = 1", "event": {}, "more": 1}', "invalid_request", "more"),
        ('{"filter": "a = 1", "event": {"a": ' + "[" * 30 + "]" * 30 + "}}", "invalid_event", None),
    ],
)
def test_what_is_wrong_is_named(body: str, code: str, field: str | None) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            answer = await client.post("/v1/filters/test", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
        if field is not None:
            assert answer.json()["field"] == field

    run(scenario())


def test_a_filter_with_too_many_clauses_is_refused_with_the_limit() -> None:
    async def scenario() -> None:
        text = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(12))
        async with memory_client(FakeSite()) as client:
            answer = await client.post("/v1/filters/explain", json={"filter": text})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_filter")
        assert answer.json()["limit"] == 256

    run(scenario())
