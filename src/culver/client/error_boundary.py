"""The one place where errors of the transport libraries become Culver's.

The libraries are imported here only inside the functions: importing them takes longer than importing the
whole client.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from culver.errors import ConnectionFailed, InvalidRequest, RequestRefused


@contextlib.contextmanager
def socket_errors(url: str) -> Iterator[None]:
    """Inside, a WebSocket or operating system error is raised as ConnectionFailed."""
    from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

    try:
        yield
    except ConnectionClosed as exc:
        raise ConnectionFailed(f"the connection to {url} was lost: {_close_reason(exc)}", url=url) from exc
    except InvalidStatus as exc:
        status = exc.response.status_code
        raise ConnectionFailed(
            f"{url} answered {status} instead of opening a WebSocket; is it a Culver site?",
            url=url,
            status=status,
        ) from exc
    except InvalidURI as exc:
        raise InvalidRequest(f"{url} is not the address of a site", field="url") from exc
    except TimeoutError as exc:
        raise ConnectionFailed(f"{url} did not answer in time", url=url) from exc
    except (OSError, EOFError, WebSocketException) as exc:
        raise ConnectionFailed(f"cannot connect to {url}: {_reason(exc)}", url=url) from exc


@contextlib.contextmanager
def http_errors(url: str) -> Iterator[None]:
    """Inside, an HTTP library or operating system error is raised as ConnectionFailed."""
    import httpx

    try:
        yield
    except httpx.TimeoutException as exc:
        raise ConnectionFailed(f"{url} did not answer in time", url=url) from exc
    except (httpx.HTTPError, OSError) as exc:
        raise ConnectionFailed(f"cannot connect to {url}: {_reason(exc)}", url=url) from exc
    except httpx.InvalidURL as exc:
        raise InvalidRequest(f"{url} is not the address of a site: {exc}", field="url") from exc


def is_unsent(error: Exception) -> bool:
    """Whether an error of the HTTP library says that there was not even a connection."""
    import httpx

    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL)


def encode_message(message: msgspec.Struct) -> bytes:
    """A request as JSON. Raises InvalidRequest where JSON has no form for what the caller gave."""
    try:
        return msgspec.json.encode(message)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as exc:
        raise InvalidRequest(f"the request cannot be sent: {exc}") from exc


def refusal(problem: Mapping[str, Any], status: int | None = None) -> RequestRefused:
    """The error for a problem document; all of its members stay within reach in `details`."""
    members = {
        name: value
        for name, value in problem.items()
        if name not in ("op", "ref", "field", "message", "self")
    }
    if status is not None:
        members.setdefault("status", status)
    sentence = problem.get("detail") or problem.get("title") or "the site refused the request"
    field = problem.get("field")
    return RequestRefused(str(sentence), field=field if isinstance(field, str) else None, **members)


def _close_reason(exc: Any) -> str:
    frame = exc.rcvd
    if frame is None:
        return "the network or the site broke it off"
    if frame.code == 1012:
        return "the site is stopping"
    return f"closed by the site with code {frame.code}" + (f" ({frame.reason})" if frame.reason else "")


def _reason(exc: BaseException) -> str:
    """The most telling sentence: libraries wrap what the operating system said, sometimes several deep."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return "connection refused" if isinstance(cause, ConnectionRefusedError) else cause.strerror
        cause = cause.__cause__ or cause.__context__
    if "refused" in str(exc) or "all connection attempts failed" in str(exc).lower():
        return "connection refused"
    return str(exc) or type(exc).__name__
