"""The simulation's numbers beside the paper's: one with its cost model, one with the cost of our matcher."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from culver.bench.bench_frame import Record, rounded
from culver.bench.line_plot import LinePlot

# A simulation with another seed gives other digits from the fourth on.
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One number of one cost model. Two values measure the same thing if they differ in `ours` and `note` only."""

    figure: str
    what: str
    unit: str
    ours: float
    system: str | None = None
    policy: str | None = None
    matchers: int | None = None
    paper: float | None = None
    note: str = ""


FigureResult = tuple[list[Value], list[LinePlot]]
"""The result of simulating one figure of the paper with one cost model."""


def records(proportional: Sequence[Value], measured: Sequence[Value]) -> list[Record]:
    """Put both cost models into one record for each value. `ratio` divides the proportional model's number by the
    paper's, whether more is better or less."""
    result: list[Record] = []
    for one, other in zip(proportional, measured, strict=True):
        assert replace(one, ours=other.ours, note=other.note) == other
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
