"""`POST /v1/events`: formats, limits, and streams of lines."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import httpx
import pytest

from culver.config import Settings
from culver.errors import StorageCorrupt, StorageError, StorageFull, Unavailable
from culver.gateway.gateway_context import Gateway
from culver.gateway.routes.event_routes import RequestPublisher
from culver.messages import PublishQuery
from culver.model import Event
from support.described_api import check_answer
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run
from support.until import settled, until

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
GZIP = {"content-encoding": "gzip"}
CLOUDEVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "quote", "data": {"price": 3}}


async def post(site: FakeSite, body: bytes, headers: dict[str, str]) -> httpx.Response:
    async with memory_client(site) as client:
        return await client.post("/v1/events", content=body, headers=headers)


def test_one_event_is_stored_and_acknowledged_with_its_position() -> None:
    async def scenario() -> None:
        site = FakeSite()
        answer = await post(site, b'{"price": 20}', JSON)
        assert answer.status_code == 200
        assert answer.json() == {"accepted": 1, "first_offset": 0, "next_offset": 1}
        assert site.events[0].data == {"price": 20}

    run(scenario())


def test_an_array_is_a_batch_in_its_order() -> None:
    async def scenario() -> None:
        site = FakeSite()
        answer = await post(site, b'[{"n": 1}, {"n": 2}, {"n": 3}]', JSON)
        assert answer.json() == {"accepted": 3, "first_offset": 0, "next_offset": 3}
        assert [event.data["n"] for event in site.events] == [1, 2, 3]

    run(scenario())


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(CLOUDEVENT), {"content-type": "application/cloudevents+json"}),
        (json.dumps([CLOUDEVENT]), {"content-type": "application/cloudevents-batch+json"}),
        (json.dumps(CLOUDEVENT), JSON),
        (json.dumps(CLOUDEVENT), NDJSON),
        (
            '{"price": 3}',
            JSON | {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "quote"},
        ),
    ],
)
def test_cloudevents_come_in_every_form(body: str, headers: dict[str, str]) -> None:
    async def scenario() -> None:
        site = FakeSite()
        answer = await post(site, body.encode(), headers)
        assert answer.status_code == 200, answer.text
        assert site.events[0].context["type"] == "quote"
        assert site.events[0].data == {"price": 3}

    run(scenario())


@pytest.mark.parametrize(
    ("body", "headers", "status", "code", "field"),
    [
        (b'{"a": 1', JSON, 400, "invalid_event", None),
        (b"\xff\xfe", JSON, 400, "invalid_event", None),
        (b'{"a": NaN}', JSON, 400, "invalid_event", "a"),
        (b'{"a": 1, "a": 2}', JSON, 400, "invalid_event", "a"),
        (b'[{"a": 1}, {"a": 1e999}]', JSON, 400, "invalid_event", "[1].a"),
        (b"[" * 100_000, JSON, 400, "invalid_event", None),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, JSON, 400, "invalid_event", None),
        (b"7", JSON, 400, "invalid_event", None),
        (b"", JSON, 400, "invalid_event", None),
        (b"[]", JSON, 400, "invalid_request", "body"),
        (b'{"a": "' + b"x" * 300_000 + b'"}', JSON, 413, "too_large", None),
        (
            b"a=1",
            {"content-type": "application/x-www-form-urlencoded"},
            415,
            "invalid_request",
            "content-type",
        ),
        (b'{"a": 1}', {}, 415, "invalid_request", "content-type"),
        (b'{"a": 1}', {"content-type": "application/json; charset=utf-16"}, 415, "invalid_request", None),
        (b"\n \n", NDJSON, 400, "invalid_request", "body"),
        (gzip.compress(b'{"a": 1}', mtime=0), JSON | GZIP, 415, "invalid_request", "content-encoding"),
        (gzip.compress(b'{"a": 1}\n', mtime=0), NDJSON | GZIP, 415, "invalid_request", "content-encoding"),
        (
            b'{"a": 1}',
            JSON | {"content-encoding": "identity, br"},
            415,
            "invalid_request",
            "content-encoding",
        ),
    ],
)
def test_a_body_that_is_wrong_is_refused_and_nothing_is_stored(
    body: bytes, headers: dict[str, str], status: int, code: str, field: str | None
) -> None:
    async def scenario() -> None:
        site = FakeSite()
        answer = await post(site, body, headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        if field is not None:
            assert answer.json()["field"] == field
        assert site.events == []

    run(scenario())


def test_a_batch_of_too_many_events_is_refused() -> None:
    async def scenario() -> None:
        settings = Settings()
        site = FakeSite(replace(settings, events=replace(settings.events, max_batch=3)))
        answer = await post(site, b"[" + b",".join([b"{}"] * 4) + b"]", JSON)
        assert (answer.status_code, answer.json()["limit"]) == (413, 3)

    run(scenario())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StorageFull("the disk is full"), 507),
        (StorageError("the disk refused"), 500),
        (StorageCorrupt("bad checksum"), 500),
        (Unavailable("starting"), 503),
    ],
)
def test_what_the_site_refuses_has_the_status_of_its_code(error: Exception, status: int) -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.failures["publish"] = error
        answer = await post(site, b"{}", JSON)
        assert answer.status_code == status
        assert ("retry-after" in answer.headers) == (status == 503)

    run(scenario())


def test_an_unexpected_failure_is_a_500_without_its_message(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.failures["publish"] = ZeroDivisionError("secret")
        answer = await post(site, b"{}", JSON)
        assert answer.status_code == 500
        assert answer.json()["code"] == "internal_error"
        assert "secret" not in answer.text

    run(scenario())
    assert "POST /v1/events failed" in caplog.text


async def endless(chunk: bytes, counted: list[int]) -> AsyncIterator[bytes]:
    while True:
        counted.append(len(chunk))
        yield chunk
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["/v1/events", "/v1/subscriptions", "/v1/filters/test"])
def test_an_endless_chunked_body_is_refused_once_it_passes_the_limit(path: str) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(max_body_bytes=100_000))
        counted: list[int] = []
        async with memory_client(site) as client:
            answer = await client.post(path, content=endless(b" " * 10_000, counted), headers=JSON)
        assert (answer.status_code, answer.json()["limit"]) == (413, 100_000)
        assert sum(counted) <= 120_000

    run(scenario())


def test_a_declared_length_beyond_the_limit_is_refused_before_the_body_is_read() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(max_body_bytes=1_000))
        counted: list[int] = []
        async with memory_client(site) as client:
            headers = JSON | {"content-length": "1001"}
            answer = await client.post("/v1/events", content=endless(b" ", counted), headers=headers)
        assert answer.status_code == 413
        assert counted == []

    run(scenario())


def test_a_client_that_publishes_too_fast_is_told_when_to_try_again() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(events_per_second=10))
        async with memory_client(site) as client:
            first = await client.post("/v1/events", json=[{}] * 30)
            second = await client.post("/v1/events", json={})
        assert first.status_code == 200
        assert (second.status_code, second.json()["code"]) == (429, "rate_limited")
        assert second.json()["field"] == "events_per_second"
        assert second.headers["retry-after"] in ("2", "3")

    run(scenario())


# --- streams of lines -----------------------------------------------------------------------------------


def test_a_stream_of_lines_is_published_in_order() -> None:
    async def scenario() -> None:
        site = FakeSite()
        lines = b"".join(b'{"n": %d}\n' % n for n in range(5_000))
        answer = await post(site, lines, NDJSON)
        assert answer.json() == {"accepted": 5_000, "first_offset": 0, "next_offset": 5_000}
        assert [event.data["n"] for event in site.events] == list(range(5_000))

    run(scenario())


def test_a_line_is_published_while_the_stream_is_still_open() -> None:
    async def scenario() -> None:
        site = FakeSite()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"n": 1}\n{"n"'
            await until(lambda: len(site.events) == 1)
            yield b": 2}"

        async with memory_client(site) as client, asyncio.timeout(5):
            answer = await client.post("/v1/events", content=body(), headers=NDJSON)
        assert answer.json()["accepted"] == 2

    run(scenario())


def test_the_receipt_of_a_stream_names_its_own_ranges_between_those_of_others() -> None:
    async def scenario() -> None:
        site = FakeSite()

        def has_events(count: int) -> bool:
            return len(site.events) == count

        async with memory_client(site) as client, asyncio.timeout(5):

            async def body() -> AsyncIterator[bytes]:
                for own, other in ((3, 2), (1, 0), (2, 4)):
                    end = len(site.events) + own
                    yield b'{"own": true}\n' * own
                    await until(partial(has_events, end))
                    if other:
                        await client.post("/v1/events", json=[{"own": False}] * other)

            answer = await client.post("/v1/events", content=body(), headers=NDJSON)
        receipt = answer.json()
        assert (receipt["accepted"], receipt["first_offset"], receipt["next_offset"]) == (6, 0, 8)
        ranges = [(each["first_offset"], each["next_offset"]) for each in receipt["ranges"]]
        assert ranges == [(0, 3), (5, 8)]
        own = [offset for offset, event in enumerate(site.events) if event.data["own"]]
        assert own == [offset for first, end in ranges for offset in range(first, end)]
        check_answer(answer)

    run(scenario())


def test_ranges_that_are_too_many_are_not_named() -> None:
    async def scenario() -> None:
        site = FakeSite()
        publisher = RequestPublisher(Gateway(site, 1.0), PublishQuery(), most_ranges=2)
        for others in (9, 9, 0, 8, 0):
            await publisher.publish([Event({}, {}, b"{}")])
            site.events += [Event({}, {}, b"{}")] * others
        receipt = publisher.accepted_events()
        assert (receipt.accepted, receipt.first_offset, receipt.next_offset) == (5, 0, 31)
        assert receipt.ranges is None

    run(scenario())


@pytest.mark.parametrize("cut", [1, 3, 7, 64])
def test_lines_may_be_cut_anywhere_and_blank_ones_hold_no_event(cut: int) -> None:
    async def scenario() -> None:
        text = '{"n": 1}\r\n\n  \n{"n": 2, "name": "Zoë"}\n{"n": 3}'.encode()

        async def body() -> AsyncIterator[bytes]:
            for at in range(0, len(text), cut):
                yield text[at : at + cut]

        site = FakeSite()
        async with memory_client(site) as client:
            answer = await client.post("/v1/events", content=body(), headers=NDJSON)
        assert answer.json()["accepted"] == 3
        assert [event.data["n"] for event in site.events] == [1, 2, 3]

    run(scenario())


def test_a_wrong_line_ends_the_stream_and_says_what_was_accepted_before() -> None:
    async def scenario() -> None:
        site = FakeSite()
        lines = b'{"n": 0}\n' * 2_500 + b'{"n": oops}\n' + b'{"n": 1}\n' * 10
        answer = await post(site, lines, NDJSON)
        assert answer.status_code == 400
        assert (answer.json()["line"], answer.json()["accepted"]) == (2_501, 2_500)
        assert len(site.events) == 2_500

    run(scenario())


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_beyond_the_limit_ends_the_stream(ending: bytes) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(max_message_bytes=1_000))
        answer = await post(site, b"{}\n{}\n" + b"x" * 1_001 + ending, NDJSON)
        assert (answer.status_code, answer.json()["limit"]) == (413, 1_000)
        assert (answer.json()["line"], answer.json()["accepted"]) == (3, 2)

    run(scenario())


def test_a_stream_may_be_longer_than_the_largest_body() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(max_body_bytes=1_000))
        answer = await post(site, b'{"a": 1}\n' * 1_000, NDJSON)
        assert answer.json()["accepted"] == 1_000

    run(scenario())


def test_a_stream_reads_no_further_while_the_site_is_slow() -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.hold.clear()
        counted: list[int] = []
        async with memory_client(site) as client:
            body = endless(b'{"a": 1}\n' * 100, counted)
            sending = asyncio.create_task(client.post("/v1/events", content=body, headers=NDJSON))
            await settled(lambda: len(counted))
            assert len(counted) * 100 <= 4_000
            sending.cancel()
            await asyncio.wait([sending])

    run(scenario())


def test_a_full_disk_in_the_middle_of_a_stream_says_what_was_accepted() -> None:
    async def scenario() -> None:
        site = FakeSite()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"n": 1}\n'
            await until(lambda: len(site.events) == 1)
            site.failures["publish"] = StorageFull("the disk is full")
            yield b'{"n": 2}\n'
            await asyncio.Event().wait()  # the answer does not wait for more

        async with memory_client(site) as client, asyncio.timeout(5):
            answer = await client.post("/v1/events", content=body(), headers=NDJSON)
        assert (answer.status_code, answer.json()["accepted"]) == (507, 1)

    run(scenario())


def test_a_fast_stream_is_slowed_down_and_not_refused() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(events_per_second=10_000))
        loop = asyncio.get_running_loop()
        started = loop.time()
        answer = await post(site, b"{}\n" * 15_000, NDJSON)
        assert answer.json()["accepted"] == 15_000
        assert loop.time() - started >= 0.3

    run(scenario())
