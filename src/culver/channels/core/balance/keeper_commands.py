"""The Redis commands that carry out what the keeper of the plan says, for the service and for the simulation."""

from itertools import groupby

import msgspec

from culver.channels.core.balance.keeper_instructions import (
    DeleteEntry,
    DeleteRoute,
    KeeperInstruction,
    PokeDispatcher,
    ReleaseServer,
    RewriteServer,
    WriteEntry,
    WriteRing,
    WriteRoute,
)
from culver.channels.core.channel_plan import MoveRoute, PlanEntry
from culver.channels.core.envelope import pack_entry, pack_ring
from culver.channels.core.instructions import Command
from culver.channels.core.reserved_names import (
    PLAN_KEY,
    PLAN_MARK,
    REPORT_KEY,
    RING_CHANNEL,
    RING_KEY,
    ROUTES_CHANNEL,
    ROUTES_KEY,
)


def stages_of(instructions: list[KeeperInstruction]) -> list[list[KeeperInstruction]]:
    """The parts of one list of instructions. Each is carried out on all its servers at once, and before the next one
    begins. Rings are parts of their own: a client that hears of a new home and finds no entry there takes the channel
    for one without an entry, so entries must be in place."""
    return [list(stage) for _, stage in groupby(instructions, lambda each: isinstance(each, WriteRing))]


def commands_of(instruction: KeeperInstruction, secret: bytes) -> list[Command]:
    """The commands for the instruction's server, in their order. Whoever releases a server sends none."""
    match instruction:
        case WriteRing(_, ring):
            signed = pack_ring(ring, secret)
            return [(b"SET", RING_KEY, signed), (b"PUBLISH", RING_CHANNEL, signed)]
        case WriteEntry(_, channel, entry):
            return [_write_entry(channel, entry, secret)]
        case DeleteEntry(_, channel):
            return [(b"HDEL", PLAN_KEY, channel)]
        case WriteRoute(_, route):
            return [_write_route(route)]
        case DeleteRoute(_, channel):
            return [(b"HDEL", ROUTES_KEY, channel)]
        case PokeDispatcher():
            return [(b"PUBLISH", ROUTES_CHANNEL, b"")]
        case RewriteServer(_, entries, routes):
            return [
                # Nobody may read a part of the plan: a channel without an entry is looked for at its home.
                (b"MULTI",),
                (b"DEL", PLAN_KEY, ROUTES_KEY, REPORT_KEY),
                (b"HSET", PLAN_KEY, PLAN_MARK, b"1"),
                *(_write_entry(channel, entry, secret) for channel, entry in entries.items()),
                *map(_write_route, routes),
                (b"EXEC",),
            ]
        case ReleaseServer():
            return []


def _write_entry(channel: bytes, entry: PlanEntry, secret: bytes) -> Command:
    return (b"HSET", PLAN_KEY, channel, pack_entry(channel, entry, secret))


def _write_route(route: MoveRoute) -> Command:
    return (b"HSET", ROUTES_KEY, route.channel, msgspec.msgpack.encode(route))
