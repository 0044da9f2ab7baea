"""An answer says which message it is about, also where that message could not be read strictly."""

import time
from typing import Any

import pytest

from culver.errors import InvalidRequest
from culver.gateway.websocket.client_messages import check_reference, find_reference

FOUND: list[tuple[str, Any]] = [
    ('{"op": "publish", "ref": 7, "events": [{"n": 9223372036854775808}]}', 7),
    ('{"op": "publish", "events": [{"n": NaN}, {"n": -Infinity}], "ref": "seven"}', "seven"),
    ('{"ref": 7.5, "events": [{"a": 1, "a": 2}]}', 7.5),
    ('{"ref": "Zoë", "events": ["\\ud800"]}', "Zoë"),
    ('{"ref": -9223372036854775808, "events": ' + "[" * 60 + "]" * 60 + "}", -(2**63)),
    ('\ufeff{"ref": 0, "events": [1e999]}', 0),
    ('{"ref": 1, "events": [' + "9" * 5_000 + "]}", 1),
    ('{"ref": "' + "x" * 256 + '", "n": NaN}', "x" * 256),
]

NOT_FOUND = [
    "",
    "not json",
    "null",
    "[]",
    '[["ref", 1]]',
    '"ref"',
    '{"op": "ping"}',
    '{"ref": 1',
    '{"ref": 1} {"ref": 2}',
    '{"ref": 1, "ref": 2}',
    '{"ref": 1, "ref": 1}',
    '{"ref": null}',
    '{"ref": true}',
    '{"ref": {}}',
    '{"ref": []}',
    '{"ref": NaN}',
    '{"ref": -Infinity}',
    '{"ref": 1e999}',
    '{"ref": 9223372036854775808}',
    '{"ref": ' + "9" * 10_000 + "}",
    '{"ref": "\\ud800"}',
    '{"ref": "' + "x" * 257 + '"}',
    '{"events": [{"ref": 1}]}',
    '{"ref": 1, "events": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"a":' * 100_000,
]


@pytest.mark.parametrize(("text", "reference"), FOUND)
def test_a_reference_is_found_in_a_message_that_is_refused(text: str, reference: Any) -> None:
    assert find_reference(text) == reference


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_is_no_reference_or_not_the_only_one_is_not_found(text: str) -> None:
    assert find_reference(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"ref": 1, "n": ' + "9" * 1_000_000 + "}",
        '{"ref": 1, "n": 0.' + "9" * 1_000_000 + "}",
        '{"ref": 1, "n": [' + "{}," * 300_000 + "0]}",
        '{"ref": "' + "\\\\" * 500_000 + '"}',
    ],
)
def test_a_message_of_a_megabyte_is_searched_soon(text: str) -> None:
    started = time.process_time()
    find_reference(text)
    assert time.process_time() - started < 2


def test_a_reference_is_a_short_string_or_a_number() -> None:
    assert [check_reference(value) for value in ("a", 1, 1.5, None)] == ["a", 1, 1.5, None]
    wrong: list[Any] = [True, [], {}, "x" * 257]
    for value in wrong:
        with pytest.raises(InvalidRequest) as refused:
            check_reference(value)
        assert refused.value.field == "ref"
