"""The slices of a site as text, for `culver slices`. Pure."""

import json
import textwrap
from collections.abc import Iterator, Sequence

from culver.cli.figures import WIDTH, amount, duration, percent, size
from culver.control import DimensionSegment, DimensionView, SegmentBound, SetView, SlicesView, SliceView

_MOST_ROWS = 64


def render(view: SlicesView) -> str:
    """Lines, without a newline at the end of the last one."""
    return "\n".join(line.rstrip() for line in _lines(view))


def _lines(view: SlicesView) -> Iterator[str]:
    yield from _wrapped(f"placement {view.reason}")
    if view.forwarding is not None:
        yield f"forwarding {view.forwarding}"
    for line in _controller(view):
        yield from _wrapped(line)
    yield ""
    yield _row("SLICE", "REGISTRATIONS", "SIZE", "SENT/S", "MATCHED/S", "BUSY", "QUEUE") + "  SETS"
    yield from _cut([_slice(each) for each in view.slices])
    if len(view.sets) > len(view.slices):
        yield ""
        yield _row("SET", "REGISTRATIONS", "SIZE", "SENT/S", "MATCHED/S", "SLICE", "QUEUE") + "  OF"
        yield from _cut([_set(each, view) for each in view.sets])
    for number, layer in enumerate(view.layers):
        for dimension in layer.dimensions:
            yield ""
            yield f"layer {number}: {dimension.attribute} ({_kind(dimension)})"
            yield from _cut([f"  {_segment(each, dimension)}" for each in dimension.segments])


def _controller(view: SlicesView) -> Iterator[str]:
    if not view.elastic:
        yield "slices are added and removed by hand only (setting pipeline.elastic)"
        return
    now, changed = view.decision, view.last_change
    yield f"elastic: {now.reason}" if now else "elastic: nothing was observed yet"
    if changed:
        done = "split" if changed.action == "add" else "removed"
        yield f"slice {changed.slice} was {done} {duration(changed.seconds_ago)} ago: {changed.reason}"


def _slice(each: SliceView) -> str:
    figures = _row(
        str(each.slice), f"{each.registrations:,}", size(each.bytes), amount(each.sent_per_second),
        _rate(each.matched_per_second), percent(each.busy), f"{each.queue:,.0f}",
    )  # fmt: skip
    return f"{figures}  {' '.join(map(str, each.sets))}"


def _set(each: SetView, view: SlicesView) -> str:
    home = "every" if each.home is None else str(each.home)
    figures = _row(
        str(each.set), f"{each.registrations:,}", size(each.bytes), amount(each.sent_per_second),
        _rate(each.matched_per_second), home, f"{each.queue:,.0f}",
    )  # fmt: skip
    return f"{figures}  {_part(each, view)}"


def _part(each: SetView, view: SlicesView) -> str:
    if each.backup_of is not None:
        return f"layer {each.layer}, backup of {each.backup_of}"
    if each.layer is None or each.dimension is None:
        return "the rest"
    return f"layer {each.layer}, {view.layers[each.layer].dimensions[each.dimension].attribute}"


def _kind(dimension: DimensionView) -> str:
    return f"{dimension.line}, by their hash" if dimension.hashed else dimension.line


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


def _rate(value: float | None) -> str:
    return "" if value is None else amount(value)


def _row(number: str, registrations: str, *more: str) -> str:
    return f"{number:<5} {registrations:>13}" + "".join(text.rjust(10) for text in more)


def _cut(rows: Sequence[str]) -> Iterator[str]:
    yield from rows[:_MOST_ROWS]
    if len(rows) > _MOST_ROWS:
        yield f"and {len(rows) - _MOST_ROWS} more; --json has them all"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
