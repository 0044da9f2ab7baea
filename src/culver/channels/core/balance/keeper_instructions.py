"""What the keeper of the plan asks its shell to do, in the order of the list."""

from dataclasses import dataclass

from culver.channels.core.channel_plan import MoveRoute, PlanEntry, Ring


@dataclass(frozen=True, slots=True)
class WriteRing:
    """Store the ring on a server and publish it there."""

    server: int
    ring: Ring


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """Store the entry of a channel on a server, the channel's home. From now on clients see it."""

    server: int
    channel: bytes
    entry: PlanEntry


@dataclass(frozen=True, slots=True)
class DeleteEntry:
    """Delete the entry of a channel at its home, where the channel is served by now."""

    server: int
    channel: bytes


@dataclass(frozen=True, slots=True)
class WriteRoute:
    """Store a route for the dispatcher of a server."""

    server: int
    route: MoveRoute


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    server: int
    channel: bytes


@dataclass(frozen=True, slots=True)
class RewriteServer:
    """Replace everything but the ring that a server stores: it may be empty, or have things from the past. The last
    report of the server's dispatcher is deleted too."""

    server: int
    entries: dict[bytes, PlanEntry]
    routes: tuple[MoveRoute, ...]


@dataclass(frozen=True, slots=True)
class PokeDispatcher:
    """Tell the dispatcher of a server to read its routes."""

    server: int


@dataclass(frozen=True, slots=True)
class ReleaseServer:
    """Nobody uses this server any more: it can be stopped."""

    server: int


KeeperInstruction = (
    WriteRing
    | WriteEntry
    | DeleteEntry
    | WriteRoute
    | DeleteRoute
    | RewriteServer
    | PokeDispatcher
    | ReleaseServer
)
