"""A whole site at one moment, and the rates between two moments. Pure.

An observation is the answer of `/v1/pipeline`. Its counters start at 0 with the site and only grow. `culver top` and
a console show rates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from culver.pipeline import BatchTotals, EngineObservation, SchemeTotals, SliceTotals


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
    """The index of one filtering scheme; a registration counts once in each of its slices."""

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
    """One of a site's gateways, 0 in the site's own process: its share of subscriptions, and its open sessions."""

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


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """One operator in all slices. `busy` counts threads: 0.5 is half of one thread's time."""

    name: str
    events_per_second: float
    pairs_per_second: float
    busy: float
    seconds_per_event: float | None


@dataclass(frozen=True, slots=True)
class SchemeRates:
    scheme: str
    registrations: int
    pairs_per_second: float
    busy: float


@dataclass(frozen=True, slots=True)
class SliceShares:
    """One slice, and its shares of what all slices did (0 to 1)."""

    slice: int
    registrations: int
    bytes: int
    busy: float
    events_share: float
    pairs_share: float
    busy_share: float
    registrations_share: float


@dataclass(frozen=True, slots=True)
class BatchRates:
    """The batches of the interval; percentiles are None where there were none. `stages` are those of the last one."""

    per_second: float
    events_p50: int | None
    events_p99: int | None
    seconds_p50: float | None
    seconds_p99: float | None
    stages: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SiteRates:
    """A site over the `interval_seconds` between two observations, to which all rates and shares refer."""

    engine: str
    state: str
    ready: bool
    uptime_seconds: float
    interval_seconds: float
    placement: PlacementInfo
    spark_ui: str | None
    subscriptions: int
    published_per_second: float
    matched_per_second: float
    notifications_per_second: float
    sent_per_second: float
    operators: tuple[OperatorRates, ...]
    schemes: tuple[SchemeRates, ...]
    slices: tuple[SliceShares, ...]
    queues: SiteQueues
    waiting_files: int
    workers: int  # those that had something to do
    files_per_second: float
    written_bytes_per_second: float
    write_busy: float
    batches: BatchRates
    gateways: tuple[GatewayInfo, ...]


def rates_between(before: SiteObservation, after: SiteObservation) -> SiteRates:
    """The rates from one observation to the next. If the site was started in between, they begin at its start."""
    if after.uptime_seconds < before.uptime_seconds:
        before = _at_start(after)
    seconds = max(after.uptime_seconds - before.uptime_seconds, 1e-9)
    done = after.pipeline.slices_since(before.pipeline)
    total = reduce(SliceTotals.plus, done, SliceTotals(0))
    written, written_before = after.pipeline.written, before.pipeline.written
    workers = before.pipeline.workers
    return SiteRates(
        engine=after.engine,
        state=after.state,
        ready=after.ready,
        uptime_seconds=after.uptime_seconds,
        interval_seconds=seconds,
        placement=after.placement,
        spark_ui=after.pipeline.spark_ui,
        subscriptions=after.subscriptions,
        published_per_second=(after.log_next_offset - before.log_next_offset) / seconds,
        matched_per_second=(after.pipeline.position - before.pipeline.position) / seconds,
        notifications_per_second=total.pairs / seconds,
        sent_per_second=(after.deliveries_sent - before.deliveries_sent) / seconds,
        operators=(
            _operator("ap", seconds, total.events, 0, total.ap_seconds),
            _operator("m", seconds, total.sent, total.pairs, total.m_seconds),
            _operator("ep", seconds, total.sent, total.pairs, total.ep_seconds),
        ),
        schemes=_schemes(before, after, seconds),
        slices=_slices(after, done, total, seconds),
        queues=after.queues,
        waiting_files=after.pipeline.waiting_files,
        workers=sum(count > workers.get(name, 0) for name, count in after.pipeline.workers.items()),
        files_per_second=(written.files - written_before.files) / seconds,
        written_bytes_per_second=(written.bytes - written_before.bytes) / seconds,
        write_busy=(written.seconds - written_before.seconds) / seconds,
        batches=_batches(before.pipeline.batches, after.pipeline.batches, seconds),
        gateways=after.gateways,
    )


def _at_start(after: SiteObservation) -> SiteObservation:
    """The site when it started, as far as is known: nobody knows where the log ended then."""
    nothing = EngineObservation(after.pipeline.position)
    return replace(after, uptime_seconds=0.0, deliveries_sent=0, pipeline=nothing)


def _operator(name: str, seconds: float, events: int, pairs: int, busy: float) -> OperatorRates:
    return OperatorRates(
        name, events / seconds, pairs / seconds, busy / seconds, busy / events if events else None
    )


def _schemes(before: SiteObservation, after: SiteObservation, seconds: float) -> tuple[SchemeRates, ...]:
    """The schemes that hold something or have done something."""
    earlier = {each.scheme: each for each in before.pipeline.schemes}
    done = {each.scheme: each for each in after.pipeline.schemes}
    held = {each.scheme: each.registrations for each in after.schemes}
    views = []
    for name in sorted(done.keys() | held.keys()):
        now, then = done.get(name, SchemeTotals(name)), earlier.get(name, SchemeTotals(name))
        views.append(
            SchemeRates(
                name,
                held.get(name, 0),
                (now.pairs - then.pairs) / seconds,
                (now.seconds - then.seconds) / seconds,
            )
        )
    return tuple(views)


def _slices(
    after: SiteObservation, done: Sequence[SliceTotals], total: SliceTotals, seconds: float
) -> tuple[SliceShares, ...]:
    """The slices that hold something or have done something."""
    worked = {each.slice: each for each in done}
    held = {each.slice: each for each in after.index}
    registrations = sum(each.registrations for each in after.index)
    shares = []
    for number in sorted(worked.keys() | held.keys()):
        own, has = worked.get(number, SliceTotals(number)), held.get(number, IndexSlice(number, 0, 0))
        shares.append(
            SliceShares(
                number,
                has.registrations,
                has.bytes,
                own.busy_seconds / seconds,
                _share(own.sent, total.sent),
                _share(own.pairs, total.pairs),
                _share(own.busy_seconds, total.busy_seconds),
                _share(has.registrations, registrations),
            )
        )
    return tuple(shares)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _batches(before: BatchTotals, after: BatchTotals, seconds: float) -> BatchRates:
    count = after.count - before.count
    recent = after.recent[-count:] if count else ()
    if not recent:
        return BatchRates(count / seconds, None, None, None, None, after.stages)
    events = sorted(batch.events for batch in recent)
    took = sorted(batch.seconds for batch in recent)
    half, most = (max(0, math.ceil(share * len(recent)) - 1) for share in (0.5, 0.99))
    return BatchRates(count / seconds, events[half], events[most], took[half], took[most], after.stages)
