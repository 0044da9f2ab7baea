"""A workload's events as Parquet files."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from culver.bench.workloads import Workload


def event_table(workload: Workload, count: int, seed: int) -> pa.Table:
    """The attributes of the workload's events as columns of their own names."""
    batch = workload.event_batch(count, seed)
    columns = {name.split(":", 2)[2]: batch.column(name) for name in batch.schema.names if name[1:2] == ":"}
    return pa.table(columns)


def write_parts(events: pa.Table, directory: Path) -> None:
    """Write a file for each core."""
    directory.mkdir(parents=True)
    cores = len(os.sched_getaffinity(0))
    part = -(-events.num_rows // cores)
    for place in range(cores):
        pq.write_table(events.slice(place * part, part), directory / f"{place}.parquet")
