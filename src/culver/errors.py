"""Every error that Culver raises on purpose.

    CulverError
    ├── InvalidInput            what the caller sent cannot be understood
    │   ├── InvalidEvent
    │   ├── InvalidFilter
    │   ├── InvalidRequest
    │   └── InvalidConfiguration
    ├── LimitExceeded           a setting bounds it
    │   ├── TooLarge
    │   ├── TooManySubscriptions
    │   └── RateLimited
    ├── NotFound
    ├── Conflict
    ├── Elsewhere               another gateway of the site has it
    ├── StorageError
    │   ├── StorageFull
    │   └── StorageCorrupt
    ├── Unavailable
    └── ClientError             raised by the Python client only
        ├── ConnectionFailed
        └── RequestRefused

An error carries a stable `code` for programs, a sentence that tells a person what to do, the `field` it
is about where there is one, `details` for machines, and whether a retry can help.
"""

from typing import Any, ClassVar


class CulverError(Exception):
    """The root: catch this to catch everything that Culver raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, field: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.details = details


class InvalidInput(CulverError):
    """What the caller sent cannot be understood; sending it again cannot help."""

    code = "invalid_input"


class InvalidEvent(InvalidInput):
    """An event breaks the value rules; `field` names the attribute."""

    code = "invalid_event"


class InvalidFilter(InvalidInput):
    """A filter does not parse, mixes types, or is too complex. `details` may hold `position` (from 0),
    `line`, `column` and `expected` (a list of phrases)."""

    code = "invalid_filter"


class InvalidRequest(InvalidInput):
    """A request's parameter, header, body or message has the wrong form; `field` names it."""

    code = "invalid_request"


class InvalidConfiguration(InvalidInput):
    """A setting is unknown or has an impossible value; `field` names it as section.name."""

    code = "invalid_configuration"


class LimitExceeded(CulverError):
    """A limit among the settings is exceeded; `field` names what was limited, `details` holds `limit`."""

    code = "limit_exceeded"


class TooLarge(LimitExceeded):
    """A body, event, batch or message is larger than its limit."""

    code = "too_large"


class TooManySubscriptions(LimitExceeded):
    """The site holds as many subscriptions as its settings allow."""

    code = "too_many_subscriptions"


class RateLimited(LimitExceeded):
    """The client sends faster than its limit; `details` holds `retry_after_seconds`."""

    code = "rate_limited"
    retryable = True


class NotFound(CulverError):
    """The subscription, page or version that was asked for does not exist."""

    code = "not_found"


class Conflict(CulverError):
    """The request contradicts what exists, such as a subscription id that is taken."""

    code = "conflict"


class Elsewhere(CulverError):
    """Another gateway of the site has the subscription; `details` holds its `url`."""

    code = "elsewhere"


class StorageError(CulverError):
    """The disk refused an operation."""

    code = "storage_error"
    retryable = True


class StorageFull(StorageError):
    """The disk is full; nothing of the request was acknowledged and nothing of it stays."""

    code = "storage_full"


class StorageCorrupt(StorageError):
    """A file fails its checksum or has an unknown format; the message names the file and the way back."""

    code = "storage_corrupt"
    retryable = False


class Unavailable(CulverError):
    """The site is starting or stopping."""

    code = "unavailable"
    retryable = True


class ClientError(CulverError):
    """Raised by the Python client only."""

    code = "client_error"


class ConnectionFailed(ClientError):
    """The server cannot be reached, or the connection was lost before an answer came. Whether a
    publication in flight was stored is then unknown."""

    code = "connection_failed"
    retryable = True


class RequestRefused(ClientError):
    """The server answered with a problem document; `details` holds its `code`, `status` and members."""

    code = "request_refused"
