"""The quick way through a publication gives what strict reading gives, or nothing."""

import random

import pytest

from culver.config import EventSettings
from culver.gateway.websocket.client_messages import Publications, read_message, read_quickly
from culver.messages import Reference

SETTINGS = EventSettings(max_depth=4, max_batch=3, max_attributes=5, max_bytes=120)

KEYS = ('"a"', '"b"', '"c"', '"a.b"', '":"', '""', '"\\u0061"', '"é"', '"$timestamp"', '"data"', '"ref"')
SCALARS = (
    "1", "-0", "1.5", "1e400", "NaN", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "true",
    "null", '"x"', '":"', '"\\ud800"', '"e\u0301"', "1e5", "01", '"\x07"', '" :"', "9" * 50, "}", "", '"publish"',
    '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00"', '""', '","', "[]", "{}", '"' + "x" * 100 + '"',
)  # fmt: skip
OPERATIONS = ('"publish"', '"publish_each"') * 4 + ('"subscribe"', "1", "null", '"\\u0070ublish"')
REFERENCES = (*SCALARS, "[1]", "{}", '"' + "é" * 256 + '"', '"' + "é" * 257 + '"')
CLOUDEVENT = '"specversion":"1.0","id":"1","source":"/s","type":"t"'


def random_value(rng: random.Random, depth: int) -> str:
    step = rng.random()
    if depth and step < 0.3:
        return random_object(rng, depth)
    if depth and step < 0.4:
        return "[" + ", ".join(random_value(rng, depth - 1) for _ in range(rng.randrange(4))) + "]"
    return rng.choice(SCALARS) if step < 0.7 else rng.choice(('"x"', "2.5", "7"))


def random_object(rng: random.Random, depth: int) -> str:
    colon = rng.choice((":", ":", ": ", " : "))
    members = [f"{rng.choice(KEYS)}{colon}{random_value(rng, depth - 1)}" for _ in range(rng.randrange(4))]
    return "{" + ",".join(members) + "}"


def random_event(rng: random.Random) -> str:
    step = rng.random()
    if step < 0.1:
        return rng.choice(SCALARS)
    if step < 0.2:
        return f'{{{CLOUDEVENT},"data":{random_value(rng, 3)}}}'
    if step < 0.3:
        return f'{{{CLOUDEVENT},"extension":{random_value(rng, 1)}}}'
    return random_object(rng, 4)


def random_message(rng: random.Random) -> str:
    events = ",".join(random_event(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 4))))
    members = [f'"op":{rng.choice(OPERATIONS)}', f'"events":[{events}]', f'"ref":{rng.choice(REFERENCES)}']
    if rng.random() < 0.4:
        members.pop()
    if rng.random() < 0.1:
        members.append(rng.choice((*members, '"events":{}', '"more":1')))
    rng.shuffle(members)
    return "{" + rng.choice((",", ", ")).join(members) + "}"


def read_strictly(text: str) -> tuple[Publications, Reference] | None:
    reference, content = read_message(text, SETTINGS)
    return (content, reference) if isinstance(content, Publications) else None


@pytest.mark.slow(seconds=2)
def test_quick_and_strict_reading_agree() -> None:
    rng = random.Random(20_262)
    quick = 0
    for _ in range(30_000):
        text = random_message(rng)
        found, expected = read_quickly(text, SETTINGS), read_strictly(text)
        assert found is None or repr(found) == repr(expected), text
        quick += found is not None
    assert quick > 1_000  # it was not always in doubt


@pytest.mark.parametrize(
    "text",
    [
        '{"op":"publish","events":[{"a":1,"a":1}]}',
        '{"op":"publish","events":[{"a":{"b":1,"b" :2}}]}',
        '{"op":"publish","events":[{"a":1}],"events":[{"a":1}]}',
        '{"op":"publish","op":"publish","events":[{"a":1}]}',
        '{"op":"publish","ref":1,"ref":1,"events":[{"a":1}]}',
        '{"op":"publish","ref":"x","ref":null,"events":[{"a":1}]}',
    ],
)
def test_repeated_key_is_left_to_strict_reading(text: str) -> None:
    assert read_quickly(text, SETTINGS) is None


@pytest.mark.parametrize("reference", ["", '"ref":7,', '"ref":"x",', '"ref":null,', '"ref" : 1.5, '])
def test_ordinary_publication_is_read_the_quick_way(reference: str) -> None:
    text = f'{{{reference}"op":"publish","events":[{{"a":"x","b":{{"c":[":"]}}}},{{"a": 2.5}}]}}'
    found = read_quickly(text, SETTINGS)
    assert found is not None
    assert found == read_strictly(text)
