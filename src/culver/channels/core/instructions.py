"""What a core asks its shell to do. A core never waits: it takes what happened and the time, and returns these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from culver.channels.core.envelope import Envelope
from culver.channels.core.message_order import LostMessages

#: A reply of a server, as the Redis protocol decodes it; an error reply is an exception.
Reply = object
Command = tuple[bytes, ...]


class ServerLink(StrEnum):
    """A client has at most these two connections to a server, so that a backlog of messages delays no publication."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


@dataclass(frozen=True, slots=True)
class Connect:
    """Open this link now; answer with ``connected`` or ``disconnected``."""

    server: int
    link: ServerLink


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close this link. No answer."""

    server: int
    link: ServerLink


@dataclass(frozen=True, slots=True)
class Send:
    """Send a command on an open link. Commands of a link are sent in the order of the instructions.

    ``then`` gets the reply and the time, and returns further instructions. It is not called for a command that a
    broken link leaves unanswered: ``disconnected`` says so for all of them.
    """

    server: int
    link: ServerLink
    command: Command
    then: "Callable[[Reply, float], list[Instruction]] | None" = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """A message for the application, by its channel, or by a pattern that it subscribed to. Data of a program that
    does not use this client has no envelope."""

    channel: bytes
    payload: bytes
    pattern: bytes | None = None
    envelope: Envelope | None = None


@dataclass(frozen=True, slots=True)
class ReportGap:
    """Messages were lost: the application must be told. With a pattern, its subscription misses them."""

    gap: LostMessages
    pattern: bytes | None = None


@dataclass(frozen=True, slots=True)
class Confirm:
    """A subscription has begun or ended: ``kind`` is Redis's own word, ``subscribe`` to ``punsubscribe``."""

    kind: str
    channel: bytes


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A server of these subscriptions is lost. Each is confirmed again when it is served again."""

    channels: list[bytes]
    patterns: list[bytes]


@dataclass(frozen=True, slots=True)
class RefuseSubscription:
    """A server refuses a subscription, for want of permission say, and it has ended."""

    channel: bytes
    is_pattern: bool
    error: Exception


@dataclass(frozen=True, slots=True)
class PublicationDone:
    """A publication has reached all its servers, which have sent it to so many subscribers; or it has failed."""

    token: int
    receivers: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class FetchRing:
    """Ask the service for the ring: no server that this client knows can tell it."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Something was ignored that should not happen: a forged switch, an entry of unknown servers."""

    text: str


Instruction = (
    Connect
    | Disconnect
    | Send
    | Deliver
    | ReportGap
    | Confirm
    | Interrupt
    | RefuseSubscription
    | PublicationDone
    | FetchRing
    | Warn
)


class Core(Protocol):
    """A client's or a dispatcher's core, as whoever carries out its instructions sees it."""

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]: ...

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]: ...

    def pushed(
        self, server: int, link: ServerLink, push: Sequence[bytes], now: float
    ) -> list[Instruction]: ...

    def tick(self, now: float) -> list[Instruction]: ...
