"""Our numbers beside the paper's."""

from dataclasses import dataclass

from culver.bench.bench_frame import Record, rounded

# Further digits are noise of the measurement.
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Quoted:
    """A number that the paper's text gives. `cores` counts those of the machines that it was measured on; None
    means that it does not depend on a machine."""

    value: float
    cores: int | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One of our numbers. `part` is the measured filter, operator or engine; None stands for what was not varied."""

    figure: str
    what: str
    unit: str
    ours: float
    cores: int | None
    part: str | None = None
    subscriptions: int | None = None
    placement: str | None = None
    slices: int | None = None
    paper: Quoted | None = None
    note: str = ""

    def record(self) -> Record:
        """The finding as a record. `ratio` divides our number by the paper's, whether more is better or less. All
        records have the same members, in the order in which a table shows them."""
        paper = self.paper
        notes = [text for text in (paper.note if paper else "", self.note) if text]
        return {
            "figure": self.figure,
            "what": self.what,
            "part": self.part,
            "subscriptions": self.subscriptions,
            "placement": self.placement,
            "slices": self.slices,
            "unit": self.unit,
            "paper": paper.value if paper else None,
            "paper_cores": paper.cores if paper else None,
            "ours": rounded(self.ours, _DIGITS),
            "our_cores": self.cores,
            "ratio": rounded(self.ours / paper.value, _DIGITS) if paper else None,
            "note": "; ".join(notes) or None,
        }
