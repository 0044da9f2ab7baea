"""An event of the matcher is the one that publishing the same value makes, and is refused in the same words."""

from collections import UserDict
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from culver import Matcher
from culver.client.event_encoding import encode_event
from culver.errors import CulverError
from culver.matcher.event_values import event_of
from culver.model.formats import parse_event

CLOUDEVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def nested(levels: int, value: Any = 1) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def outcome(make: Any, given: Any) -> Any:
    try:
        event = make(given)
    except CulverError as exc:
        return type(exc), exc.message, exc.field
    return event.context, event.data


@pytest.mark.parametrize(
    "given",
    [
        *({f"a{number}": 1 for number in range(count)} for count in (256, 257)),
        {"a": [1.5, "x"], "b": ("x", "y"), "c": {"d": {}}, "e": None, "f": UserDict(x=1)},
        *(nested(levels) for levels in (16, 17, 5000)),
        *(nested(levels, datetime(2026, 1, 1, tzinfo=UTC)) for levels in (15, 16)),
        *(nested(levels, ["x"]) for levels in (15, 16)),
        *({"v": value} for value in (float("nan"), float("inf"), 2**63, -(2**63), 10**5000, b"x", 1j)),
        *({"v": value} for value in (Decimal("1.5"), Decimal("NaN"), Decimal("0.12345678901234567890"))),
        *({"v": value} for value in ("\ud800", "e\u0301", "e" + 300 * "\u0301", ["x", "\ud800"])),
        {"v": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"v": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
        {"v": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
        *({name: 1} for name in (1, None, b"a", ("a",), "", "\ud800", 257 * "a")),
        *({"v": {name: 1}} for name in (1, None, "", "\ud800", 255 * "a")),
        {"a.b": 1, "a": {"b": 2}},
        {"e\u0301": 1, "\u00e9": 2},
        {**CLOUDEVENT, "time": datetime(2026, 1, 1, tzinfo=UTC), "data": {"a": 1}},
        {**CLOUDEVENT, "Bad": 1},
        {**CLOUDEVENT, "data": {f"a{number}": 1 for number in range(253)}},
        7,
        "x",
        [("a", 1)],
    ],
    ids=lambda each: ascii(each)[:40] if not isinstance(each, dict) else ascii(list(each))[:40],
)  # fmt: skip
def test_an_event_is_what_publishing_makes_of_it(given: Any) -> None:
    assert outcome(event_of, given) == outcome(lambda each: parse_event(encode_event(each)), given)


def test_the_size_of_an_event_has_no_limit() -> None:
    with Matcher() as matcher:
        matcher.add("long", "text LIKE 'x%' OR data.text LIKE 'x%'")
        for event in ({"text": 300_000 * "x"}, {**CLOUDEVENT, "data": {"text": 300_000 * "x"}}):
            assert matcher.match(event) == ["long"]
            assert matcher.match([event]) == [["long"]]


def test_the_place_of_an_event_with_too_much_is_named() -> None:
    with pytest.raises(CulverError, match=r"event \[1\]: the event has 300 attributes, more than the limit"):
        Matcher().match([{}, dict.fromkeys(map(str, range(300)), 1)])
