"""Our numbers beside the paper's, and how each came about."""

from dataclasses import dataclass, field

from culver.bench.bench_frame import Record, rounded
from culver.bench.line_plot import LinePlot

_DIGITS = 3

REAL, SIMULATED, COMPUTED = "real", "simulated", "computed"
"""Sites in processes of their own with sockets between them; queues and links on virtual time with costs that the
same run has measured; the real objects called directly, in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayFinding:
    """One number. `paper` is None where its text gives none. `target` is what ours must reach, such as "<= 50", and
    None where there is nothing to reach."""

    experiment: str
    what: str
    unit: str
    ours: float
    how: str
    paper: float | None = None
    policy: str | None = None
    brokers: int | None = None
    clients: int | None = None
    setting: str | None = None
    rate: float | None = None
    target: str | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        sign, _, bound = self.target.partition(" ")
        return self.ours <= float(bound) if sign == "<=" else self.ours >= float(bound)

    def record(self) -> Record:
        return {
            "experiment": self.experiment,
            "what": self.what,
            "policy": self.policy,
            "brokers": self.brokers,
            "clients": self.clients,
            "setting": self.setting,
            "rate": self.rate,
            "paper": self.paper,
            "ours": rounded(self.ours, _DIGITS),
            "unit": self.unit,
            "how": self.how,
            "target": self.target,
            "met": self.is_met,
            "note": self.note or None,
        }


@dataclass(slots=True)
class OverlayResult:
    findings: list[OverlayFinding] = field(default_factory=list)
    plots: list[LinePlot] = field(default_factory=list)
