"""Values of Python programs as JSON has them: timestamps, dates, decimals, and the types of NumPy and Spark.

    datetime         {"$timestamp": ...}; a naive one is refused
    date             its ISO text
    Decimal          an integer or the nearest real; refused where the real has fewer digits
    NumPy            a scalar as its Python value, an array as a list
    Row (Spark)      an object

The values of NumPy and Spark are known by what they offer, so that nothing here imports those libraries.
"""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from culver.errors import InvalidEvent


def plain_value(value: Any, path: str) -> Any:
    """The value as JSON has it, checked by the rules for values. Raises InvalidEvent with the path."""
    if isinstance(value, str):
        if not value.isascii():
            _refuse_surrogates(value, path)
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidEvent(f"{path} is an integer beyond 64 bit", field=path)
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidEvent(f"{path} is {value}, which an event cannot hold", field=path)
        return float(value)
    if isinstance(value, Mapping):
        return {
            _name(key, path): plain_value(inner, f"{path}.{key}" if path else str(key))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        fields = without_row(value)
        if isinstance(fields, dict):
            return plain_value(fields, path)
        return [plain_value(inner, f"{path}[{index}]") for index, inner in enumerate(value)]
    if isinstance(value, datetime):
        return encode_timestamp(value, path)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain_decimal(value, path)
    if type(value).__module__ == "numpy":
        return _plain_numpy(value, path)
    raise InvalidEvent(f"{path} is of type {type(value).__name__}, which an event cannot hold", field=path)


def _plain_decimal(value: Decimal, path: str) -> int | float:
    """An integer where the decimal is written as one, otherwise the real whose shortest text is the decimal."""
    if not value.is_finite():
        raise InvalidEvent(f"{path} is {value}, which an event cannot hold", field=path)
    if int(value.as_tuple().exponent) >= 0 and value.adjusted() < 20:
        whole: int = plain_value(int(value), path)
        return whole
    real = float(value)
    if Decimal(repr(real)) != value:
        raise InvalidEvent(
            f"{path}: the decimal {value} has more digits than a 64-bit real; make it a float or a str",
            field=path,
        )
    return real


def _plain_numpy(value: Any, path: str) -> Any:
    """The value of a NumPy scalar, or the list of an array. NumPy's moments have no time zone."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    plain = value.tolist() if kind and kind not in "mM" else value
    if type(plain).__module__ == "numpy":
        what = f"{path} is of type numpy.{type(value).__name__}, which an event cannot hold"
        advice = "; make it a datetime with a time zone" if kind == "M" else ""
        raise InvalidEvent(what + advice, field=path)
    return plain_value(plain, path)


def without_row(value: Any) -> Any:
    """The fields of a Row of Spark, and anything else as it is."""
    is_row = isinstance(value, tuple) and hasattr(value, "asDict") and hasattr(value, "__fields__")
    return value.asDict() if is_row else value


def _name(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidEvent(f"{path or 'the event'} has a name that is not text: {key!r}", field=path or None)
    if not key.isascii():
        _refuse_surrogates(key, path)
    return key


def _refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"{path or 'a name'} has half a character (a lone surrogate)", field=path or None
        ) from None


def encode_timestamp(moment: datetime, path: str) -> dict[str, str]:
    """The JSON form of a timestamp; a naive one names no moment and is refused."""
    try:
        offset = moment.utcoffset()
    except ValueError:  # NaT of pandas is a datetime
        raise InvalidEvent(f"{path} is {moment}, which an event cannot hold", field=path) from None
    if offset is None:
        raise InvalidEvent(
            f"{path}: the timestamp {moment.isoformat()} has no time zone; use .replace(tzinfo=UTC) where it is in "
            "UTC, and .astimezone() where it is in local time, as those of Spark are",
            field=path,
        )
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent(
            f"{path}: a timestamp must lie in the years 0001 to 9999 of UTC", field=path
        ) from None
    return {"$timestamp": moment.isoformat().replace("+00:00", "Z")}
