"""The types of Spark that an attribute can have. The source and the sink take the same ones.

STRING, BOOLEAN, TIMESTAMP, whole numbers, FLOAT, DOUBLE   one attribute
ARRAY<STRING>                                              one attribute, a list of strings
STRUCT of these                                            the attributes `column.member`
"""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from culver.errors import InvalidConfiguration

INTEGERS = (ByteType, ShortType, IntegerType, LongType)
REALS = (FloatType, DoubleType)
_PLAIN = (StringType, BooleanType, TimestampType, *INTEGERS, *REALS)
_SUPPORTED = "STRING, BOOLEAN, TIMESTAMP, whole numbers, FLOAT, DOUBLE, ARRAY<STRING> and STRUCT of these"


def attributes_of(name: str, kind: DataType) -> list[str]:
    """The attributes that a column is made of. Raises InvalidConfiguration with the name of the column or member that
    cannot be one."""
    if isinstance(kind, StructType) and kind.fields:
        return [
            each for field in kind.fields for each in attributes_of(f"{name}.{field.name}", field.dataType)
        ]
    if isinstance(kind, _PLAIN) or (isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)):
        return [name]
    raise InvalidConfiguration(
        f"column {name}: an event cannot hold the type {kind.simpleString().upper()}; supported are {_SUPPORTED}",
        field=name,
    )
