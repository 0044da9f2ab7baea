"""How far the dispatchers are with their routes, by their last reports."""

from culver.channels.core.channel_plan import MoveRoute, PlanEntry
from culver.channels.core.dispatcher_notes import ChannelVersion, DispatcherReport


class RouteProgress:
    """Remembers the last report of each server; a server without one is not believed to have done anything."""

    def __init__(self) -> None:
        self._applied: dict[int, frozenset[ChannelVersion]] = {}
        self._empty: dict[int, frozenset[ChannelVersion]] = {}
        self._quiet: dict[int, frozenset[ChannelVersion]] = {}

    def take(self, report: DispatcherReport) -> None:
        self._applied[report.server] = frozenset(report.applied)
        self._empty[report.server] = frozenset(report.empty)
        self._quiet[report.server] = frozenset(report.quiet)

    def forget(self, server: int) -> None:
        for reports in (self._applied, self._empty, self._quiet):
            reports.pop(server, None)

    def is_applied(self, route: MoveRoute) -> bool:
        """Whether all dispatchers of a route have applied it."""
        return all(self._has_applied(server, route) for server in route.servers)

    def is_empty(self, route: MoveRoute, old: PlanEntry) -> bool:
        """Whether an old entry of a route has no subscribers on any of its servers."""
        return self._all_say(self._empty, route, old)

    def is_quiet(self, route: MoveRoute, old: PlanEntry) -> bool:
        """Whether no publisher has obeyed an old entry of a route for a while."""
        return self._all_say(self._quiet, route, old)

    def _all_say(
        self, reports: dict[int, frozenset[ChannelVersion]], route: MoveRoute, old: PlanEntry
    ) -> bool:
        # A report that is older than the route says nothing about it.
        name = ChannelVersion(route.channel, old.version)
        return all(self._has_applied(server, route) and name in reports[server] for server in old.servers)

    def _has_applied(self, server: int, route: MoveRoute) -> bool:
        applied = self._applied.get(server, frozenset())
        return ChannelVersion(route.channel, route.current.version) in applied
