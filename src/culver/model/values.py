"""What a value is: six kinds, and how two values compare.

Numbers compare exactly across integer and real (Python does), strings by code point, booleans only for
equality. Values of different domains do not compare: the result is unknown.
"""

import enum

import msgspec


class Timestamp(msgspec.Struct, frozen=True, order=True):
    """A moment, as whole microseconds since 1970-01-01T00:00:00Z. A struct, not a dataclass, for it is made for every
    timestamp of every event."""

    microseconds: int


Value = int | float | str | bool | tuple[str, ...] | Timestamp


class Kind(enum.StrEnum):
    """The type of an attribute's value; the letter names its column in a batch."""

    INTEGER = "i"
    REAL = "r"
    STRING = "s"
    BOOLEAN = "b"
    STRINGS = "l"
    TIMESTAMP = "t"


class Domain(enum.StrEnum):
    """The types that compare with one another."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    STRINGS = "list of strings"


_DOMAIN_OF_KIND = {
    Kind.INTEGER: Domain.NUMBER,
    Kind.REAL: Domain.NUMBER,
    Kind.STRING: Domain.STRING,
    Kind.BOOLEAN: Domain.BOOLEAN,
    Kind.STRINGS: Domain.STRINGS,
    Kind.TIMESTAMP: Domain.TIMESTAMP,
}

KIND_OF_TYPE: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INTEGER,
    float: Kind.REAL,
    str: Kind.STRING,
    tuple: Kind.STRINGS,
    Timestamp: Kind.TIMESTAMP,
}


def kind_of(value: Value) -> Kind:
    return KIND_OF_TYPE[type(value)]


def domain_of(value: Value) -> Domain:
    return _DOMAIN_OF_KIND[KIND_OF_TYPE[type(value)]]
