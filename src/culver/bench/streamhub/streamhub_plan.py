"""How much the StreamHub benchmark measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FIGURES = ("6", "7", "8", "9", "10", "11")
TABLES = ("2",)
SEED = 1


@dataclass(frozen=True, slots=True)
class StreamhubPlan:
    figures: Sequence[str] = FIGURES
    tables: Sequence[str] = TABLES
    sizes: Sequence[int] = (10_000, 100_000)  # numbers of subscriptions of figures 6, 8 and 9
    filtering_sizes: Sequence[int] = (100, 500, 1_000, 5_000, 10_000, 50_000, 100_000)
    clustering_sizes: Sequence[int] = (10_000, 50_000, 100_000, 150_000)
    slices: Sequence[int] = (1, 2, 3, 4)  # of figures 8 and 9
    distribution_events: int = 1 << 18
    log_events: int = 1 << 18  # that operators work on, again and again
    round_seconds: float = 0.4
    rounds: int = 5
    operator_seconds: float = 1.5
    whole_subscriptions: int = 100_000  # of figure 11 and table 2
    whole_placements: Sequence[str] = ("replicated", "hashed", "event-space")
    whole_events: int = 4_000_000
    gateway_events: int = 100_000  # published to find out what the whole site takes
    one_core: bool = True  # figure 11 on one core, too
    settle_seconds: float = 4.0  # after subscriptions have come
    delay_seconds: float = 20.0
    warm_up_seconds: float = 5.0
    data_dir: Path | None = None  # where files are while measuring; None: the system's temporary directory


def quick_plan(figures: Sequence[str], tables: Sequence[str], data_dir: Path | None = None) -> StreamhubPlan:
    """A plan that runs everything once, on little data, to show that it works. Its figures mean nothing."""
    return StreamhubPlan(
        figures=figures,
        tables=tables,
        sizes=(1_000,),
        filtering_sizes=(100, 500, 1_000),
        clustering_sizes=(1_000,),
        slices=(1, 2),
        distribution_events=8_192,
        log_events=8_192,
        round_seconds=0.02,
        rounds=2,
        operator_seconds=0.05,
        whole_subscriptions=1_000,
        whole_placements=("replicated", "hashed"),
        whole_events=1_000_000,
        gateway_events=5_000,
        one_core=False,
        settle_seconds=0.5,
        delay_seconds=1.0,
        warm_up_seconds=1.0,
        data_dir=data_dir,
    )
