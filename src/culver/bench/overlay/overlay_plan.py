"""How much the benchmark of the overlay measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from culver.bench.overlay import bdrp_paper as paper

FIGURES = ("2", "3", "4", "5", "6", "7")
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayPlan:
    """Rates are events a second of all clients together, or of one where the name says so."""

    figures: Sequence[str] = FIGURES
    traffic: bool = True  # bytes on links and tables, on W3
    traffic_sites: int = paper.LARGE_NETWORK
    traffic_events: int = 2_100

    table_sites: int = 1_000
    table_events: int = 8_192
    table_rounds: int = 7
    data_dir: Path | None = None
