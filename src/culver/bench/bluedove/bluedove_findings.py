"""A figure of the simulation beside the paper's: once with its model of costs, once with our matcher's."""

from collections.abc import Sequence
from dataclasses import dataclass

from culver.bench.bench_frame import Record, rounded
from culver.bench.line_plot import LinePlot

# A simulation with another seed gives other digits from the fourth on.
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What one model of costs gives. Two values are of the same thing if all but `ours` and `note` is the same."""

    figure: str
    what: str
    unit: str
    ours: float
    system: str | None = None
    policy: str | None = None
    matchers: int | None = None
    paper: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FigureResult:
    """What one model of costs gives for one figure of the paper."""

    values: Sequence[Value]
    plots: Sequence[LinePlot]


def records(proportional: Sequence[Value], measured: Sequence[Value]) -> list[Record]:
    """`ratio` is the proportional model's figure against the paper's, whether more is better or less."""
    result: list[Record] = []
    for one, other in zip(proportional, measured, strict=True):
        assert (one.figure, one.what, one.system, one.policy, one.matchers) == (
            (other.figure, other.what, other.system, other.policy, other.matchers)
        )
        notes = dict.fromkeys(note for note in (one.note, other.note) if note)
        result.append(
            {
                "figure": one.figure,
                "what": one.what,
                "system": one.system,
                "policy": one.policy,
                "matchers": one.matchers,
                "unit": one.unit,
                "paper": one.paper,
                "proportional": rounded(one.ours, _DIGITS),
                "measured": rounded(other.ours, _DIGITS),
                "ratio": rounded(one.ours / one.paper, _DIGITS) if one.paper else None,
                "measured_ratio": rounded(other.ours / one.paper, _DIGITS) if one.paper else None,
                "note": "; ".join(notes) or None,
            }
        )
    return result
