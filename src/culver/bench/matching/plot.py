"""A plot of lines, as an SVG file written by hand: no library is worth it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]

_COLOURS = ("#0b6e99", "#c2410c", "#4d7c0f", "#7e22ce", "#a16207", "#475569")
_WIDTH, _HEIGHT = 760, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 150, 50, 60  # room around the lines


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values from the first tick to the last, spread over pixels `start` to `end`."""

    ticks: Sequence[float]
    start: float
    end: float
    scale: Callable[[float], float]

    def place(self, value: float) -> float:
        first, last = self.scale(self.ticks[0]), self.scale(self.ticks[-1])
        return self.start + (self.scale(value) - first) / (last - first) * (self.end - self.start)


def plot(title: str, x_title: str, y_title: str, lines: Mapping[str, Points], *, linear: bool = False) -> str:
    """The text of an SVG file with a line for each series. Both axes are logarithmic, and all values above 0, or both
    are linear and begin at 0."""
    every = [point for points in lines.values() for point in points]
    axis = _linear_axis if linear else _logarithmic_axis
    x = axis([at for at, _ in every], _LEFT, _WIDTH - _RIGHT)
    y = axis([at for _, at in every], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, _TOP / 2, title, size=16),
        _text((x.start + x.end) / 2, _HEIGHT - 15, x_title, anchor="middle"),
        _text(_LEFT - 70, _TOP - 12, y_title),
    ]
    for value in x.ticks:
        at = x.place(value)
        parts.append(_segment(at, y.start, at, y.end))
        parts.append(_text(at, y.start + 18, _shown(value), anchor="middle"))
    for value in y.ticks:
        at = y.place(value)
        parts.append(_segment(x.start, at, x.end, at))
        parts.append(_text(x.start - 8, at + 4, _shown(value), anchor="end"))
    for number, (name, points) in enumerate(lines.items()):
        parts += _line(name, points, x, y, _COLOURS[number % len(_COLOURS)], _TOP + 10 + 20 * number)
    return "\n".join([*parts, "</svg>", ""])


def _logarithmic_axis(values: Sequence[float], start: float, end: float) -> _Axis:
    """Whole decades."""
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    return _Axis([10.0**exponent for exponent in range(first, last + 1)], start, end, math.log10)


def _linear_axis(values: Sequence[float], start: float, end: float) -> _Axis:
    """Three to five steps of 1, 2 or 5 times a power of ten."""
    most = max(values) or 1.0
    power = 10.0 ** math.floor(math.log10(most))
    step = next(share * power for share in (0.2, 0.5, 1.0, 2.0) if most / (share * power) <= 5)
    return _Axis([step * place for place in range(math.ceil(most / step) + 1)], start, end, float)


def _line(name: str, points: Points, x: _Axis, y: _Axis, colour: str, legend: float) -> list[str]:
    places = [(x.place(across), y.place(up)) for across, up in sorted(points)]
    path = " ".join(f"{across:.1f},{up:.1f}" for across, up in places)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}"/>' for across, up in places),
        f'<rect x="{x.end + 15:.1f}" y="{legend - 6:.1f}" width="18" height="4" fill="{colour}"/>',
        _text(x.end + 40, legend, name),
    ]


def _segment(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d4d4d8"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
