"""The quick way through a JSON text gives what the careful one gives, errors included."""

import random
from typing import Any

import msgspec

from culver.config import EventSettings
from culver.errors import CulverError, InvalidEvent
from culver.model.formats import decode_body, event_from_object, json_text, parse_event
from culver.model.formats.attributes import event_too_large

KEYS = ['"a"', '"b"', '"c"', '"x:"', '":"', '""', '"\\u0061"', '"é"']
SCALARS = [
    "1", "-0", "1.5", "1e400", "NaN", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "true",
    "null", '"x"', '":"', '"a:b"', '"\\ud800"', '"é"', "1e5", "01", '"\x07"', '" :"', "Infinity", "9" * 50, "}", "",
]  # fmt: skip


def random_text(rng: random.Random, depth: int) -> str:
    step = rng.random()
    if depth and step < 0.3:
        members = [
            f"{rng.choice(KEYS)}{rng.choice(('', '', ' '))}:{random_text(rng, depth - 1)}"
            for _ in range(rng.randrange(4))
        ]
        return "{" + ",".join(members) + "}"
    if depth and step < 0.5:
        return "[" + ", ".join(random_text(rng, depth - 1) for _ in range(rng.randrange(4))) + "]"
    return rng.choice(SCALARS)


def carefully(text: str, max_depth: int) -> Any:
    value = json_text.read_value(json_text.decode_text(text))
    json_text.check_value(value, "", 1, max_depth)
    return value


def outcome(read: Any, text: str) -> tuple[str, str]:
    try:
        return "value", repr(read(text, 3))
    except InvalidEvent as exc:
        return "refused", str(exc)


def test_quick_and_careful_reading_agree() -> None:
    rng = random.Random(20_261)
    quick = 0
    for _ in range(20_000):
        text = random_text(rng, 4)
        assert outcome(json_text.strict_json, text) == outcome(carefully, text), text
        quick += json_text.read_plain(text, msgspec.json.decode) is not None
    assert quick > 1_000  # it was not always in doubt


SETTINGS = EventSettings(max_depth=3, max_attributes=4, max_bytes=60, max_batch=3)


def event_outcome(read: Any, text: str) -> tuple[str, str]:
    try:
        return "events", repr(read(text.encode("utf-8")))
    except CulverError as exc:
        return type(exc).__name__, str(exc)


def test_quick_and_careful_reading_of_an_event_agree() -> None:
    def careful_event(body: bytes) -> Any:
        if len(body) > SETTINGS.max_bytes:
            raise event_too_large(SETTINGS)
        return event_from_object(json_text.read_value(json_text.decode_text(body)), SETTINGS)

    rng = random.Random(20_262)
    accepted = 0
    for _ in range(20_000):
        text = random_text(rng, 4)
        found = event_outcome(lambda body: parse_event(body, SETTINGS), text)
        assert found == event_outcome(careful_event, text), text
        accepted += found[0] == "events"
    assert accepted > 500


def test_a_batch_is_read_as_its_events_are() -> None:
    rng = random.Random(20_263)
    accepted = 0
    for _ in range(20_000):
        texts = [f'{{"k": {random_text(rng, 2)}}}' for _ in range(rng.randrange(1, 5))]
        batch = event_outcome(
            lambda body: decode_body("application/json", {}, body, SETTINGS), f"[{','.join(texts)}]"
        )
        each = [event_outcome(lambda body: [parse_event(body, SETTINGS)], text) for text in texts]
        sound = len(texts) <= SETTINGS.max_batch and all(kind == "events" for kind, _ in each)
        assert (batch[0] == "events") == sound, texts
        if sound:
            assert batch[1] == "[" + ", ".join(shown[1:-1] for _, shown in each) + "]"
            accepted += 1
    assert accepted > 200
