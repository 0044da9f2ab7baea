"""Carries out moves of channels, and keeps the ring, the plan and the routes of all servers (Dynamoth, section IV).

    queued --> preparing --> active --> ended
                   |
                   +--> abandoned

A move is *prepared* when the route is written to every server of the old and the new entry; it becomes *active* when
all their dispatchers have applied it. Only then is the new entry written to the channel's home, and clients are told.
An old entry leaves the route when all its servers report that it is empty and quiet; a route without old entries is
deleted. A move that is not applied in time is abandoned, which is safe because nobody was told.

A server that is lost is taken out of every entry. The entry keeps its version: whoever knows it with the lost server
still meets everybody on the servers that are left.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

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
from culver.channels.core.balance.route_progress import RouteProgress
from culver.channels.core.balance.server_groups import Groups, servers_of, without
from culver.channels.core.channel_plan import MoveRoute, PlanEntry, Ring, ServerAddress
from culver.channels.core.dispatcher_notes import DispatcherReport
from culver.channels.core.local_plan import IDLE_SECONDS

#: Dispatchers must apply a route within this time.
PREPARE_SECONDS = 10.0

#: Moves that are prepared, or whose subscribers move, at the same time.
MOST_MOVES = 256

#: Old entries of one route; a channel that moves more often waits until some have ended. An entry ends 30 s after its
#: last use, so this is more than the balancer's pace needs.
_MOST_OLD_ENTRIES = 16

#: A dispatcher that missed a poke gets another.
_POKE_SECONDS = 5.0

#: Versions that are left out after a restart, in case the stored state was not the last.
_VERSIONS_LEFT_OUT = 1_000


class _State(msgspec.Struct):
    """What ``dump`` stores. ``unstoppable`` moves are prepared, but cannot be abandoned; entries of ``homing``
    channels are deleted when their move home has ended."""

    ring: Ring
    next_version: int
    entries: dict[bytes, PlanEntry]
    routes: dict[bytes, MoveRoute]
    queue: dict[bytes, Groups]
    leaving: set[int]
    unstoppable: set[bytes]
    homing: set[bytes]


class PlanKeeper:
    """The only writer of the plan. Every method returns what to do, in this order; time never goes back.

    Store ``dump()`` before carrying out instructions if ``changed``. A server to which something could not be written
    is down: tell so, and nothing need be repeated, because ``server_restarted`` writes everything again.
    """

    def __init__(self, ring: Ring, entries: Mapping[bytes, PlanEntry] | None = None) -> None:
        known = dict(entries or {})
        first = 1 + max((entry.version for entry in known.values()), default=0)
        self._state = _State(ring, first, known, {}, {}, set(), set(), set())
        self._down: set[int] = set()
        self._progress = RouteProgress()
        self._deadlines: dict[bytes, float] = {}
        self._left_homes_at: dict[int, float] = {}
        self._poked_at = 0.0
        self._out: list[KeeperInstruction] = []
        self._pokes: set[int] = set()
        #: Whether there is something that the last ``dump`` did not have.
        self.changed = True
        #: Moves that were given up because a dispatcher did not answer in time.
        self.abandoned = 0

    @classmethod
    def load(cls, data: bytes) -> "PlanKeeper":
        """The keeper that ``dump`` stored; call ``resume`` next.

        :raises msgspec.DecodeError: this is no state of a keeper.
        """
        state = msgspec.msgpack.decode(data, type=_State)
        keeper = cls(state.ring)
        state.next_version += _VERSIONS_LEFT_OUT
        state.ring = msgspec.structs.replace(state.ring, version=state.ring.version + _VERSIONS_LEFT_OUT)
        # The former keeper may have made them visible with its last breath.
        state.unstoppable |= {channel for channel, route in state.routes.items() if not route.active}
        keeper._state = state
        return keeper

    def dump(self) -> bytes:
        self.changed = False
        return msgspec.msgpack.encode(self._state)

    @property
    def ring(self) -> Ring:
        return self._state.ring

    @property
    def entries(self) -> Mapping[bytes, PlanEntry]:
        """The entries that clients see."""
        return self._state.entries

    @property
    def routes(self) -> Mapping[bytes, MoveRoute]:
        """Moves in progress: prepared ones are not active."""
        return self._state.routes

    @property
    def moving(self) -> set[bytes]:
        """Channels that should not be moved now: a move is queued or prepared, or their subscribers are moving."""
        return set(self._state.queue) | {
            channel for channel, route in self._state.routes.items() if _is_hot(route)
        }

    def resume(self, now: float) -> list[KeeperInstruction]:
        """Writes everything to all servers: call it first, for a new keeper and for one that was loaded."""
        self._rewrite(self.ring.numbers)
        self._write_ring(self.ring.numbers)
        return self._finish(now)

    def move(self, groups: Mapping[bytes, Groups], now: float) -> list[KeeperInstruction]:
        """Queues moves. A later wish for a channel replaces one that has not begun.

        A wish that names a server which is not in the ring, or which is to leave it, is ignored.
        """
        allowed = self.ring.numbers - self._state.leaving
        for channel, wanted in groups.items():
            if PlanEntry(0, wanted).servers <= allowed:
                self._state.homing.discard(channel)
                self._state.queue.pop(channel, None)
                self._state.queue[channel] = wanted
        self.changed = True
        return self._finish(now)

    def forget(self, channels: Iterable[bytes], now: float) -> list[KeeperInstruction]:
        """Moves idle channels to their homes and then deletes their entries, so that the plan does not grow for ever.

        Clients that know the last entry and those that know none meet at the home.
        """
        moving = self.moving
        for channel in channels:
            if channel in self._state.entries and channel not in moving:
                self._state.homing.add(channel)
                self._state.queue[channel] = self.ring.home_entry(channel).groups
                self.changed = True
        return self._finish(now)

    def report(self, report: DispatcherReport, now: float) -> list[KeeperInstruction]:
        if report.server in self.ring.numbers and report.server not in self._down:
            self._progress.take(report)
        return self._finish(now)

    def tick(self, now: float) -> list[KeeperInstruction]:
        """Call it about once a second."""
        if now >= self._poked_at + _POKE_SECONDS:
            self._poked_at = now
            for route in self._state.routes.values():
                self._pokes |= route.servers
        for server in sorted(self._state.leaving):
            self._let_go(server, now)
        return self._finish(now)

    def server_added(
        self, address: ServerAddress, now: float, *, home: bool = False
    ) -> list[KeeperInstruction]:
        """Takes a server into the ring. As a home it takes over channels without an entry, which are not forwarded:
        that is for the time before clients come."""
        before = self.ring
        homes = (*before.homes, address.number) if home or not before.homes else before.homes
        self._change_ring((*before.servers, address), homes)
        self._rewrite([address.number])
        self._write_entries_of_new_homes(before)
        self._write_ring(self.ring.numbers)
        return self._finish(now)

    def server_down(self, server: int, now: float) -> list[KeeperInstruction]:
        """Nothing can be written to the server for now, and its dispatcher is not believed."""
        if server in self.ring.numbers:
            self._down.add(server)
            self._progress.forget(server)
        return self._finish(now)

    def server_restarted(self, server: int, now: float) -> list[KeeperInstruction]:
        """The server is there again, and perhaps empty."""
        if server in self.ring.numbers:
            self._down.discard(server)
            self._progress.forget(server)
            self._rewrite([server])
            self._write_ring([server])
        return self._finish(now)

    def retire_server(self, server: int, now: float) -> list[KeeperInstruction]:
        """Lets a server go when no entry names it any more: first from the homes, later from the ring.

        Ignored for the last server.
        """
        if server in self.ring.numbers and self.ring.numbers - self._state.leaving - {server}:
            self._state.leaving.add(server)
            self._left_homes_at[server] = now
            for channel, wanted in list(self._state.queue.items()):
                if server in servers_of(wanted):
                    del self._state.queue[channel]
            self.changed = True
        return self._finish(now)

    def server_lost(self, server: int, now: float) -> list[KeeperInstruction]:
        """A server is gone for good: takes it out of the ring and of all entries. The last one counts as down."""
        before, state = self.ring, self._state
        if server not in before.numbers:
            return []
        if before.numbers == {server}:
            return self.server_down(server, now)
        self._forget_server(server)
        servers = tuple(address for address in before.servers if address.number != server)
        if state.leaving == before.numbers - {server}:
            # Those that were to leave are all there is.
            state.leaving.clear()
        self._change_ring(servers, self._homes_without(server, servers))
        for channel in list(state.queue):
            if server in servers_of(state.queue[channel]):
                del state.queue[channel]
        for channel in sorted({*state.entries, *state.routes}):
            self._take_from(channel, server, now)
        self._write_entries_of_new_homes(before)
        self._write_ring(self.ring.numbers)
        return self._finish(now)

    def _take_from(self, channel: bytes, server: int, now: float) -> None:
        state = self._state
        route = state.routes.get(channel)
        stoppable = route is not None and not route.active and channel not in state.unstoppable
        if route and stoppable and server in route.current.servers | route.previous[-1].servers:
            self._abandon(channel)
            if server not in route.current.servers:
                state.queue.setdefault(channel, route.current.groups)
            route = state.routes.get(channel)
        entry = state.entries.get(channel)
        rest = None if entry is None else _without(entry, server)
        if entry is not None and rest is not None and rest != entry:
            self._show(channel, rest)
        if entry is not None and rest is None:
            # Clients that ask in the meantime meet at the home.
            self._delete_entry(channel)
        if route is not None and server in route.servers:
            self._take_from_route(channel, route, server, now)
        elif entry is not None and rest is None:
            self._show(channel, self._new_entry(((self.ring.home(channel),),)))

    def _take_from_route(self, channel: bytes, route: MoveRoute, server: int, now: float) -> None:
        previous = [rest for entry in route.previous if (rest := _without(entry, server)) is not None]
        current = _without(route.current, server)
        active = route.active and current is not None
        if current is None:
            current = self._new_entry(((self.ring.home(channel),),))
            self._state.unstoppable.add(channel)
            self._deadlines[channel] = now + PREPARE_SECONDS
        if not active:
            seen = self._state.entries.get(channel) or self.ring.home_entry(channel)
            if seen not in previous and seen.groups != current.groups:
                previous.append(seen)
        if previous:
            # Version 0 may be another home by now, which is not empty.
            empty = tuple(version for version in route.empty if version)
            changed = msgspec.structs.replace(route, active=active, empty=empty)
            self._replace_route(channel, route, _with_previous(changed, current, tuple(previous)))
            return
        # Nobody follows another entry, so there is nothing to prepare.
        self._replace_route(channel, route, None)
        if self._state.entries.get(channel) != current:
            self._show(channel, current)

    def _forget_server(self, server: int) -> None:
        self._state.leaving.discard(server)
        self._left_homes_at.pop(server, None)
        self._down.discard(server)
        self._progress.forget(server)

    def _finish(self, now: float) -> list[KeeperInstruction]:
        """Takes every step that is possible now, and returns all instructions."""
        for channel, route in list(self._state.routes.items()):
            if route.active:
                self._end_old_entries(channel, route)
            elif self._progress.is_applied(route):
                self._activate(channel, route)
            elif now >= self._deadlines.setdefault(channel, now + PREPARE_SECONDS):
                self._give_up(channel, now)
        self._begin_moves(now)
        self._delete_entries_at_home()
        pokes = sorted(self._pokes & self.ring.numbers - self._down)
        out = self._out + [PokeDispatcher(server) for server in pokes]
        self._out, self._pokes = [], set()
        return out

    def _activate(self, channel: bytes, route: MoveRoute) -> None:
        self._deadlines.pop(channel, None)
        self._state.unstoppable.discard(channel)
        self._show(channel, route.current)
        self._replace_route(channel, route, msgspec.structs.replace(route, active=True))

    def _give_up(self, channel: bytes, now: float) -> None:
        if channel in self._state.unstoppable:
            self._deadlines[channel] = now + PREPARE_SECONDS
            return
        self.abandoned += 1
        self._abandon(channel)

    def _abandon(self, channel: bytes) -> None:
        """Returns to the route before, which ended with the last old entry."""
        route = self._state.routes[channel]
        self._deadlines.pop(channel, None)
        *older, last = route.previous
        restored = msgspec.structs.replace(_with_previous(route, last, tuple(older)), active=True)
        self._replace_route(channel, route, restored if older else None)

    def _end_old_entries(self, channel: bytes, route: MoveRoute) -> None:
        empty = set(route.empty)
        previous = []
        for entry in route.previous:
            if self._progress.is_empty(route, entry):
                empty.add(entry.version)
            if entry.version not in empty or not self._progress.is_quiet(route, entry):
                previous.append(entry)
        if len(previous) < len(route.previous) or len(empty) > len(route.empty):
            changed = msgspec.structs.replace(route, empty=tuple(sorted(empty)))
            changed = _with_previous(changed, route.current, tuple(previous))
            self._replace_route(channel, route, changed if previous else None)

    def _begin_moves(self, now: float) -> None:
        state = self._state
        if not state.queue:
            return
        room = MOST_MOVES - sum(map(_is_hot, state.routes.values()))
        for channel, wanted in list(state.queue.items()):
            if room <= 0:
                return
            old = state.entries.get(channel) or self.ring.home_entry(channel)
            route = state.routes.get(channel)
            if wanted == old.groups and (route is None or route.active):
                del state.queue[channel]
                self.changed = True
            elif self._begin(channel, old, route, wanted, now):
                room -= 1

    def _begin(
        self, channel: bytes, old: PlanEntry, route: MoveRoute | None, wanted: Groups, now: float
    ) -> bool:
        older = () if route is None else route.previous
        if route is not None and (_is_hot(route) or len(older) >= _MOST_OLD_ENTRIES):
            return False
        servers = PlanEntry(0, wanted).servers.union(*(entry.servers for entry in (*older, old)))
        if servers & self._down:
            return False
        del self._state.queue[channel]
        empty = () if route is None else route.empty
        new = MoveRoute(channel, self._new_entry(wanted), (*older, old), active=False, empty=empty)
        self._replace_route(channel, route, new)
        self._deadlines[channel] = now + PREPARE_SECONDS
        return True

    def _delete_entries_at_home(self) -> None:
        state = self._state
        for channel in sorted(state.homing.difference(state.routes, state.queue)):
            self.changed = True
            state.homing.discard(channel)
            entry, home = state.entries.get(channel), self.ring.home(channel)
            if entry is not None and entry.groups == ((home,),):
                self._delete_entry(channel)

    def _let_go(self, server: int, now: float) -> None:
        """Takes a server from the homes when no entry or move needs it, and from the ring when no client does."""
        state = self._state
        routes = state.routes.values()
        if any(server in entry.servers for entry in state.entries.values()):
            return
        if any(
            server in route.current.servers or not route.active for route in routes if server in route.servers
        ):
            return
        before = self.ring
        if server in before.homes:
            if any(
                before.home(channel) == server and channel not in state.entries for channel in state.queue
            ):
                return
            self._change_ring(before.servers, self._homes_without(server, before.servers))
            self._write_entries_of_new_homes(before)
            self._write_ring(self.ring.numbers)
            self._left_homes_at[server] = now
        since = self._left_homes_at.setdefault(server, now)
        if now >= since + IDLE_SECONDS and not any(server in route.servers for route in routes):
            servers = tuple(address for address in before.servers if address.number != server)
            self._change_ring(servers, self.ring.homes)
            self._write_ring(self.ring.numbers | {server})
            self._forget_server(server)
            self._out.append(ReleaseServer(server))

    def _new_entry(self, groups: Groups) -> PlanEntry:
        self.changed = True
        self._state.next_version += 1
        return PlanEntry(self._state.next_version - 1, groups)

    def _show(self, channel: bytes, entry: PlanEntry) -> None:
        self.changed = True
        self._state.entries[channel] = entry
        self._write(WriteEntry(self.ring.home(channel), channel, entry))

    def _delete_entry(self, channel: bytes) -> None:
        self.changed = True
        del self._state.entries[channel]
        self._write(DeleteEntry(self.ring.home(channel), channel))

    def _replace_route(self, channel: bytes, old: MoveRoute | None, new: MoveRoute | None) -> None:
        self.changed = True
        kept = frozenset[int]() if new is None else new.servers
        if new is None:
            self._state.routes.pop(channel, None)
            self._deadlines.pop(channel, None)
            self._state.unstoppable.discard(channel)
        else:
            self._state.routes[channel] = new
            for server in sorted(kept):
                self._write(WriteRoute(server, new))
        gone = frozenset[int]() if old is None else old.servers - kept
        for server in sorted(gone):
            self._write(DeleteRoute(server, channel))
        self._pokes |= kept | gone

    def _rewrite(self, servers: Iterable[int]) -> None:
        entries: dict[int, dict[bytes, PlanEntry]] = defaultdict(dict)
        for channel, entry in self._state.entries.items():
            entries[self.ring.home(channel)][channel] = entry
        for server in sorted(servers):
            routes = tuple(route for route in self._state.routes.values() if server in route.servers)
            self._write(RewriteServer(server, entries[server], routes))
            self._pokes.add(server)

    def _change_ring(self, servers: tuple[ServerAddress, ...], homes: tuple[int, ...]) -> None:
        self.changed = True
        self._state.ring = Ring(self.ring.version + 1, servers, homes)

    def _homes_without(self, server: int, servers: tuple[ServerAddress, ...]) -> tuple[int, ...]:
        """The other homes; without any, all servers that stay become homes."""
        rest = tuple(home for home in self.ring.homes if home != server)
        gone = self._state.leaving | {server}
        return rest or tuple(address.number for address in servers if address.number not in gone)

    def _write_entries_of_new_homes(self, before: Ring) -> None:
        """Entries are at their new homes before any client looks for them there."""
        if before.homes == self.ring.homes:
            return
        for channel, entry in self._state.entries.items():
            home = self.ring.home(channel)
            if not before.homes or before.home(channel) != home:
                self._write(WriteEntry(home, channel, entry))

    def _write_ring(self, servers: Iterable[int]) -> None:
        for server in sorted(servers):
            self._write(WriteRing(server, self.ring))

    def _write(self, instruction: KeeperInstruction) -> None:
        if instruction.server not in self._down:
            self._out.append(instruction)


def _is_hot(route: MoveRoute) -> bool:
    """Whether a move is prepared, or subscribers may still follow an old entry."""
    return not route.active or any(entry.version not in route.empty for entry in route.previous)


def _without(entry: PlanEntry, server: int) -> PlanEntry | None:
    """The same entry without a lost server; None if no server is left."""
    if server not in entry.servers:
        return entry
    rest = without(entry.groups, {server})
    return PlanEntry(entry.version, rest) if rest else None


def _with_previous(route: MoveRoute, current: PlanEntry, previous: tuple[PlanEntry, ...]) -> MoveRoute:
    versions = {entry.version for entry in previous}
    empty = tuple(version for version in route.empty if version in versions)
    return MoveRoute(route.channel, current, previous, route.active, empty)
