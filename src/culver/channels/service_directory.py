"""What the service tells a client that comes: ``GET {url}/v1/channels/servers``."""

import base64
import binascii
from urllib.parse import urlsplit

import httpx
import msgspec

from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.errors import ConnectionFailed, InvalidRequest, RequestRefused

DEFAULT_URL = "http://127.0.0.1:8500"
URL_VARIABLE = "CULVER_CHANNELS_URL"
DIRECTORY_PATH = "/v1/channels/servers"
_FETCH_SECONDS = 5.0


class ServiceDirectory(msgspec.Struct, frozen=True):
    """The servers, and the secret that signs later changes, in base64."""

    version: int
    servers: list[ServerAddress]
    homes: list[int]
    secret: str

    def ring(self) -> Ring:
        return Ring(self.version, tuple(self.servers), tuple(self.homes))

    def signing_secret(self) -> bytes:
        return base64.b64decode(self.secret, validate=True)


def parse_service_url(url: str) -> str:
    """The URL without a slash at its end.

    :raises InvalidRequest: the URL is not one of HTTP.
    """
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}", field="url") from error
    if parts.scheme in ("redis", "rediss", "unix"):
        raise InvalidRequest(
            "the URL of a single Redis server was given; write the one that `culver channels serve` prints, "
            f"such as {DEFAULT_URL}",
            field="url",
        )
    if not valid or parts.query or parts.fragment:
        raise InvalidRequest(
            f"{url!r} is not the address of a channel service; write it as {DEFAULT_URL}", field="url"
        )
    return url.strip().rstrip("/")


async def fetch_directory(url: str) -> ServiceDirectory:
    """
    :raises ConnectionFailed: no service answers, or it is not ready.
    :raises RequestRefused: something else answers at this address.
    """
    try:
        async with httpx.AsyncClient(timeout=_FETCH_SECONDS) as http:
            answer = await http.get(f"{url}{DIRECTORY_PATH}")
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailed(
            f"no channel service answers at {url} ({reason}); start one with `culver channels serve`"
        ) from error
    if answer.status_code >= 500:
        raise ConnectionFailed(f"the service at {url} is not ready (HTTP {answer.status_code}); try again")
    if answer.status_code != 200:
        raise _not_a_service(url, f"it answers with HTTP {answer.status_code}", answer.status_code)
    try:
        directory = msgspec.json.decode(answer.content, type=ServiceDirectory)
        directory.signing_secret()
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError) as error:
        raise _not_a_service(url, f"its answer cannot be read: {error}", 200) from error
    if not directory.homes or not {*directory.homes} <= {server.number for server in directory.servers}:
        raise ConnectionFailed(f"the service at {url} has no servers yet; try again")
    return directory


def _not_a_service(url: str, reason: str, status: int) -> RequestRefused:
    return RequestRefused(
        f"what answers at {url} is not a channel service: {reason}", field="url", status=status
    )
