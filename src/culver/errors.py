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
    ├── Gone                    it was there, and is no longer kept
    ├── Conflict
    ├── Elsewhere               another gateway of the site has it
    ├── StorageError
    │   ├── StorageFull
    │   └── StorageCorrupt
    ├── Unavailable
    ├── ServerError             a Redis server of the channels cannot be used
    │   ├── ServerUnreachable
    │   ├── ServerBusy
    │   ├── ServerAccessDenied
    │   ├── ServerUnsuitable
    │   ├── ServerTlsFailed
    │   ├── ServerNotStarted
    │   └── CommandRefused
    └── ClientError             raised on the caller's own machine only
        ├── ConnectionFailed
        ├── DataLoss            a Spark query cannot have all of its events
        ├── MissingExtra        `pip install` left out what this needs
        └── RequestRefused

An error carries a stable `code` for programs, which is the name of its class (`not_found`), a sentence that tells a
person what to do, the `field` it is about where there is one, `details` for machines, and whether a retry can help.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar


class CulverError(Exception):
    """The root: catch this to catch everything that Culver raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str, *, field: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.details = details


class InvalidInput(CulverError):
    """What the caller sent cannot be understood; sending it again cannot help."""


class InvalidEvent(InvalidInput):
    """An event breaks the value rules; `field` names the attribute."""


class InvalidFilter(InvalidInput):
    """A filter does not parse, mixes types, or is too complex. `details` may hold `position` (from 0),
    `line`, `column` and `expected` (a list of phrases)."""


class InvalidRequest(InvalidInput):
    """A request's parameter, header, body or message has the wrong form; `field` names it."""


class InvalidConfiguration(InvalidInput):
    """A setting is unknown or has an impossible value; `field` names it as section.name."""


class LimitExceeded(CulverError):
    """A limit among the settings is exceeded; `field` names what was limited, `details` holds `limit`."""


class TooLarge(LimitExceeded):
    """A body, event, batch or message is larger than its limit."""


class TooManySubscriptions(LimitExceeded):
    """The site holds as many subscriptions as its settings allow."""


class RateLimited(LimitExceeded):
    """The client sends faster than its limit; `details` holds `retry_after_seconds`."""

    retryable = True


class NotFound(CulverError):
    """The subscription, page or version that was asked for does not exist."""


class Gone(CulverError):
    """The log no longer keeps the events that were asked for; `details` holds `first_offset`, where it begins."""


class Conflict(CulverError):
    """The request contradicts what exists, such as a subscription id that is taken."""


class Elsewhere(CulverError):
    """Another gateway of the site has the subscription; `details` holds its `url`."""


class StorageError(CulverError):
    """The disk refused an operation."""

    retryable = True


class StorageFull(StorageError):
    """The disk is full; nothing of the request was acknowledged and nothing of it stays."""


class StorageCorrupt(StorageError):
    """A file fails its checksum or has an unknown format; the message names the file and the way back."""

    retryable = False


class Unavailable(CulverError):
    """The site is starting or stopping."""

    retryable = True


class ServerError(CulverError):
    """A Redis server of the channels cannot be used; `details` holds its `url`, without a password."""


class ServerUnreachable(ServerError):
    """The server refuses connections, does not answer in time, or has closed the connection. Whether it has carried
    out the commands in flight is then unknown."""

    retryable = True


class ServerBusy(ServerError):
    """The server cannot carry out commands now: it loads, has no memory left, or has too many clients."""

    retryable = True


class ServerAccessDenied(ServerError):
    """The server wants a password, refuses the one that it got, or forbids the user a command or channel."""


class ServerUnsuitable(ServerError):
    """What answers is not a Redis server, or is one without RESP3."""


class ServerTlsFailed(ServerError):
    """No encrypted connection came about: a certificate is not trusted, or one side does not speak TLS."""


class ServerNotStarted(ServerError):
    """No server program is installed, or it ended before it was ready; the message says why."""


class CommandRefused(ServerError):
    """The server answered a command with an error that none of the other classes stands for."""


class ClientError(CulverError):
    """Raised on the caller's own machine only: by the Python client and the command line."""


class MissingExtra(ClientError, ImportError):
    """A command or function needs an extra of the package that is not installed; `details` holds its name as `extra`,
    and `missing_packages`. It is an ImportError too, as callers of optional packages expect."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, or the connection was lost before an answer came. Whether a
    publication in flight was stored is then unknown."""

    retryable = True


class DataLoss(ClientError):
    """Events that a Spark query should have read are missing: a mailbox dropped them, the log no longer has them, or
    somebody else acknowledged them."""


class RequestRefused(ClientError):
    """The server answered with a problem document; `details` holds its `code`, `status` and members."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them where none is near."""
    import difflib

    listed = list(known)
    near = difflib.get_close_matches(word, listed, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(listed)}"


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 event, 2 events."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
