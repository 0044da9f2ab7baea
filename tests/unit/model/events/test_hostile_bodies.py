"""Whatever a client sends, reading it ends in events or in one of Culver's own errors."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from culver.config import EventSettings
from culver.errors import CulverError
from culver.model.columns.event_batch import encode, event_at
from culver.model.formats import MEDIA_TYPES, decode_body
from support.events import random_event_json

SETTINGS = EventSettings(max_bytes=20_000, max_attributes=40, max_batch=20)
CONTENT_TYPES = (None, *MEDIA_TYPES, "application/json; charset=utf-8", "text/plain", "image/png", ";=;")
FRAGMENTS = (
    b"{}", b"[]", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b"\\udc00", b"null", b"NaN",
    b"-Infinity", b"1e999", b"-0", b"9" * 30, b"1." + b"3" * 400, b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b"\xcc\x81", b"\r", b"\n", b"\n\n", "\u2028".encode(), b'"a":', b'{"":1}', b'"specversion":"1.0",', b'"data":',
    b'"data_base64":"AA",', b'{"$timestamp":"2026-01-01T00:00:00"}', b'"a":1,"a":2,', b"[" * 40, b'{"a":' * 40,
    b"5" * 5000, b" " * 300,
)  # fmt: skip


def garbage(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(200))


def fragments(rng: random.Random) -> bytes:
    return b"".join(rng.choices(FRAGMENTS, k=rng.randrange(12)))


def documents(rng: random.Random) -> bytes:
    """Sound bodies, with and without white space, as objects, arrays and lines."""
    made: list[dict[str, Any]] = [random_event_json(rng) for _ in range(rng.randrange(1, 4))]
    form = rng.randrange(4)
    if form == 0:
        return json.dumps(made[0]).encode()
    if form == 1:
        return msgspec.json.encode(made)
    if form == 2:
        return b"\n".join(msgspec.json.encode(document) for document in made)
    return json.dumps(made, indent=1, ensure_ascii=False).encode()


def mutated(rng: random.Random) -> bytes:
    body = bytearray(documents(rng))
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(4):
            case 0:
                body[at:at] = rng.choice(FRAGMENTS)
            case 1:
                del body[at : at + rng.randrange(10)]
            case 2:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 3:
                start = rng.randrange(len(body) + 1)
                body[at:at] = body[start : start + rng.randrange(30)]
    return bytes(body)


def random_headers(rng: random.Random) -> dict[str, str]:
    headers = {"host": "example"}
    if rng.random() < 0.4:
        headers |= {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
        for _ in range(rng.randrange(3)):
            name = rng.choice(("time", "subject", "x", "X", "data", "a_b", "", "é", "datacontenttype", "id"))
            headers["ce-" + name] = "".join(rng.choices('%"\\ aé€C3\x00\ud800', k=rng.randrange(8)))
    return headers


@pytest.mark.parametrize("make", [garbage, fragments, documents, mutated])
def test_any_body_ends_in_events_or_in_a_culver_error(make: Callable[[random.Random], bytes]) -> None:
    rng = random.Random(20_260_101)
    accepted, errors = 0, list[CulverError]()
    for _ in range(4_000):
        body, content_type, headers = make(rng), rng.choice(CONTENT_TYPES), random_headers(rng)
        try:
            events = decode_body(content_type, headers, body, SETTINGS)
        except CulverError as error:
            errors.append(error)
        else:
            accepted += 1
            # What is accepted goes through the columns unchanged.
            read = [event_at(batch, row) for batch in encode(events, 0) for row in range(batch.num_rows)]
            assert read == events
            for event in events:
                assert b"\n" not in event.payload
    assert errors
    assert accepted or make is garbage
    for problem in errors:  # it must be possible to send the problem back
        assert len(msgspec.json.encode([problem.message, problem.field, problem.details])) < 4_000
