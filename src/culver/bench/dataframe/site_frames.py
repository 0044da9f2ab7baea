"""The source and the sink `culver`, beside Parquet files of the same events.

The site runs on the same cores, with the inline engine. Each round publishes all events by the sink, then reads them
from the log, and from the mailbox of a durable subscription.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import httpx

from culver import connect_sync, spark as culver_spark
from culver.bench.bench_frame import BenchmarkFailed, Record, Tell, rounded
from culver.bench.child_processes import side_by_side
from culver.bench.dataframe.event_files import event_table, write_parts
from culver.bench.dataframe.spark_frames import session
from culver.bench.site_process import SiteProcess, deliveries
from culver.bench.workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITTEN = "Parquet, written"
_SINK = "culver sink"
_READ = "Parquet, read"
_LOG = "culver source, log"
_MAILBOX = "culver source, mailbox"
SYSTEMS = (_WRITTEN, _SINK, _READ, _LOG, _MAILBOX)
_SEED = 1
_LIMIT_SECONDS = 60.0


def run(workload: Workload, events: int, rounds: int, directory: Path, tell: Tell) -> Iterator[Record]:
    """Raises BenchmarkFailed where a row is missing."""
    write_parts(event_table(workload, events, _SEED), directory / "events")
    with SiteProcess("inline", directory / "site") as site:
        (rates,) = side_by_side(_rates, [(site.url, directory, events, rounds)])
    for system in SYSTEMS:
        rate = median(rates[system])
        parquet = median(rates[_WRITTEN if system in (_WRITTEN, _SINK) else _READ])
        tell(f"{system}: {rate:,.0f} events/s")
        yield {
            "workload": workload.name,
            "filters": None,
            "system": system,
            "events_per_second": rounded(rate, 4),
            "us_per_event": rounded(1e6 / rate, 4),
            "times_parquet": rounded(rate / parquet, 3),
        }


def _rates(
    barrier: threading.Barrier, url: str, directory: Path, events: int, rounds: int
) -> Mapping[str, list[float]]:
    rates: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    with session() as spark, connect_sync(url) as client, httpx.Client(base_url=url) as http:
        culver_spark.register(spark)
        frame = spark.read.parquet(str(directory / "events"))
        # In the first round, everything is loaded.
        for number in range(-1, rounds):
            name = f"round-{number}"
            client.create_subscription("symbol IS NOT NULL", id=name)
            start = client.log().next_offset
            source = {"url": url, "from": str(start)}
            log = spark.read.format("culver").schema(frame.schema).options(**source).load()
            seconds = {
                _WRITTEN: _seconds(lambda copy: frame.write.parquet(copy), str(directory / name)),
                _SINK: _seconds(_publish, frame, url),
                _READ: _seconds(_read, frame),
                _LOG: _seconds(_read, log),
            }
            for _ in deliveries(http, start + events, 0.05, _LIMIT_SECONDS):
                pass
            checkpoint = str(directory / f"{name}-checkpoint")
            seconds[_MAILBOX] = _seconds(_consume, frame, events, url, name, checkpoint)
            if (found := log.count()) != events:
                raise BenchmarkFailed(f"{found} of {events} events are in the log")
            client.delete_subscription(name)
            if number >= 0:
                for system, taken in seconds.items():
                    rates[system].append(events / taken)
    return rates


def _seconds(step: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    step(*arguments)
    return time.perf_counter() - began


def _publish(frame: "DataFrame", url: str) -> None:
    frame.write.format("culver").mode("append").option("url", url).save()


def _read(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _consume(frame: "DataFrame", events: int, url: str, subscription: str, checkpoint: str) -> None:
    """Read everything that waits, in a query that ends then."""
    stream = frame.sparkSession.readStream.format("culver").schema(frame.schema)
    query = (
        stream.options(url=url, subscription=subscription)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if (found := sum(progress.numInputRows for progress in query.recentProgress)) != events:
        raise BenchmarkFailed(f"{found} of {events} events came from the mailbox")
