"""Values: their six kinds, and which of them compare.

Numbers compare exactly across integer and real, as Python compares them; strings compare by code point, booleans
only for equality. The comparison of values of different domains is unknown.
"""

import enum

import msgspec


class Timestamp(msgspec.Struct, frozen=True, order=True):
    """A moment in whole microseconds since 1970-01-01T00:00:00Z."""

    microseconds: int


Scalar = int | float | str | bool | Timestamp
"""What a literal of a filter can be."""

Value = Scalar | tuple[str, ...]


class Kind(enum.StrEnum):
    """The type of an attribute's value; the letter names its column in a batch."""

    INTEGER = "i"
    REAL = "r"
    STRING = "s"
    BOOLEAN = "b"
    STRINGS = "l"
    TIMESTAMP = "t"


class Domain(enum.StrEnum):
    """The values that compare with one another."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    STRINGS = "list of strings"


_DOMAIN_OF_TYPE: dict[type, Domain] = {
    bool: Domain.BOOLEAN,
    int: Domain.NUMBER,
    float: Domain.NUMBER,
    str: Domain.STRING,
    tuple: Domain.STRINGS,
    Timestamp: Domain.TIMESTAMP,
}

KIND_OF_TYPE: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INTEGER,
    float: Kind.REAL,
    str: Kind.STRING,
    tuple: Kind.STRINGS,
    Timestamp: Kind.TIMESTAMP,
}

DOMAIN_OF_KIND = {kind: _DOMAIN_OF_TYPE[type_] for type_, kind in KIND_OF_TYPE.items()}


def domain_of(value: Value) -> Domain:
    return _DOMAIN_OF_TYPE[type(value)]
