"""The six kinds of value and the domains in which they compare."""

import pytest

from culver.model.values import KIND_OF_TYPE, Domain, Kind, Timestamp, Value, domain_of

CASES: list[tuple[Value, Kind, Domain]] = [
    (1, Kind.INTEGER, Domain.NUMBER),
    (1.0, Kind.REAL, Domain.NUMBER),
    ("1", Kind.STRING, Domain.STRING),
    (True, Kind.BOOLEAN, Domain.BOOLEAN),
    (("1",), Kind.STRINGS, Domain.STRINGS),
    ((), Kind.STRINGS, Domain.STRINGS),
    (Timestamp(1), Kind.TIMESTAMP, Domain.TIMESTAMP),
]


@pytest.mark.parametrize(("value", "kind", "domain"), CASES)
def test_every_value_has_one_kind_and_one_domain(value: Value, kind: Kind, domain: Domain) -> None:
    assert KIND_OF_TYPE[type(value)] is kind
    assert domain_of(value) is domain


def test_every_kind_is_some_values_kind() -> None:
    assert {kind for _, kind, _ in CASES} == set(Kind)
    assert {domain for _, _, domain in CASES} == set(Domain)


def test_a_boolean_is_not_an_integer() -> None:
    assert KIND_OF_TYPE[bool] is not KIND_OF_TYPE[int]


def test_the_letters_of_the_kinds_stay_as_they_are_because_stored_batches_hold_them() -> None:
    assert {kind.name: kind.value for kind in Kind} == {
        "INTEGER": "i",
        "REAL": "r",
        "STRING": "s",
        "BOOLEAN": "b",
        "STRINGS": "l",
        "TIMESTAMP": "t",
    }


def test_timestamps_are_ordered_in_time_and_equal_only_to_timestamps() -> None:
    assert Timestamp(-1) < Timestamp(0) < Timestamp(1)
    assert Timestamp(5) == Timestamp(5)
    assert Timestamp(5) not in [value for value, _, _ in CASES] + [5]
    assert len({Timestamp(5), Timestamp(5), Timestamp(6)}) == 2
