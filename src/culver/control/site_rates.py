"""Rates and shares between two observations of a site, for `culver top` and a console. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from culver.control import GatewayInfo, PlacementInfo, SiteObservation, SiteQueues
from culver.pipeline import BatchTotals, EngineObservation, SchemeTotals, SliceTotals


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """One operator in all slices. `busy` counts threads: 0.5 is half of one thread's time, 2 is all the time of
    two."""

    name: str
    events_per_second: float
    pairs_per_second: float
    busy: float
    seconds_per_event: float | None


@dataclass(frozen=True, slots=True)
class SchemeRates:
    """The operator M of one filtering scheme, in all slices."""

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
    done = _differences(before.pipeline.slices, after.pipeline.slices)
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
        notifications_per_second=sum(each.pairs for each in done) / seconds,
        sent_per_second=(after.deliveries_sent - before.deliveries_sent) / seconds,
        operators=(
            _operator("ap", seconds, done, lambda each: (each.events, 0, each.ap_seconds)),
            _operator("m", seconds, done, lambda each: (each.sent, each.pairs, each.m_seconds)),
            _operator("ep", seconds, done, lambda each: (each.sent, each.pairs, each.ep_seconds)),
        ),
        schemes=_schemes(before, after, seconds),
        slices=_slices(after, done, seconds),
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


def _differences(before: Sequence[SliceTotals], after: Sequence[SliceTotals]) -> list[SliceTotals]:
    known = {each.slice: each for each in before}
    return [each.minus(known.get(each.slice, SliceTotals(each.slice))) for each in after]


def _operator(
    name: str,
    seconds: float,
    done: Sequence[SliceTotals],
    members: Callable[[SliceTotals], tuple[int, int, float]],
) -> OperatorRates:
    events, pairs, busy = (
        (sum(column) for column in zip(*map(members, done), strict=True)) if done else (0, 0, 0)
    )
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


def _slices(after: SiteObservation, done: Sequence[SliceTotals], seconds: float) -> tuple[SliceShares, ...]:
    worked = {each.slice: each for each in done}
    held = {each.slice: each for each in after.index}
    numbers = sorted(worked.keys() | held.keys())
    totals = [worked.get(number, SliceTotals(number)) for number in numbers]
    registrations = [held[number].registrations if number in held else 0 for number in numbers]
    busy = [each.ap_seconds + each.m_seconds + each.ep_seconds for each in totals]
    shares = zip(
        _shares([each.sent for each in totals]),
        _shares([each.pairs for each in totals]),
        _shares(busy),
        _shares(registrations),
        strict=True,
    )
    return tuple(
        SliceShares(number, count, held[number].bytes if number in held else 0, own / seconds, *share)
        for number, count, own, share in zip(numbers, registrations, busy, shares, strict=True)
    )


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [value / total if total else 0.0 for value in values]


def _batches(before: BatchTotals, after: BatchTotals, seconds: float) -> BatchRates:
    count = after.count - before.count
    recent = after.recent[-count:] if count else ()
    if not recent:
        return BatchRates(count / seconds, None, None, None, None, after.stages)
    events = sorted(batch.events for batch in recent)
    took = sorted(batch.seconds for batch in recent)
    half, most = (max(0, math.ceil(share * len(recent)) - 1) for share in (0.5, 0.99))
    return BatchRates(count / seconds, events[half], events[most], took[half], took[most], after.stages)
