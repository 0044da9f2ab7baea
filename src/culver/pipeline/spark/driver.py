"""The process that runs the streaming query: `python -m culver.pipeline.spark.driver OPTIONS-AS-JSON`.

It stops when its standard input ends, which is also what happens when the site is killed. It exits with 1 when
the query fails; the site then starts another.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

from culver.pipeline.ranges import SiteFiles
from culver.pipeline.spark.masters import parallelism
from culver.pipeline.spark.session import create_session
from culver.pipeline.spark.signals import SignalSender
from culver.pipeline.spark.source import LogSource


def main(argument: str) -> int:
    options = json.loads(argument)
    signals = SignalSender(options["signals"])
    try:
        return _run(options, signals)
    except Exception as exc:
        signals.send("failed", text=_first_line(str(exc)))
        raise


def _run(options: dict[str, Any], signals: SignalSender) -> int:
    files = SiteFiles(Path(options["data_dir"]))
    signals.send("progress", text="starting the Java virtual machine")
    session = create_session(options["master"], files.spark)
    signals.send("progress", text="starting the streaming query")
    session.dataSource.register(LogSource)
    query = (
        session.readStream.format("culver")
        .option("data_dir", options["data_dir"])
        .option("signals", options["signals"])
        .option("batch_events", str(options["batch_events"]))
        .option("parallelism", str(parallelism(options["master"])))
        .load()
        .writeStream.format("noop")
        .queryName("culver")
        .option("checkpointLocation", options["checkpoint"])
        .start()
    )
    signals.send("progress", text="warming up the workers")
    stopping = threading.Event()
    threading.Thread(target=_stop_at_end_of_input, args=(query, stopping), daemon=True).start()
    try:
        query.awaitTermination()
    except PySparkException:
        if not stopping.is_set():
            raise
    session.stop()
    return 0


def _stop_at_end_of_input(query: StreamingQuery, stopping: threading.Event) -> None:
    # Not through sys.stdin: its lock, held by a daemon thread, would abort the interpreter's own end.
    while os.read(0, 4096):
        pass
    stopping.set()
    query.stop()


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "unknown error"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
