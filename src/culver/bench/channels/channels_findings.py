"""Our numbers beside the paper's."""

from dataclasses import dataclass, field

from culver.bench.bench_frame import Record, rounded
from culver.bench.line_plot import LinePlot

_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFinding:
    """One number. ``paper`` is None where its text gives none."""

    experiment: str
    figure: str = ""
    what: str
    unit: str
    ours: float | None
    paper: float | None = None
    policy: str | None = None
    system: str | None = None
    servers: int | None = None
    clients: int | None = None
    note: str = ""

    def record(self) -> Record:
        ratio = self.ours / self.paper if self.ours is not None and self.paper else None
        return {
            "experiment": self.experiment,
            "figure": self.figure or None,
            "what": self.what,
            "policy": self.policy,
            "system": self.system,
            "servers": self.servers,
            "clients": self.clients,
            "paper": self.paper,
            "ours": None if self.ours is None else rounded(self.ours, _DIGITS),
            "unit": self.unit,
            "ratio": None if ratio is None else rounded(ratio, _DIGITS),
            "note": self.note or None,
        }


@dataclass(slots=True)
class ExperimentResult:
    findings: list[ChannelFinding] = field(default_factory=list)
    plots: list[LinePlot] = field(default_factory=list)
