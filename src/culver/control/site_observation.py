"""A whole site at one moment, as plain records: the answer of `/v1/pipeline`, and the source of all rates.

Counters start at 0 with the site and only grow; `site_rates` compares two observations.
"""

from dataclasses import dataclass

from culver.pipeline import EngineObservation


@dataclass(frozen=True, slots=True)
class SiteQueues:
    """How many events wait for each step, and how many deliveries wait in mailboxes for an acknowledgement.

    `index` counts those in the log that wait for an index version with the registrations that take effect before
    them, `accept` those that are matched and wait for an earlier range."""

    commit: int = 0
    index: int = 0
    match: int = 0
    accept: int = 0
    mailboxes: int = 0


@dataclass(frozen=True, slots=True)
class IndexSlice:
    slice: int
    registrations: int
    bytes: int  # of its compiled arrays


@dataclass(frozen=True, slots=True)
class IndexScheme:
    """The part of the index that belongs to one filtering scheme; a registration counts once in each of its
    slices."""

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
    """One of a site's gateways; number 0 runs in the site's own process. `subscriptions` counts those of its share,
    `sessions` those that are connected to it."""

    number: int
    port: int
    state: str
    subscriptions: int
    sessions: int


@dataclass(frozen=True, slots=True)
class SiteObservation:
    """A whole site. `schemes` has the filtering schemes with segments in the index, by name. `deliveries_sent` is the
    sum over all gateways; each gateway knows its own number, and adds it when it answers."""

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
    schemes: tuple[IndexScheme, ...] = ()
    deliveries_sent: int = 0
    gateways: tuple[GatewayInfo, ...] = ()
