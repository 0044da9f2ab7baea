"""How many clusters the sites form for the events of one origin (section 3.2 of the paper).

The parts of the event space are the origins: each has a clustering of its own, and an event uses that of the site
where it was published. So all events of an origin travel alike, and stay in their order.

    paris    4 clusters    few want what is published there: it goes to few carriers
    lyon    16 clusters    most want it: it goes nearly everywhere, from many carriers

An origin tells everybody its number in its link state. A member claims the cluster that the layout with that number
gives it. Cluster 2 of paris and cluster 2 of lyon have nothing to do with one another.

    publications   those of all origins are counted, from their link states
    subscriptions  new versions of claims here; every change of a predicate is claimed at every origin
    ratio          carriers report how many members take an event

A predicate serves the events of all origins, and is told to the others of a cluster once for all of them. So an
origin counts as much of the subscriptions as it has of all publications. Without that, a hundred origins would each
weigh their own few events against all subscriptions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from culver.overlay.clusters.layout.cluster_count import MeasuredTraffic, revise, usual_count, usual_power
from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.core.overlay_messages import LinkState

_FADING = 0.5
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class MeasuringSettings:
    """The number is revised by a `rule` every so often, once there were so many publications."""

    revision_seconds: float = 600.0
    least_publications: int = 100
    rule: Callable[[int, MeasuredTraffic], int] = revise


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`clusters` is how many clusters there are for this site's events; 0 stands for about the square root of the
    number of sites. With `measuring`, measured traffic decides instead."""

    clusters: int = 0
    most_sites: int = 1024
    load: LoadSettings = field(default_factory=LoadSettings)
    measuring: MeasuringSettings | None = None


class OriginClustering:
    """The number of clusters of this site's own events. `position` is the end of its log when it starts."""

    def __init__(self, own: str, settings: ClusterSettings, position: int) -> None:
        self._own = own
        self._measuring = settings.measuring
        self.count = 0 if settings.measuring is not None else settings.clusters
        """The number that the link state tells; 0 stands for about the square root of the number of sites."""
        self.published = 0
        """The events of this run that somebody may want."""
        self.measured: MeasuredTraffic | None = None
        """The traffic that the last revision rests on."""
        self._is_restored = False
        self._offered = position
        self._revised_at = _NEVER
        self._heard: dict[str, tuple[int, int]] = {}
        self._changes = 0
        # Half of what was counted up to a revision still counts at the next one.
        self._own_published = self._all_published = self._subscribed = 0.0

    @property
    def told(self) -> tuple[int, int]:
        """The number and the publications, as the link state tells them."""
        return self.count, self.published

    def restore(self, count: int) -> None:
        """Go on with the number of an earlier run."""
        if self._measuring is not None:
            self.count, self._is_restored = count, count > 0

    def offered(self, offsets: Iterable[int]) -> None:
        """A mailbox offers events, ascending. What it offers again, or what another one has offered, is known."""
        for offset in offsets:
            if offset >= self._offered:
                self._offered = offset + 1
                self.published += 1

    def look(
        self, states: Mapping[str, LinkState], sites: int, changes: int, taken: float, now: float
    ) -> bool:
        """Revise the number now and then; returns whether it is another one. `sites` are known, `changes` counts new
        versions of claims, and `taken` is how many members take an event on average."""
        if self._measuring is None or now - self._revised_at < self._measuring.revision_seconds:
            return False
        is_first, self._revised_at = self._revised_at == _NEVER, now
        own, everybody = self._newly_published(states)
        subscriptions, self._changes = changes - self._changes, changes
        if is_first:
            return False
        self._own_published = own + self._own_published * _FADING
        self._all_published = everybody + self._all_published * _FADING
        self._subscribed = subscriptions + self._subscribed * _FADING
        before, self.count = self.count, self._next(self._measuring, sites, taken)
        return self.count != before

    def _next(self, measuring: MeasuringSettings, sites: int, taken: float) -> int:
        if self._own_published < max(1, measuring.least_publications):
            # Too little is known of who wants its events. What was measured before a quiet night still holds.
            is_known = self.measured is not None or self._is_restored
            return self.count if is_known else usual_power(self.count, sites)
        share = self._own_published / self._all_published
        ratio = min(1.0, taken / max(1, sites - 1))
        self.measured = MeasuredTraffic(self._own_published, self._subscribed * share, ratio, sites)
        return measuring.rule(self.count or usual_count(sites), self.measured)

    def _newly_published(self, states: Mapping[str, LinkState]) -> tuple[int, int]:
        """What this site, and all sites, have published since the last call. A site that was not known then counts
        from now on."""
        counts = {site: (state.run, state.published) for site, state in states.items()}
        counts[self._own] = states[self._own].run, self.published
        new = {}
        for site, (run, published) in counts.items():
            heard_run, heard = self._heard.get(site, (run, published))
            new[site] = published - heard if run == heard_run and published >= heard else published
        self._heard = counts
        return new[self._own], sum(new.values())
