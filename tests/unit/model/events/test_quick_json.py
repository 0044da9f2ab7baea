"""The quick way through a JSON text gives what the careful one gives, errors included."""

import random
from typing import Any

from culver.errors import InvalidEvent
from culver.model.formats import json_text

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
        quick += json_text._quickly(text, 3) is not json_text._IN_DOUBT
    assert quick > 1_000  # it was not always in doubt
