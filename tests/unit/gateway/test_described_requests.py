"""What the description forbids is refused by name, and what it allows is accepted."""

from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from support.described_api import described_operations, errors_of
from support.fake_site import FakeSite
from support.gateway import memory_client, run

JSON = "application/json"
ABSENT = object()
WRONG: list[Any] = [None, True, 7, -1, 1.5, "text", "", [], [7], {}, {"a": 1}]
FILTERS = ["price > 20", "a = 1 OR b = 2"]
LIMITS = [{"max_count": 1}, {"max_count": 10**7}, {"max_bytes": 0}, {"max_age_seconds": 604_800}, {"size": 1}]

# For each member, values that the schema allows or forbids; what only the site can judge is not among them.
VALUES: dict[str, list[Any]] = {
    "filter": [*FILTERS, 7, None, "x" * 20_000, ["a"]],
    "id": ["one", "a" * 128, "a" * 129, "a/b", "", "live-x", "-a", 7, None],
    "scheme": ["columnar", "counting", "magic", "", 7, None],
    "expires_in_seconds": [1, 0.5, 0, -1, 10**10, "1", True, None],
    "mailbox": [*LIMITS, {}, None, 7, []],
    "rows": [[["ACME", 20]], [], None, 7, [7]],
    "columns": [[["ACME"], [20]], [], None, 7, [7]],
    "first": [0, -1, 10**19, "0", None],
    "split": [0, 1, -1, 2**31, "0", None],
    "delivery_id": ["alerts:0", "alerts:5", "alerts", ":1", "alerts:x", "", 7, None],
    "prefix": ["alerts", "al", "a" * 128, "a" * 129, "", 7, None],
    "subscriptions": [["alerts"], ["alerts", "alerts"], [], ["a/b"], "alerts", 7, None],
    "position": ["4", "0", "-1", "4-", "4-xyz", "", 7, None],
    "offset": [4, 0, -1, 2**63, "4", 1.5, None],
    "event": [{}, {"a": 1}, 7, "text", []],
    "data": ["hello", "", 7, None, []],
    "encoding": ["text", "utf-16", "", 7, None],
    "deliver": [{"channel": "c"}, {"channel": ""}, {"channel": "__culver:x"}, {"name": "c"}, {}, "c", None],
    "unknown": [ABSENT, ABSENT, ABSENT, 1],
}
OPERATIONS = [
    (
        "POST",
        "/v1/subscriptions",
        ["filter", "id", "scheme", "expires_in_seconds", "mailbox", "deliver", "unknown"],
    ),
    (
        "PUT",
        "/v1/subscriptions/{id}",
        ["filter", "scheme", "expires_in_seconds", "mailbox", "deliver", "unknown"],
    ),
    (
        "POST",
        "/v1/sets/{name}",
        ["filter", "rows", "columns", "first", "expires_in_seconds", "mailbox", "unknown"],
    ),
    ("POST", "/v1/subscriptions/{id}/ack", ["delivery_id", "unknown"]),
    ("POST", "/v1/groups/ack", ["prefix", "offset", "unknown"]),
    ("POST", "/v1/groups/ack", ["subscriptions", "position", "unknown"]),
    ("POST", "/v1/filters/test", ["filter", "event", "unknown"]),
    ("POST", "/v1/filters/explain", ["filter", "unknown"]),
    ("POST", "/v1/slices", ["split", "unknown"]),
    ("POST", "/v1/channels/{channel}", ["data", "encoding", "unknown"]),
]


def choices(member: str) -> list[Any]:
    """Half of the time, a value that is usually right, or none."""
    usual = [ABSENT, VALUES[member][0]]
    return [*VALUES[member], *usual * (len(VALUES[member]) // 2)]


def ask(method: str, path: str, **request: Any) -> httpx.Response:
    answers: list[httpx.Response] = []

    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
            await client.post("/v1/events", json=[{"n": n} for n in range(8)])
            answers.append(
                await client.request(
                    method, path.format(id="alerts", name="quotes", channel="news"), **request
                )
            )

    run(scenario())
    return answers[0]


def test_every_operation_with_a_body_of_json_is_tried() -> None:
    described = {
        key
        for key, operation in described_operations().items()
        if JSON in operation.get("requestBody", {}).get("content", {})
    }
    assert {(method, path) for method, path, _ in OPERATIONS} == described - {("POST", "/v1/events")}


@pytest.mark.parametrize(("method", "path", "members"), OPERATIONS)
def test_what_the_schema_forbids_is_refused_and_what_it_allows_is_accepted(
    method: str, path: str, members: list[str]
) -> None:
    schema = described_operations()[method, path]["requestBody"]["content"][JSON]["schema"]
    outcomes: set[bool] = set()

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(st.fixed_dictionaries({name: st.sampled_from(choices(name)) for name in members}))
    def check(drawn: dict[str, Any]) -> None:
        body = {name: value for name, value in drawn.items() if value is not ABSENT}
        if path == "/v1/sets/{name}" and body.get("filter") in FILTERS:
            body["filter"] = "symbol = ? AND price >= ?"
        allowed = errors_of(schema, body) == []
        answer = ask(method, path, json=body)
        assert answer.is_success == allowed, (body, errors_of(schema, body), answer.text)
        if not allowed:
            assert 400 <= answer.status_code < 500
            named = answer.json()["field"].partition(".")[0].partition("[")[0]
            assert named in {*body, *members, "columns", "rows", "set", "position"}, answer.text
        outcomes.add(allowed)

    check()
    assert outcomes == {True, False}


@pytest.mark.parametrize("body", [value for value in WRONG if not isinstance(value, dict)])
@pytest.mark.parametrize(("method", "path"), [each[:2] for each in OPERATIONS])
def test_a_body_that_is_no_object_is_refused_where_the_schema_says_so(
    method: str, path: str, body: Any
) -> None:
    schema = described_operations()[method, path]["requestBody"]["content"][JSON]["schema"]
    assert errors_of(schema, body) != []
    answer = (
        ask(method, path, json=body)
        if body is not None
        else ask(method, path, content=b"null", headers={"content-type": JSON})
    )
    assert answer.status_code == 400, answer.text


# Where they lie beyond what is matched, the answer is 503.
MAILBOX_ENDS = [("/v1/subscriptions/{id}/mailbox", "to"), ("/v1/subscriptions/{id}/mailbox/events", "to")]
QUERIES = [
    (path, parameter)
    for (method, path), operation in described_operations().items()
    for parameter in operation.get("parameters", [])
    if parameter["in"] == "query" and method == "GET" and not path.endswith("stream")
    if parameter["name"] not in ("set", "subscription")  # which must exist
    if parameter["name"] not in ("attribute", "filter", "time")  # which have more rules than a schema can say
    if (path, parameter["name"]) not in MAILBOX_ENDS
]


@pytest.mark.parametrize(("path", "parameter"), QUERIES)
@pytest.mark.parametrize(
    "text", ["0", "1", "1000", "1001", "-1", "1.5", "alerts", "alerts:1", "a b", "nan", "null"]
)
def test_a_parameter_is_accepted_where_the_schema_allows_it(
    path: str, parameter: dict[str, Any], text: str
) -> None:
    name, schema = parameter["name"], parameter["schema"]
    value: Any = text
    if schema.get("type") in ("integer", "number") and text.replace(".", "").lstrip("-").isdigit():
        value = float(text) if "." in text else int(text)
    query = {"wait": "0"} if path.endswith("/events") and name != "wait" else {}
    if path.endswith(("/log/events", "/mailbox/events")):
        query = {"from": "0"}
    if path.startswith("/v1/groups") and name != "prefix":
        query["prefix"] = "al"
    if name == "wait" and isinstance(value, int | float) and value > 1:
        return  # it would wait
    answer = ask("GET", path, params={**query, name: text})
    assert answer.is_success == (errors_of(schema, value) == []), answer.text
    assert answer.is_success or answer.json()["field"] == name
