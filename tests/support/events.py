"""Random events over a small pool of names and values, so that filters over the same pool often hit.

`random_event_json` and `random_event` take a seeded generator; `event_documents` and `events` are strategies
for Hypothesis. All of them give what the formats accept.
"""

import math
import random
from typing import Any

from hypothesis import strategies as st

from culver.config import EventSettings
from culver.model.event import Event
from culver.model.formats import event_from_object
from culver.model.values import Kind

NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")

# The kind that an attribute usually has; now and then it has another.
HOME_KINDS = {
    "a": Kind.INTEGER,
    "b": Kind.INTEGER,
    "c": Kind.REAL,
    "d": Kind.STRING,
    "e": Kind.STRING,
    "f": Kind.BOOLEAN,
    "g": Kind.STRINGS,
    "h": Kind.TIMESTAMP,
}

STRINGS = ("", "a", "ab", "abc", "b", "ba", "XYZ", "é", "zebra", "a%b", "a_b", "'")
SMALL_INTEGERS = tuple(range(-3, 8))
LARGE_INTEGERS = tuple(
    sign * 2**power + step for power in (53, 63) for sign in (-1, 1) for step in (-1, 0, 1)
)
INTEGERS_64 = tuple(number for number in LARGE_INTEGERS if -(2**63) <= number < 2**63)
REALS = (
    -0.0,
    0.0,
    0.5,
    -0.5,
    1.0,
    1.5,
    2.0,
    2.5,
    3.0,
    -1.5,
    7.0,
    2.0**53,
    -(2.0**63),
    2.0**63,
    1e300,
    5e-324,
)
TIMESTAMPS = (
    "2026-01-01T00:00:00Z",
    "2026-01-01T02:00:00+02:00",  # the same moment
    "2026-01-01T00:00:00.000001Z",
    "2025-12-31T23:59:59.5Z",
    "1969-12-31T23:59:59Z",
    "2030-06-15T12:30:00-05:00",
)


def random_event(rng: random.Random) -> Event:
    return event_from_object(random_event_json(rng), EventSettings())


def random_event_json(rng: random.Random) -> dict[str, Any]:
    """A plain event or, one time in three, a CloudEvent, as a decoded JSON object."""
    return _random_cloudevent(rng) if rng.random() < 1 / 3 else _random_members(rng)


def random_value(rng: random.Random, kind: Kind) -> Any:
    """A value of a kind, as it stands in JSON."""
    match kind:
        case Kind.INTEGER:
            return rng.choice(INTEGERS_64) if rng.random() < 0.2 else rng.choice(SMALL_INTEGERS)
        case Kind.REAL:
            return rng.choice(REALS)
        case Kind.STRING:
            return rng.choice(STRINGS)
        case Kind.BOOLEAN:
            return rng.random() < 0.5
        case Kind.STRINGS:
            return rng.choices(STRINGS, k=rng.randrange(4))
        case Kind.TIMESTAMP:
            return {"$timestamp": rng.choice(TIMESTAMPS)}


def _random_members(rng: random.Random) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name in NAMES:
        chance = rng.random()
        if chance < 0.2:
            continue
        if chance < 0.25:
            members[name] = None
        elif chance < 0.28:
            members[name] = rng.choice(([1, "a"], [None], [["a"]], {}))  # in the payload only
        else:
            kind = HOME_KINDS[name] if chance < 0.8 else rng.choice(tuple(Kind))
            members[name] = random_value(rng, kind)
    if rng.random() < 0.2:
        inner = {name: random_value(rng, rng.choice(tuple(Kind))) for name in rng.sample(NAMES, 2)}
        # Nested under a name of its own, and under `data`, where `data.a` has two meanings.
        members[rng.choice(("nested", "data"))] = inner
    return members


def _random_cloudevent(rng: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": str(rng.randrange(1000)),
        "source": "/random",
        "type": rng.choice(("a", "ab", "zebra")),
    }
    if rng.random() < 0.5:
        document["time"] = rng.choice(TIMESTAMPS)
    for name in rng.sample(NAMES, rng.randrange(4)):  # extensions that hide fields of the data
        document[name] = random_value(rng, rng.choice((Kind.INTEGER, Kind.STRING, Kind.BOOLEAN)))
    if rng.random() < 0.9:
        document["data"] = _random_members(rng)
    return document


def event_documents() -> st.SearchStrategy[dict[str, Any]]:
    """Decoded JSON objects of all the shapes an event may have, beyond the small pool."""
    text = st.one_of(st.sampled_from(STRINGS), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    leaf = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(SMALL_INTEGERS + INTEGERS_64),
        st.floats(allow_nan=False, allow_infinity=False),
        text,
        st.lists(text, max_size=4),
        st.lists(st.one_of(text, st.integers(-5, 5)), max_size=3),
        st.sampled_from(TIMESTAMPS).map(lambda moment: {"$timestamp": moment}),
    )
    # No name has a dot or a letter that NFC changes, so no two paths collide.
    name = st.one_of(st.sampled_from(NAMES), st.text("xyzü€ :", min_size=1, max_size=3))
    members = st.dictionaries(name, st.one_of(leaf, st.dictionaries(name, leaf, max_size=3)), max_size=6)
    extension = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), text)
    cloudevent = st.builds(
        lambda extensions, data: {
            **extensions,
            "specversion": "1.0",
            "id": "1",
            "source": "/strategy",
            "type": "ab",
            "data": data,
        },
        st.dictionaries(st.sampled_from(NAMES), extension, max_size=4),
        st.one_of(members, leaf),
    )
    return st.one_of(members, cloudevent)


def events() -> st.SearchStrategy[Event]:
    return event_documents().map(lambda document: event_from_object(document, EventSettings()))


def same_value(left: object, right: object) -> bool:
    """Equal in kind and value, telling -0.0 from 0.0 and True from 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return left == right
