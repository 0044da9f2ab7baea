"""One frame of `culver top`: the rates of a site as text, no wider than 80 columns. Pure."""

import textwrap
from collections.abc import Iterator, Sequence

from culver.cli.figures import WIDTH, amount, duration, moment, percent, size
from culver.control import BatchRates, GatewayInfo, OperatorRates, SchemeRates, SiteRates, SliceShares

_BAR = 15
_MOST_SLICES = 16
# Stages of Spark that say nothing: the whole batch, and the wait for events.
_UNTOLD_STAGES = {"triggerExecution", "latestOffset"}
# The queue that an operator is shown with.
_QUEUES = {"ap": "match", "ep": "accept"}


def render(view: SiteRates, url: str) -> str:
    """Lines, without a newline at the end of the last one."""
    return "\n".join(line[:WIDTH].rstrip() for line in _lines(view, url))


def _lines(view: SiteRates, url: str) -> Iterator[str]:
    site, state = f"Culver at {url}", f"{view.engine}: {view.state}, up {duration(view.uptime_seconds)}"
    if len(site) + len(state) < WIDTH:
        yield site.ljust(WIDTH - len(state)) + state
    else:
        yield site
        yield from textwrap.wrap(state, WIDTH)
    if view.spark_ui is not None:
        yield f"Spark's web interface: {view.spark_ui}"
    yield from textwrap.wrap(f"placement {view.placement.reason}", WIDTH, subsequent_indent="  ")
    yield ""
    yield _columns("PUBLISHED/S", "MATCHED/S", "NOTIFICATIONS/S", "SENT/S", "SUBSCRIPTIONS", width=16)
    yield _columns(
        amount(view.published_per_second),
        amount(view.matched_per_second),
        amount(view.notifications_per_second),
        amount(view.sent_per_second),
        f"{view.subscriptions:,}",
        width=16,
    )
    yield ""
    yield from _operators(view)
    if len(view.schemes) > 1:
        yield ""
        yield from _schemes(view.schemes)
    yield ""
    yield from _slices(view.slices)
    yield ""
    yield from _batches(view.batches)
    queues = view.queues
    yield ""
    yield (
        f"waiting: {queues.commit:,} to be stored, {queues.index:,} for the index, {queues.match:,} to be matched,"
    )
    yield (
        f"         {queues.accept:,} matched behind a missing file (in {view.waiting_files:,}), "
        f"{queues.mailboxes:,} in mailboxes"
    )
    if len(view.gateways) > 1:
        yield ""
        yield from _gateways(view.gateways)


def _operators(view: SiteRates) -> Iterator[str]:
    yield f"{'OPERATOR':<16}" + _columns("EVENTS/S", "PAIRS/S", "BUSY", "PER EVENT", "QUEUE", width=12)
    for each in view.operators:
        queue = getattr(view.queues, _QUEUES[each.name]) if each.name in _QUEUES else None
        yield _operator(each, "" if queue is None else f"{queue:,}")
    yield f"{'write':<16}" + _columns(
        f"{amount(view.files_per_second)} files", f"{size(view.written_bytes_per_second)}/s",
        percent(view.write_busy), width=12,
    )  # fmt: skip


_NAMES = {"ap": "AP  read, route", "m": "M   match", "ep": "EP  group, join"}


def _operator(operator: OperatorRates, queue: str) -> str:
    each = operator.seconds_per_event
    return f"{_NAMES[operator.name]:<16}" + _columns(
        amount(operator.events_per_second),
        "" if operator.name == "ap" else amount(operator.pairs_per_second),
        percent(operator.busy),
        "" if each is None else moment(each),
        queue,
        width=12,
    )


def _schemes(schemes: Sequence[SchemeRates]) -> Iterator[str]:
    """The operator M by scheme; a single scheme does what the operator's own line says."""
    yield f"{'SCHEME':<16}" + _columns("SUBSCRIPTIONS", "PAIRS/S", "BUSY", width=14)
    for each in schemes:
        yield f"{each.scheme:<16}" + _columns(
            f"{each.registrations:,}", amount(each.pairs_per_second), percent(each.busy), width=14
        )


def _slices(slices: Sequence[SliceShares]) -> Iterator[str]:
    yield f"{'SLICE':<6}" + _columns("EVENTS", "PAIRS", "REGISTRATIONS", "SIZE", "TIME", width=10, third=18)
    for each in slices[:_MOST_SLICES]:
        held = f"{each.registrations:,} {percent(each.registrations_share):>6}"
        yield f"{each.slice:<6}" + _columns(
            percent(each.events_share), percent(each.pairs_share), held, size(each.bytes),
            percent(each.busy_share), width=10, third=18,
        ) + " " + "#" * round(_BAR * each.busy_share)  # fmt: skip
    if len(slices) > _MOST_SLICES:
        yield f"and {len(slices) - _MOST_SLICES} more; --json has them all"


def _batches(batches: BatchRates) -> Iterator[str]:
    if batches.seconds_p50 is None or batches.seconds_p99 is None:
        yield "batches: none in this time"
        return
    yield (
        f"batches: {amount(batches.per_second)}/s, p50 {batches.events_p50:,} events in "
        f"{moment(batches.seconds_p50)}, p99 {batches.events_p99:,} in {moment(batches.seconds_p99)}"
    )
    parts = [(name, took) for name, took in batches.stages.items() if took and name not in _UNTOLD_STAGES]
    slowest = sorted(parts, key=lambda item: -item[1])[:3]
    if slowest:
        yield "         last one: " + ", ".join(f"{k} {moment(s)}" for k, s in slowest)


def _gateways(gateways: Sequence[GatewayInfo]) -> Iterator[str]:
    yield f"{'GATEWAY':<8}" + _columns("PORT", "SUBSCRIPTIONS", "SESSIONS", width=16) + "  STATE"
    for each in gateways:
        figures = (str(each.port), f"{each.subscriptions:,}", f"{each.sessions:,}")
        yield f"{each.number:<8}" + _columns(*figures, width=16) + f"  {each.state}"


def _columns(*texts: str, width: int, third: int | None = None) -> str:
    widths = [width] * len(texts)
    if third is not None:
        widths[2] = third
    return "".join(text.rjust(own) for text, own in zip(texts, widths, strict=True))
