"""Every answer to a request that gives a filter tells what is doubtful about it."""

import json
from typing import Any

import httpx
import pytest

import culver
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run, served

DOUBTFUL = "symbol = XYZ"
SOUND = "symbol = 'XYZ'"


@pytest.mark.parametrize(("text", "codes"), [(DOUBTFUL, ["compares_attributes"]), (SOUND, None)])
def test_answers_over_http_have_warnings_where_there_are_any(text: str, codes: list[str] | None) -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:

            async def ask(method: str, path: str, body: Any) -> Any:
                answer = await client.request(method, path, json=body)
                assert answer.status_code < 300
                return answer.json()

            many = await ask("POST", "/v1/subscriptions", [{"filter": "a = 1"}, {"filter": text}])
            assert "warnings" not in many["subscriptions"][0]
            answers = [
                await ask("POST", "/v1/subscriptions", {"id": "alerts", "filter": text}),
                await ask("PUT", "/v1/subscriptions/alerts", {"filter": text}),
                await ask("POST", "/v1/sets/quotes", {"filter": f"{text} AND price > ?", "rows": [[1]]}),
                await ask("POST", "/v1/filters/explain", {"filter": text}),
                await ask("POST", "/v1/filters/test", {"filter": text, "event": {}}),
                many["subscriptions"][1],
            ]
            for answer in answers:
                found = answer.get("warnings")
                assert (None if found is None else [each["code"] for each in found]) == codes
            assert "warnings" not in await ask("GET", "/v1/subscriptions/alerts", None)

    run(scenario())


def test_streams_and_the_client_have_the_warnings_and_log_them(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with served(FakeSite(gateway_settings())) as server, culver.connect(server.url) as client:
            async with (
                httpx.AsyncClient(base_url=server.url) as http,
                http.stream("GET", "/v1/stream", params={"filter": "a = 1 AND a = 2"}) as stream,
            ):
                lines = stream.aiter_lines()
                data = next(
                    line for line in [await anext(lines) for _ in range(3)] if line.startswith("data:")
                )
                assert json.loads(data[5:])["warnings"][0]["code"] == "never_matches"
            async with client.subscribe(DOUBTFUL) as live:
                assert [each.code for each in live.warnings] == ["compares_attributes"]
            async with client.subscribe(SOUND) as live:
                assert live.warnings == ()
            async with client.subscribe(DOUBTFUL, durable="alerts") as durable:
                assert [each.code for each in durable.warnings] == ["compares_attributes"]
            made = await client.create_subscription(DOUBTFUL)
            assert made.warnings
            rows = await client.subscribe_many(f"{DOUBTFUL} AND n = ?", [[1]], name="set")
            assert rows.warnings

    run(scenario())
    logged = [record.message for record in caplog.records if record.name == "culver.client"]
    assert len(logged) == 2
    assert logged[0].startswith("live subscription: symbol = XYZ compares two attributes")
