"""`/v1/sets`: rows become subscriptions, all or none, and what is wrong is named by row and column."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from culver.config import Settings
from support.fake_site import FakeSite
from support.gateway import memory_client, run

FILTER = "symbol = ? AND close >= ?"
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def stream(*columns: pa.Array) -> bytes:
    batch = pa.record_batch(list(columns), [f"c{place}" for place in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"filter": FILTER, "rows": [["ACME", 20], ["EMCA", 7.5]]}},
        {"json": {"filter": FILTER, "columns": [["ACME", "EMCA"], [20, 7.5]]}},
        {
            "content": stream(pa.array(["ACME", "EMCA"]), pa.array([20.0, 7.5])),
            "params": {"filter": FILTER},
            "headers": ARROW,
        },
        {
            "content": stream(
                pa.array(["ACME", "EMCA"]).dictionary_encode(), pa.array([20.0, 7.5], pa.float32())
            ),
            "params": {"filter": FILTER},
            "headers": ARROW,
        },
    ],
)
def test_rows_become_subscriptions_whatever_they_come_in(body: dict[str, Any]) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            await client.post("/v1/events", json=[{}] * 3)
            made = await client.post("/v1/sets/quotes", **body)
            assert made.status_code == 201, made.text
            assert made.json() == {"set": "quotes", "count": 2, "first": 0, "next": 2, "since": 3}
            assert (await client.get("/v1/subscriptions/quotes.1")).json()["filter"] == (
                "symbol = 'EMCA' AND close >= 7.5"
            )
            again = await client.post("/v1/sets/quotes", **body)
            assert (again.json()["first"], again.json()["next"]) == (2, 4)
            sets = (await client.get("/v1/sets")).json()
            assert [(each["set"], each["count"], each["next"]) for each in sets["sets"]] == [("quotes", 4, 4)]
            assert (await client.delete("/v1/sets/quotes")).json() == {"removed": 4}
            assert (await client.delete("/v1/sets/quotes")).status_code == 404

    run(scenario())


def test_options_hold_for_all_rows() -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            body = {"filter": "a = ?", "rows": [[1]], "mailbox": {"max_count": 5}, "first": 0}
            assert (await client.post("/v1/sets/a", json=body)).status_code == 201
            query = {"filter": "a = ?", "max_count": "5", "first": "0", "expires_in_seconds": "9"}
            made = await client.post("/v1/sets/b", content=stream(pa.array([1])), params=query, headers=ARROW)
            assert made.status_code == 201
            refused = await client.post("/v1/sets/b", json={"filter": "a = ?", "rows": [[1]], "first": 0})
            assert (refused.status_code, refused.json()["next"]) == (409, 1)
        assert [site.registrations[each].mailbox_count for each in ("a.0", "b.0")] == [5, 5]
        assert site.registrations["b.0"].expires_at_us

    run(scenario())


MOMENT = {"$timestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("filter_text", "values", "field", "words"),
    [
        (FILTER, {"rows": [["a", 1], ["b", "x"]]}, "rows[1][1]", "is a string"),
        (FILTER, {"rows": [["a", 1], ["b", None]]}, "rows[1][1]", "is null"),
        (FILTER, {"rows": [["a", 1], ["b", [2]]]}, "rows[1][1]", "is a list"),
        (FILTER, {"rows": [["a", 1], ["b", 2**70]]}, "rows[1][1]", "64 bit"),
        (FILTER, {"rows": [["a", 1.5], ["b", 2**60]]}, "rows[1][1]", "2^53"),
        (FILTER, {"rows": [["a", 1], ["b"]]}, "rows[1]", "1 value,"),
        (FILTER, {"rows": [["a", 1], 7]}, "rows[1]", "array"),
        (FILTER, {"rows": {}}, "rows", "array"),
        (FILTER, {"rows": []}, "rows", "no rows"),
        (FILTER, {}, "rows", "either"),
        (FILTER, {"rows": [["a", 1]], "columns": [["a"], [1]]}, "rows", "either"),
        (FILTER, {"rows": [["a", 1]], "sort": 1}, "sort", "unknown"),
        (FILTER, {"columns": [["a", "b"], [1, True]]}, "columns[1][1]", "is a boolean"),
        (FILTER, {"columns": [["a", "b"], [1]]}, "columns[1]", "1 value,"),
        (FILTER, {"columns": [["a"]]}, "columns", "1 column,"),
        ("a BETWEEN ? AND ?", {"rows": [[1, 2], [1, 2]], "first": -1}, "first", "whole number"),
        ("a < ?", {"rows": [[MOMENT], [{"$timestamp": "x"}]]}, "rows[1][0]", "not a timestamp"),
        ("a < ?", {"rows": [[True]]}, "rows[0][0]", "no order"),
        ("a = 1", {"rows": [[1]]}, "rows[0]", "parameters"),
        ("a = ? AND", {"rows": [[1]]}, "filter", "expected"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_added(
    filter_text: str, values: dict[str, Any], field: str, words: str
) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            refused = await client.post("/v1/sets/quotes", json={"filter": filter_text, **values})
        assert refused.status_code == 400, refused.text
        assert refused.headers["content-type"] == "application/problem+json"
        assert (refused.json()["field"], words in refused.json()["detail"]) == (field, True), refused.json()
        assert site.registrations == {}

    run(scenario())


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"nonsense", "body"),
        (b"", "body"),
        (stream(pa.array(["a", "b"]), pa.array([1.0, float("nan")])), "rows[1][1]"),
        (stream(pa.array(["a", "b"]), pa.array([1.0, None])), "rows[1][1]"),
        (stream(pa.array(["a", "b"]), pa.array([[1], [2]])), "rows[0][1]"),
        (stream(pa.array(["a", "b"]), pa.array([1, 2**63], pa.uint64())), "rows[1][1]"),
        (stream(pa.array(["a", "b"]), pa.array([1, 2], pa.timestamp("us"))), "rows[0][1]"),
        (stream(pa.array(["a"])), "rows"),
        (stream(pa.array([], pa.string()), pa.array([], pa.float64())), "rows"),
    ],
)
def test_what_is_wrong_in_a_stream_is_named(content: bytes, field: str) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            refused = await client.post(
                "/v1/sets/quotes", content=content, params={"filter": FILTER}, headers=ARROW
            )
        assert refused.status_code == 400, refused.text
        assert refused.json()["field"] == field, refused.json()

    run(scenario())


def test_limits_and_names_and_media_types_are_refused_by_name() -> None:
    async def scenario() -> None:
        settings = Settings()
        few = replace(settings, registry=replace(settings.registry, max_rows=2))
        body = {"filter": "a = ?", "rows": [[1], [2], [3]]}
        async with memory_client(FakeSite(few)) as client:
            refused = await client.post("/v1/sets/quotes", json=body)
            assert (refused.status_code, refused.json()["limit"]) == (413, 2)
            assert (await client.post("/v1/sets/live-x", json=body)).json()["field"] == "name"
            plain = await client.post("/v1/sets/q", content=b"a", headers={"content-type": "text/plain"})
            assert plain.status_code == 415

    run(scenario())


def test_rows_are_columnar_and_a_scheme_is_refused() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            body = {"filter": FILTER, "rows": [["ACME", 20]], "scheme": "counting"}
            by_query = {"filter": FILTER, "scheme": "counting"}
            rows = stream(pa.array(["ACME"]), pa.array([20.0]))
            refused = [
                await client.post("/v1/sets/quotes", json=body),
                await client.post("/v1/sets/quotes", content=rows, params=by_query, headers=ARROW),
            ]
            assert [(each.status_code, each.json()["field"]) for each in refused] == [(400, "scheme")] * 2
            await client.post("/v1/sets/quotes", json={"filter": FILTER, "rows": [["ACME", 20]]})
            assert (await client.get("/v1/subscriptions/quotes.0")).json()["scheme"] == "columnar"

    run(scenario())
