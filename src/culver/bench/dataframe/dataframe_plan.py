"""How much the benchmark of DataFrames measures, and what the contestants read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from culver.bench.workloads import Workload

JOIN, BARE = "spark-join", "matcher"  # with which the others are compared
_ROOM = "culver.bench.dataframe"


class DataframeContestant(NamedTuple):
    """The function is named, not imported: a contestant's process loads only its own libraries."""

    title: str
    function: str


CONTESTANTS = {
    "match": DataframeContestant("culver.spark.match", f"{_ROOM}.spark_frames:match_lists"),
    "exploded": DataframeContestant("culver.spark.match, exploded", f"{_ROOM}.spark_frames:match_exploded"),
    JOIN: DataframeContestant("Spark SQL join", f"{_ROOM}.spark_frames:join"),
    "polars": DataframeContestant("Polars join", f"{_ROOM}.table_joins:polars_join"),
    "duckdb": DataframeContestant("DuckDB join", f"{_ROOM}.table_joins:duckdb_join"),
    BARE: DataframeContestant("culver.Matcher, Arrow", f"{_ROOM}.bare_matchers:arrow_batches"),
    "dictionary": DataframeContestant("culver.Matcher, dictionary", f"{_ROOM}.bare_matchers:dictionaries"),
}
SIZES = {"W1": (40_000,), "W2": (100_000, 1_000_000)}
PROBE = 2_048
"""The first events, on which all contestants must find as many pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataframePlan:
    """A contestant matches more and more events until that takes `seconds`, then `rounds` times as many. It is left
    out if it has not finished after `limit_seconds`."""

    comparisons: Sequence[tuple[Workload, int]]
    systems: Sequence[str] = tuple(CONTESTANTS)
    rounds: int = 3
    seconds: float = 2.0
    limit_seconds: float = 90.0
    most_events: int = 1_000_000
    site_events: int = 300_000  # for the source and the sink; 0 leaves them out
    data_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What a contestant gets. `directory` has

    events/N.parquet   the first N events, in a directory with a file for each core
    filters            the filters as a saved matcher
    form-N.parquet     the filters of each form: id, v0, v1, ...
    """

    directory: Path
    conditions: tuple[str, ...]
    """For each form, the condition of a join: `e` are the events, and `s` the filters."""
    sizes: tuple[int, ...]
    rounds: int
    seconds: float

    def events(self, count: int) -> str:
        return str(self.directory / "events" / f"{count}.parquet")

    def form(self, number: int) -> str:
        return str(self.directory / f"form-{number}.parquet")

    @property
    def filters(self) -> Path:
        return self.directory / "filters"


@dataclass(frozen=True, slots=True)
class MatchingRate:
    pairs: int  # of the probe
    events: int
    events_per_second: float
