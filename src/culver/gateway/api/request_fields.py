"""Strict reading of JSON objects and query strings: an unknown name or a wrong type is refused by name."""

import math
import re
from collections.abc import Collection
from typing import Any

from starlette.datastructures import QueryParams

from culver.delivery import parse_delivery_id
from culver.errors import CulverError, InvalidEvent, InvalidRequest
from culver.model.formats import strict_json

MAX_OFFSET = 2**63 - 1
REQUEST_DEPTH = 8
WHOLE_BODY = "body"
_SUBSCRIPTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


def parse_json(body: bytes | str, max_depth: int = REQUEST_DEPTH, event_member: str | None = None) -> Any:
    """JSON of a request: as strict as an event's, but what is wrong with it is an InvalidRequest, except
    within the member that holds events."""
    try:
        return strict_json(body, max_depth)
    except InvalidEvent as exc:
        if event_member and exc.field and re.match(rf"{event_member}([.\[]|$)", exc.field):
            raise
        raise InvalidRequest(exc.message, field=exc.field or WHOLE_BODY, **exc.details) from exc


def prefixed(error: CulverError, prefix: str) -> CulverError:
    """The same error with its field inside `prefix`: `[3]` and `price` give `[3].price`."""
    field = error.field
    if not field or field == WHOLE_BODY:
        field = prefix
    elif field.startswith("["):
        field = prefix + field
    else:
        field = f"{prefix}.{field}"
    return type(error)(error.message, field=field, **error.details)


def check_subscription_id(text: str, field: str = "id") -> str:
    if not _SUBSCRIPTION_ID.fullmatch(text):
        raise InvalidRequest(
            "a subscription id is 1 to 128 letters, digits and . _ ~ -, and begins with a letter or digit",
            field=field,
        )
    return text


def check_delivery_id(text: str, field: str = "delivery_id") -> tuple[str, int]:
    """(subscription, offset) of a delivery id."""
    parsed = parse_delivery_id(text)
    if parsed is None or parsed[1] > MAX_OFFSET or not _SUBSCRIPTION_ID.fullmatch(parsed[0]):
        raise InvalidRequest(f"{text[:100]!r} is not a delivery id, which looks like alerts:17", field=field)
    return parsed


def offset_within(subscription: str, text: str, field: str) -> int:
    """The offset of a delivery id, which must be one of `subscription`."""
    owner, offset = check_delivery_id(text, field)
    if owner != subscription:
        raise InvalidRequest(
            f"delivery {text!r} does not belong to subscription {subscription!r}", field=field
        )
    return offset


class Fields:
    """One JSON object, read member by member; `close` refuses what was not asked for."""

    def __init__(self, value: Any, name: str = "") -> None:
        if not isinstance(value, dict):
            raise InvalidRequest(f"{name or 'the body'} must be a JSON object", field=name or WHOLE_BODY)
        self._members: dict[str, Any] = value
        self._name = name
        self._asked: set[str] = set()

    def path(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def any(self, name: str) -> Any:
        """The member, or None where it is missing or null."""
        self._asked.add(name)
        return self._members.get(name)

    def required(self, name: str) -> Any:
        value = self.any(name)
        if value is None:
            raise InvalidRequest(f"{self.path(name)} is missing", field=self.path(name))
        return value

    def text(self, name: str) -> str:
        return self._text(name, self.required(name))

    def optional_text(self, name: str) -> str | None:
        value = self.any(name)
        return None if value is None else self._text(name, value)

    def optional_integer(self, name: str, low: int, high: int) -> int | None:
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidRequest(
                f"{self.path(name)} must be a whole number from {low} to {high}", field=self.path(name)
            )
        return value

    def optional_number(self, name: str, above: float, high: float) -> float | None:
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= high:
            raise InvalidRequest(
                f"{self.path(name)} must be a number above {above:g} and at most {high:g}",
                field=self.path(name),
            )
        return float(value)

    def optional_object(self, name: str) -> "Fields | None":
        value = self.any(name)
        return None if value is None else Fields(value, self.path(name))

    def list(self, name: str) -> list[Any]:
        value = self.required(name)
        if not isinstance(value, list):
            raise InvalidRequest(f"{self.path(name)} must be an array", field=self.path(name))
        return value

    def close(self) -> None:
        """Refuse members that nothing asked for."""
        for name in self._members:
            if name not in self._asked:
                known = ", ".join(sorted(self._asked))
                raise InvalidRequest(
                    f"unknown member {name[:100]!r}; known here: {known}", field=self.path(name)
                )

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise InvalidRequest(f"{self.path(name)} must be a string", field=self.path(name))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                f"{self.path(name)} holds half of a surrogate pair", field=self.path(name)
            ) from None
        return value


class Query:
    """The query string; unknown and repeated parameters are refused."""

    def __init__(self, parameters: QueryParams, known: Collection[str]) -> None:
        self._values: dict[str, str] = {}
        for name, value in parameters.multi_items():
            if name not in known:
                raise InvalidRequest(
                    f"unknown parameter {name[:100]!r}; known here: {', '.join(sorted(known)) or 'none'}",
                    field=name,
                )
            if name in self._values:
                raise InvalidRequest(f"parameter {name!r} is given twice", field=name)
            self._values[name] = value

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def required(self, name: str) -> str:
        value = self._values.get(name)
        if value is None:
            raise InvalidRequest(f"parameter {name!r} is missing", field=name)
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        text = self._values.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 19 or not low <= int(text) <= high:
            raise InvalidRequest(f"{name} must be a whole number from {low} to {high}", field=name)
        return int(text)

    def seconds(self, name: str, default: float, cap: float) -> float:
        """A number of seconds from 0; what is more than `cap` counts as `cap`."""
        text = self._values.get(name)
        if text is None:
            return min(default, cap)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not math.isfinite(value) or value < 0 or not text.isascii():
            raise InvalidRequest(f"{name} must be a number of seconds from 0", field=name)
        return min(value, cap)
