"""How much the fan-out benchmark measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROWS = ("fanout", "filters live", "filters durable", "publications", "publications wide", "set")
WIRES = ("msgpack", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class FanoutPlan:
    """`outstanding` is the number of events that the publisher of `fanout` and `set` has under way at most: far
    below every limit at which a server drops messages. `in_flight` is the number of publications that await their
    acknowledgement at the same time, and `wide_in_flight` that of `publications wide`."""

    rows: Sequence[str] = ROWS
    rounds: int = 3
    wire: str = "msgpack"
    data_dir: Path | None = None

    fanout_connections: int = 10
    subscribers_per_connection: int = 100
    outstanding: int = 64
    fanout_seconds: float = 5.0
    warm_up_seconds: float = 2.0

    filters: int = 1_000
    filter_connections: int = 4
    rate: int = 1_000
    filter_seconds: float = 10.0

    in_flight: int = 256
    wide_in_flight: int = 1_024
    publication_seconds: float = 5.0

    set_filters: int = 200_000
    set_seconds: float = 10.0


def quick_plan(rows: Sequence[str], rounds: int, wire: str, data_dir: Path | None) -> FanoutPlan:
    """Every row for a moment, to see that it works."""
    return FanoutPlan(
        rows=rows,
        rounds=rounds,
        wire=wire,
        data_dir=data_dir,
        fanout_seconds=0.5,
        warm_up_seconds=0.3,
        rate=200,
        filter_seconds=1.0,
        publication_seconds=0.5,
        set_filters=2_000,
        set_seconds=0.5,
    )
