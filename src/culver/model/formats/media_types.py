"""Parses media types: the format of a body, and its character set."""

from dataclasses import dataclass

from culver.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class MediaType:
    """`name`, without parameters, and `charset` are in lower case."""

    name: str
    charset: str | None = None

    @property
    def is_json(self) -> bool:
        return self.name in ("application/json", "text/json") or self.name.endswith("+json")

    @property
    def is_text(self) -> bool:
        return self.name.startswith("text/") or self.name == "application/xml" or self.name.endswith("+xml")

    @property
    def is_utf8(self) -> bool:
        return self.charset in (None, "utf-8", "utf8", "us-ascii", "ascii")


def parse_media_type(content_type: str | None) -> MediaType:
    """The media type of a Content-Type header; JSON without one. Never raises: a value without sense gives a name
    that nobody knows."""
    if content_type is None or not content_type.strip():
        return MediaType("application/json")
    name, *parameters = content_type.split(";")
    charset = None
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return MediaType(name.strip().lower(), charset)


def unsupported(message: str) -> InvalidRequest:
    return InvalidRequest(message, field="content-type", status=415)
