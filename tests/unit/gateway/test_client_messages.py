"""The quick way through a publication gives what strict reading gives, or nothing."""

import random

import pytest

from culver.config import EventSettings
from culver.errors import CulverError
from culver.gateway.websocket.client_messages import PublishRequest, read_message, read_quickly
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
PUBLISHERS = ('"p"', '"a-7"', '"a:b"', '"\\u0070"', '"a b"', '"é"', '""', "null", "1")
SEQUENCES = ("0", "17", "9223372036854775806", "9223372036854775807", "-1", "1.0", "null", '"1"')
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
    if rng.random() < 0.3:
        members.append(f'"publisher":{rng.choice(PUBLISHERS)}')
        if rng.random() < 0.9:
            members.append(f'"sequence":{rng.choice(SEQUENCES)}')
    if rng.random() < 0.1:
        members.append(rng.choice((*members, '"events":{}', '"more":1')))
    rng.shuffle(members)
    return "{" + rng.choice((",", ", ")).join(members) + "}"


def read_strictly(text: str) -> tuple[PublishRequest, Reference] | None:
    reference, content = read_message(text, SETTINGS)
    return (content, reference) if isinstance(content, PublishRequest) else None


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
        '{"op":"publish_each","events":[{"a":1},{"a":1,"a":1}]}',
        '{"op":"publish_each","op":"publish","events":[{"a":1}]}',
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


def read_each(events: str, more: str = "", settings: EventSettings = SETTINGS) -> object:
    """The content of a publish_each: numbers of the accepted events, and what the others are refused for."""
    reference, content = read_message(f'{{"op":"publish_each","ref":7,"events":{events}{more}}}', settings)
    assert reference == 7
    if not isinstance(content, PublishRequest):
        assert isinstance(content, CulverError)
        return content.code, content.field
    assert content.each
    refused = [(index, error.code, error.field) for index, error in content.refused]
    return [event.data["n"] for event in content.events], refused


ROOMY = EventSettings(max_depth=4, max_batch=50, max_attributes=5, max_bytes=120)

REFUSED_EVENTS = [
    ("7", "invalid_event", None),
    ("null", "invalid_event", None),
    ('"x"', "invalid_event", None),
    ("[]", "invalid_event", None),
    ('{"a":NaN}', "invalid_event", "a"),
    ('{"a":1e400}', "invalid_event", "a"),
    ('{"a":9223372036854775808}', "invalid_event", "a"),
    ('{"a":1,"a":2}', "invalid_event", "a"),
    ('{"a":{"b":1,"b":2}}', "invalid_event", "a.b"),
    ('{"a":"\\ud800"}', "invalid_event", "a"),
    ('{"":1}', "invalid_event", ""),
    ('{"a":{"b":1},"a.b":2}', "invalid_event", "a.b"),
    ('{"a":{"$timestamp":"soon"}}', "invalid_event", "a"),
    ('{"a":' + "[" * 30 + "]" * 30 + "}", "invalid_event", "a[0][0][0]"),
    ('{"a":' * 30 + "1" + "}" * 30, "invalid_event", "a.a.a.a"),
    ('{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}', "too_large", "f"),
    ('{"a":"' + "x" * 200 + '"}', "too_large", None),
    ('{"specversion":"1.0"}', "invalid_event", "id"),
]


@pytest.mark.parametrize(("event", "code", "field"), REFUSED_EVENTS)
def test_refused_event_does_not_stop_the_others(event: str, code: str, field: str | None) -> None:
    found = read_each(f'[{{"n":0}},{event},{{"n":2}}]', settings=ROOMY)
    assert found == ([0, 2], [(1, code, field)])


def test_every_refused_event_is_named() -> None:
    events = ",".join(f'{{"n":{index}}},{event}' for index, (event, _, _) in enumerate(REFUSED_EVENTS))
    refused = [(2 * index + 1, code, field) for index, (_, code, field) in enumerate(REFUSED_EVENTS)]
    assert read_each(f"[{events}]", settings=ROOMY) == (list(range(len(REFUSED_EVENTS))), refused)


@pytest.mark.parametrize(
    ("events", "more", "code", "field"),
    [
        ("[]", "", "invalid_request", "events"),
        ("7", "", "invalid_request", "events"),
        ('{"n":1}', "", "invalid_request", "events"),
        ('{"n":NaN}', "", "invalid_event", "events.n"),
        ('[{"n":1},{"n":2},{"n":3},{"n":4}]', "", "too_large", "events"),
        ('[{"n":NaN},{"n":2},{"n":3},{"n":4}]', "", "too_large", "events"),
        ('[{"n":NaN}]', ',"more":1', "invalid_request", "more"),
        ('[{"n":NaN}]', ',"more":NaN', "invalid_request", "more"),
        ('[{"n":NaN}]', ',"events":[]', "invalid_event", "events"),
    ],
)
def test_message_that_is_wrong_outside_of_its_events_is_refused_as_a_whole(
    events: str, more: str, code: str, field: str
) -> None:
    assert read_each(events, more) == (code, field)


def test_message_of_many_plain_events_is_read_the_quick_way() -> None:
    settings = EventSettings()
    events = ",".join(f'{{"symbol":"S{n}","price":{n}.5,"hot":true}}' for n in range(200))
    text = f'{{"op":"publish_each","ref":1,"events":[{events}]}}'
    found = read_quickly(text, settings)
    assert found is not None
    assert (found[0].each, len(found[0].events)) == (True, 200)
    assert found[::-1] == read_message(text, settings)
