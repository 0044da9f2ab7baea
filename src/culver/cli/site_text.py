"""What `culver top` and `culver slices` print: a site's rates and its slices as text for people. Pure."""

import json
import textwrap
from collections.abc import Iterator, Sequence

from culver.control import (
    ELASTIC_PLACEMENTS,
    BatchRates,
    DimensionSegment,
    DimensionView,
    GatewayInfo,
    SchemeRates,
    SegmentBound,
    SetView,
    SiteRates,
    SliceShares,
    SlicesView,
    SliceView,
)

WIDTH = 80
_BAR = 15
_MOST_TOP_SLICES = 16
_MOST_ROWS = 64
# Stages of Spark that say nothing: the whole batch, and the wait for events.
_UNTOLD_STAGES = {"triggerExecution", "latestOffset"}
_OPERATORS = {"ap": "AP  read, route", "m": "M   match", "ep": "EP  group, join"}
# The queue that an operator is shown with.
_QUEUES = {"ap": "match", "ep": "accept"}


def top_frame(view: SiteRates, url: str) -> str:
    """One frame of `culver top`, no wider than 80 columns, without a newline at its end."""
    return "\n".join(line[:WIDTH].rstrip() for line in _top_lines(view, url))


def _top_lines(view: SiteRates, url: str) -> Iterator[str]:
    site, state = f"Culver at {url}", f"{view.engine}: {view.state}, up {duration(view.uptime_seconds)}"
    if len(site) + len(state) < WIDTH:
        yield site.ljust(WIDTH - len(state)) + state
    else:
        yield site
        yield from textwrap.wrap(state, WIDTH)
    if view.spark_ui is not None:
        yield f"Spark's web interface: {view.spark_ui}"
    yield from _wrapped(f"placement {view.placement.reason}")
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
    yield from _shares(view.slices)
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
        yield f"{_OPERATORS[each.name]:<16}" + _columns(
            amount(each.events_per_second),
            "" if each.name == "ap" else amount(each.pairs_per_second),
            percent(each.busy),
            "" if each.seconds_per_event is None else moment(each.seconds_per_event),
            "" if queue is None else f"{queue:,}",
            width=12,
        )
    yield f"{'write':<16}" + _columns(
        f"{amount(view.files_per_second)} files", f"{size(view.written_bytes_per_second)}/s",
        percent(view.write_busy), width=12,
    )  # fmt: skip


def _schemes(schemes: Sequence[SchemeRates]) -> Iterator[str]:
    """The operator M by scheme; a single scheme does what the operator's own line says."""
    yield f"{'SCHEME':<16}" + _columns("SUBSCRIPTIONS", "PAIRS/S", "BUSY", width=14)
    for each in schemes:
        yield f"{each.scheme:<16}" + _columns(
            f"{each.registrations:,}", amount(each.pairs_per_second), percent(each.busy), width=14
        )


def _shares(slices: Sequence[SliceShares]) -> Iterator[str]:
    yield f"{'SLICE':<6}" + _columns("EVENTS", "PAIRS", "REGISTRATIONS", "SIZE", "TIME", width=10, third=18)
    yield from _cut([_share(each) for each in slices], _MOST_TOP_SLICES)


def _share(each: SliceShares) -> str:
    held = f"{each.registrations:,} {percent(each.registrations_share):>6}"
    figures = _columns(
        percent(each.events_share), percent(each.pairs_share), held, size(each.bytes),
        percent(each.busy_share), width=10, third=18,
    )  # fmt: skip
    return f"{each.slice:<6}{figures} {'#' * round(_BAR * each.busy_share)}"


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


def slices_page(view: SlicesView) -> str:
    """The slices of a site, without a newline at the end."""
    return "\n".join(line.rstrip() for line in _slices_lines(view))


def _slices_lines(view: SlicesView) -> Iterator[str]:
    yield from _wrapped(f"placement {view.reason}")
    if view.forwarding is not None:
        yield f"forwarding {view.forwarding}"
    for line in _controller(view):
        yield from _wrapped(line)
    yield ""
    yield _row("SLICE", "REGISTRATIONS", "SIZE", "SENT/S", "MATCHED/S", "BUSY", "QUEUE") + "  SETS"
    yield from _cut(
        [
            f"{_held(each.slice, each, percent(each.busy))}  {' '.join(map(str, each.sets))}"
            for each in view.slices
        ]
    )
    if len(view.sets) > len(view.slices):
        yield ""
        yield _row("SET", "REGISTRATIONS", "SIZE", "SENT/S", "MATCHED/S", "SLICE", "QUEUE") + "  OF"
        homes = ["every" if each.home is None else str(each.home) for each in view.sets]
        yield from _cut(
            [
                f"{_held(each.set, each, home)}  {_part(each, view)}"
                for each, home in zip(view.sets, homes, strict=True)
            ]
        )
    for number, layer in enumerate(view.layers):
        for dimension in layer.dimensions:
            yield ""
            by_hash = ", by their hash" if dimension.hashed else ""
            yield f"layer {number}: {dimension.attribute} ({dimension.line}{by_hash})"
            yield from _cut([f"  {_segment(each, dimension)}" for each in dimension.segments])


def _controller(view: SlicesView) -> Iterator[str]:
    if view.placement not in ELASTIC_PLACEMENTS:
        yield f"with the placement {view.placement}, slices stay as they are while the site runs"
        return
    if not view.elastic:
        yield "slices are added and removed by hand only (setting pipeline.elastic)"
        return
    now, changed = view.decision, view.last_change
    yield f"elastic: {now.reason}" if now else "elastic: nothing was observed yet"
    if changed:
        done = "split" if changed.action == "add" else "removed"
        yield f"slice {changed.slice} was {done} {duration(changed.seconds_ago)} ago: {changed.reason}"


def _held(number: int, each: SliceView | SetView, last: str) -> str:
    return _row(
        str(number), f"{each.registrations:,}", size(each.bytes), amount(each.sent_per_second),
        "" if each.matched_per_second is None else amount(each.matched_per_second), last, f"{each.queue:,.0f}",
    )  # fmt: skip


def _part(each: SetView, view: SlicesView) -> str:
    if each.backup_of is not None:
        return f"layer {each.layer}, backup of {each.backup_of}"
    if each.layer is None or each.dimension is None:
        return "the rest"
    return f"layer {each.layer}, {view.layers[each.layer].dimensions[each.dimension].attribute}"


def _segment(segment: DimensionSegment, dimension: DimensionView) -> str:
    own = f"slice {segment.slice:<4} "
    if dimension.hashed:
        return own + "its share of the values"
    if segment.start is None and segment.end is None:
        return own + "all values"
    if segment.start is None:
        return f"{own}below {_value(segment.end)}"
    if segment.end is None:
        return f"{own}from {_value(segment.start)}"
    return f"{own}from {_value(segment.start)} to below {_value(segment.end)}"


def _value(value: SegmentBound | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _row(number: str, registrations: str, *more: str) -> str:
    return f"{number:<5} {registrations:>13}" + "".join(text.rjust(10) for text in more)


def _cut(rows: Sequence[str], most: int = _MOST_ROWS) -> Iterator[str]:
    yield from rows[:most]
    if len(rows) > most:
        yield f"and {len(rows) - most} more; --json has them all"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def amount(value: float) -> str:
    """Three significant digits: 0, 7.25, 980, 12.3 k, 1.50 M."""
    for unit in ("", " k", " M", " G"):
        if abs(value) < 999.5 or unit == " G":
            break
        value /= 1000
    if unit == "" and value == round(value):
        return f"{value:.0f}"
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}{unit}"


def size(value: float) -> str:
    return f"{amount(value)}{'' if amount(value)[-1].isalpha() else ' '}B"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 9.995 else f"{100 * share:.0f} %"


def moment(seconds: float) -> str:
    """A short time: 350 ns, 2.1 us, 35 ms, 1.2 s."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.{1 if seconds * factor < 9.95 else 0}f} {unit}"
    return f"{seconds:.{1 if seconds < 99.95 else 0}f} s"


def duration(seconds: float) -> str:
    """A long time: 12 s, 3 min, 4 h 10 min, 12 d 3 h."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def table(alignments: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """`alignments` has < or > for each column; those that it leaves out are to the left."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    sides = alignments.ljust(len(heads), "<")
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in (heads, *rows)
    ]
