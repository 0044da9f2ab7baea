"""Fills a log with events and measures how fast a site that starts on it works through them."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.site_process import deliveries
from culver.bench.workloads import Workload
from culver.config import LogSettings
from culver.model.columns import RECEIVED
from culver.plugins import open_log

_GROUP = 8_192  # events of one group commit
_DISTINCT = 32 * _GROUP  # events, which then come again
_POLL_SECONDS = 0.05  # asking takes time from the site


def fill_log(directory: Path, workload: Workload, events: int, seed: int) -> int:
    """Append at least `count` events of the workload; returns the end of the log. No site may be running on it."""
    batch = _received_now(workload.event_batch(min(_DISTINCT, -(-events // _GROUP) * _GROUP), seed))
    log = open_log(directory.absolute().as_uri(), LogSettings())
    try:
        end = log.next_offset + events
        at = 0
        while log.next_offset < end:
            log.append([batch.slice(at, _GROUP)])
            at = (at + _GROUP) % batch.num_rows
        return log.next_offset
    finally:
        log.close()


def _received_now(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Set the time of receipt to now: a workload's events are years old, and mailboxes drop events of that age."""
    place = batch.schema.get_field_index(RECEIVED)
    now = pa.array(np.full(batch.num_rows, time.time_ns() // 1000))
    return batch.set_column(place, RECEIVED, now)


def measure_backlog(
    http: httpx.Client,
    start: int,
    end: int,
    progress: Callable[[int], None] = lambda done: None,
    limit_seconds: float = 120.0,
) -> float:
    """Events per second from the first delivered batch until all events are delivered. `start` is the position up
    to which events had been delivered before; each step is passed to `progress`.

    Delivered events are on disk: Spark's workers have synced them. Raises BenchmarkFailed if nothing happens for
    `limit_seconds`."""
    moments: list[tuple[float, int]] = []
    for now, at in deliveries(http, end, _POLL_SECONDS, limit_seconds):
        progress(at)
        if at > start:
            moments.append((now, at))
    (began, first), (ended, _) = moments[0], moments[-1]
    if first >= end:
        raise BenchmarkFailed("the site had delivered all events at once: give it more of them")
    return (end - first) / (ended - began)
