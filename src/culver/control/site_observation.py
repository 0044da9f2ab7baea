"""A whole site at one moment, as plain records: what `/v1/pipeline` answers, and what rates are worked out from.

Counters only grow while a site runs, and begin at 0 with it. `site_rates` compares two observations.
"""

from dataclasses import dataclass

from culver.pipeline import EngineObservation


@dataclass(frozen=True, slots=True)
class SiteQueues:
    """Events on their way, by what they wait for, and deliveries at its end."""

    commit: int = 0  # for the group commit
    index: int = 0  # in the log, for an index version with the registrations that take effect before them
    match: int = 0
    accept: int = 0  # matched, for a range before them
    mailboxes: int = 0  # deliveries, to be acknowledged


@dataclass(frozen=True, slots=True)
class IndexSlice:
    slice: int
    registrations: int
    bytes: int  # of its compiled arrays


@dataclass(frozen=True, slots=True)
class IndexScheme:
    """What the index holds of one filtering scheme; a registration counts in each slice that it is in."""

    scheme: str
    registrations: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlacementInfo:
    name: str = "replicated"
    slices: int = 1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GatewayInfo:
    """One of a site's gateways; number 0 is in the site's own process."""

    number: int
    port: int
    state: str
    subscriptions: int  # of its share
    sessions: int  # that are connected to it


@dataclass(frozen=True, slots=True)
class SiteObservation:
    """A whole site at one moment."""

    engine: str
    state: str
    ready: bool
    uptime_seconds: float
    log_next_offset: int
    subscriptions: int
    placement: PlacementInfo
    queues: SiteQueues
    index: tuple[IndexSlice, ...]
    pipeline: EngineObservation
    schemes: tuple[IndexScheme, ...] = ()  # that have segments in the index, by name
    deliveries_sent: int = 0  # by all gateways; each knows its own, and adds it where it tells this
    gateways: tuple[GatewayInfo, ...] = ()
