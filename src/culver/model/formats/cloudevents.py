"""CloudEvents 1.0: the JSON event format (structured) and the HTTP protocol binding's binary mode.

    structured   {"specversion": "1.0", "id": ..., "source": ..., "type": ..., EXTENSIONS, "data": ...}
    binary       ce-specversion: 1.0, ce-id: ..., ce-source: ..., ce-type: ..., and the data as the body

Context attributes go into the event's `context`, the fields of a JSON object in `data` into its `data`. Data of any
other form stays in the payload only. An event in binary mode becomes a structured one first, so that subscribers see
one form.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from culver.config import EventSettings
from culver.errors import InvalidEvent
from culver.model.event import Event
from culver.model.formats.attributes import collect_attributes, make_event, text_value, timestamp_value
from culver.model.formats.json_text import (
    LARGEST_INTEGER,
    SMALLEST_INTEGER,
    check_value,
    decode_text,
    integer_too_large,
    read_value,
    refuse_repeated,
    show,
)
from culver.model.formats.media_types import MediaType, parse_media_type
from culver.model.values import Value

HEADER_PREFIX = "ce-"

_VERSION = "1.0"
_REQUIRED = ("specversion", "id", "source", "type")
_TEXTS = frozenset({"specversion", "id", "source", "type", "subject", "dataschema", "datacontenttype"})
_DATA = frozenset({"data", "data_base64"})
_NAME = re.compile(r"[a-z0-9]+\Z")
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)


def structured_event(document: dict[str, Any], settings: EventSettings) -> Event:
    """The event of a JSON object in CloudEvents' JSON format. Raises InvalidEvent and TooLarge."""
    refuse_repeated(document, "")
    for name in _REQUIRED:
        if document.get(name) is None:
            raise InvalidEvent(f"the CloudEvents attribute {name!r} is missing", field=name)
    if document["specversion"] != _VERSION:
        raise InvalidEvent('specversion must be the text "1.0"', field="specversion")
    context: dict[str, Value] = {}
    for name, value in document.items():
        if name not in _DATA and value is not None:
            context[name] = _context_value(name, value, settings)
    data = _data_attributes(document, settings)
    return make_event(context, data, document, settings)


def binary_document(content_type: str | None, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The structured form, unchecked, of an HTTP message in binary mode; header names are in lower case. Raises
    InvalidEvent where a header, or the JSON of the body, cannot be read."""
    document: dict[str, Any] = {}
    for header, value in headers.items():
        if not header.startswith(HEADER_PREFIX):
            continue
        name = header[len(HEADER_PREFIX) :]
        if name == "datacontenttype" or name in _DATA:
            raise InvalidEvent(
                f"the header {show(header)} is not allowed: the content type and the body say it", field=name
            )
        document[name] = decode_header(name, value)
    if content_type is not None:
        document["datacontenttype"] = content_type
    if body:
        member, data = _binary_data(parse_media_type(content_type), body)
        document[member] = data
    return document


def decode_header(name: str, value: str) -> str:
    """The text of a `ce-` header without quotes, percent-decoded once (HTTP binding, 3.1.3.2)."""
    text = value.strip(" \t")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = _QUOTED_PAIR.sub(r"\1", text[1:-1])
    try:
        # Servers pass the bytes of headers as Latin-1; other callers may pass real characters.
        raw = text.encode("latin-1")
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "surrogatepass")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidEvent(
            f"the header ce-{show(name)} is not percent-encoded UTF-8", field=show(name)
        ) from None


def _context_value(name: str, value: Any, settings: EventSettings) -> Value:
    if not _NAME.match(name):
        raise InvalidEvent(
            f"{show(name)!r} cannot name a CloudEvents attribute: only a-z and 0-9 can; "
            "put the event's own fields into data",
            field=show(name),
        )
    if len(name) > settings.max_name_length:
        raise InvalidEvent(
            f"the name {show(name)!r} is longer than {settings.max_name_length} characters",
            field=show(name),
            limit=settings.max_name_length,
        )
    if name == "time":
        return timestamp_value(value, name)
    if name in _TEXTS:
        if not isinstance(value, str) or not value:
            raise InvalidEvent(f"the CloudEvents attribute {name!r} must be a text, not empty", field=name)
        return text_value(value, name)
    if isinstance(value, str):
        return text_value(value, name)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise integer_too_large(name)
        return value
    raise InvalidEvent(
        f"the CloudEvents attribute {show(name)!r} must be a text, a boolean or an integer; "
        "put anything else into data",
        field=show(name),
    )


def _data_attributes(document: dict[str, Any], settings: EventSettings) -> dict[str, Value]:
    data, encoded = document.get("data"), document.get("data_base64")
    if data is not None and encoded is not None:
        raise InvalidEvent("an event has data or data_base64, not both", field="data_base64")
    if encoded is not None:
        try:
            base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidEvent("data_base64 must be a Base64 text", field="data_base64") from None
    if isinstance(data, dict):
        return collect_attributes(data, settings, depth=2, label="data.")
    check_value(data, "data", 2, settings.max_depth)
    return {}


def _binary_data(media: MediaType, body: bytes) -> tuple[str, Any]:
    """The member of the structured form that holds the body, and its value."""
    if media.is_json and media.is_utf8:
        return "data", read_value(decode_text(body))
    if media.is_text and media.is_utf8:
        try:
            return "data", body.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return "data_base64", base64.b64encode(body).decode("ascii")
