"""Requests become their structs, and what a struct does not allow is refused by its path."""

import asyncio
from typing import Any

import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request

from culver.errors import InvalidRequest
from culver.gateway.api.request_reader import check_delivery_id, read_as, read_body, read_query_as
from culver.messages import (
    Attach,
    FilterTrial,
    MailboxLimits,
    NewRows,
    NewSubscription,
    PageQuery,
    PollQuery,
    Publish,
    Subscribe,
)
from support.gateway import run

MANY: Any = NewSubscription | list[NewSubscription]


def refusal(kind: Any, value: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidRequest) as caught:
        read_as(kind, value)
    return caught.value.field, caught.value.message


def test_a_body_that_drips_is_refused() -> None:
    async def scenario() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": b"x", "more_body": True}

        request = Request({"type": "http", "headers": []}, receive)
        with pytest.raises(InvalidRequest, match="more slowly than 1000000000 bytes a second"):
            await read_body(request, limit=10**9, bytes_per_second=10**9, stall_seconds=0.05)

    run(scenario())


def test_a_body_that_pauses_less_than_it_may_is_read() -> None:
    async def scenario() -> None:
        pieces = [b"x"] * 5

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": pieces.pop(), "more_body": bool(pieces)}

        request = Request({"type": "http", "headers": []}, receive)
        assert await read_body(request, limit=5, bytes_per_second=1, stall_seconds=30.0) == b"x" * 5

    run(scenario())


def test_a_request_is_read_with_its_defaults() -> None:
    read = read_as(NewSubscription, {"filter": "a = 1", "id": None, "mailbox": {"max_count": 3}})
    assert read == NewSubscription(filter="a = 1", mailbox=MailboxLimits(max_count=3))
    assert read_as(MANY, [{"filter": "a = 1"}]) == [NewSubscription(filter="a = 1")]


@pytest.mark.parametrize(
    ("kind", "value", "field", "message"),
    [
        (MANY, 7, "body", "the body must be a JSON object"),
        (MANY, [7], "[0]", "[0] must be a JSON object"),
        (MANY, [{"filter": "a"}, {}], "[1].filter", "[1].filter is missing"),
        (NewSubscription, {"filter": None}, "filter", "filter is missing"),
        (NewSubscription, {"filter": 7}, "filter", "filter must be a string"),
        (
            NewSubscription,
            {"filter": "a", "mailbox": {"max_count": -1}},
            "mailbox.max_count",
            "mailbox.max_count must be a whole number from 1 on",
        ),
        (
            NewSubscription,
            {"filter": "a", "mailbox": {"size": 1}},
            "mailbox.size",
            "unknown member 'size'; known here: max_age_seconds, max_bytes, max_count",
        ),
        (
            NewSubscription,
            {"filter": "a", "expires_in_seconds": 0},
            "expires_in_seconds",
            "expires_in_seconds must be a number above 0 and at most 3.1536e+09",
        ),
        (NewRows, {"filter": "a", "rows": [[1], 7]}, "rows[1]", "rows[1] must be an array"),
        (Publish, {"op": "publish", "events": {}}, "events", "events must be an array"),
        (
            Subscribe,
            {"op": "subscribe", "filter": "a", "after": -1},
            "after",
            f"after must be a whole number from 0 to {2**63 - 1}",
        ),
        (Attach, {"op": "attach", "subscription": "a", "x": 1}, "x", None),
        (FilterTrial, {"filter": "a"}, "event", "event is missing"),
    ],
)
def test_what_is_wrong_is_named(kind: Any, value: Any, field: str, message: str | None) -> None:
    assert refusal(kind, value) == (field, message or refusal(kind, value)[1])


@pytest.mark.parametrize("name", ["a` - at `$.zzz", "a` - at `$.mailbox", " - at `$[0]`", "`", "x" * 10_000])
def test_a_name_that_looks_like_a_path_is_an_unknown_member(name: str) -> None:
    assert refusal(NewSubscription, {"filter": "a", name: 1})[0] == name
    assert refusal(MANY, [{"filter": "a", "mailbox": {name: 1}}])[0] == f"[0].mailbox.{name}"


def test_parameters_are_numbers_only_where_their_struct_says_so() -> None:
    assert read_query_as(PageQuery, QueryParams("after=12&limit=12")) == PageQuery(after="12", limit=12)
    assert read_query_as(PageQuery, QueryParams("after=null")).after == "null"
    assert read_query_as(PollQuery, QueryParams("wait=1e1")).wait == 10


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("limit=1&limit=1", "limit", "given twice"),
        ("limit=null", "limit", "whole number"),
        ("limit=", "limit", "whole number"),
        ("limit=+1", "limit", "whole number"),
        ("limit=1_0", "limit", "whole number"),
        ("limit=" + "9" * 5_000, "limit", "whole number"),
        ("wait=inf", "wait", "number from 0"),
        ("wait=1e999", "wait", "number from 0"),
        ("colour=1", "colour", "unknown parameter"),
    ],
)
def test_a_wrong_parameter_is_named(query: str, field: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        read_query_as(PollQuery, QueryParams(query))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text", ["", "alerts", "alerts:", ":1", "a b:1", "alerts:-1", f"alerts:{2**63}", "a:1\n"]
)
def test_what_is_no_delivery_id_is_refused(text: str) -> None:
    assert check_delivery_id("alerts:17") == ("alerts", 17)
    with pytest.raises(InvalidRequest):
        check_delivery_id(text)
