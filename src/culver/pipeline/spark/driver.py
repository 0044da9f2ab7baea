"""The process that runs the streaming query: `python -m culver.pipeline.spark.driver OPTIONS-AS-JSON`.

It stops when its standard input ends, which also happens when the site is killed. It exits with 1 when the query
fails, and with 3 when a cluster has given it no executor for a minute; the site then starts another.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from culver.pipeline.head import HeadFile
from culver.pipeline.site_files import SiteFiles
from culver.pipeline.spark.class_archive import archive_options
from culver.pipeline.spark.java import VirtualMachine, use_this_python
from culver.pipeline.spark.session_settings import session_settings
from culver.pipeline.spark.signals import SignalSender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

NO_EXECUTORS = 3
# After so long without an executor, a new driver asks the cluster again.
_EXECUTOR_SECONDS = 60.0


def main(argument: str) -> int:
    options = json.loads(argument)
    signals = SignalSender(options["signals"])
    try:
        return _run(options, signals)
    except Exception as exc:
        signals.send("failed", text=_reason(str(exc)))
        raise


def _run(options: dict[str, Any], signals: SignalSender) -> int:
    signals.send("progress", text="starting the Java virtual machine")
    use_this_python()
    settings = session_settings(
        options["master"], Path(options["work_dir"]), options["conf"], allocate=options["allocate"]
    )
    machine = VirtualMachine(settings, archive_options())
    # The import comes this late because the machine starts meanwhile.
    from pyspark.errors import PySparkException

    from culver.pipeline.spark.streaming_query import start_query

    machine.connect()
    signals.send("progress", text="starting the Spark session")
    session, query = start_query(options, lambda text: signals.send("progress", text=text))
    stopping = threading.Event()
    stopper = threading.Thread(target=_stop_at_end_of_input, args=(query, stopping), daemon=True)
    stopper.start()
    if session.sparkContext.uiWebUrl is not None:
        signals.send("ui", url=session.sparkContext.uiWebUrl)
    reporter = threading.Thread(
        target=_report, args=(session, query, options, signals, stopping), daemon=True
    )
    reporter.start()
    try:
        query.awaitTermination()
    except PySparkException:
        if not stopping.is_set():
            raise
    if stopping.is_set():
        stopper.join()  # the query uses the session until then
    session.stop()
    machine.close()
    return 0


def _stop_at_end_of_input(query: "StreamingQuery", stopping: threading.Event) -> None:
    # sys.stdin has a lock; a daemon thread that holds it would abort the interpreter's shutdown.
    while os.read(0, 4096):
        pass
    stopping.set()
    query.stop()


def _report(
    session: "SparkSession",
    query: "StreamingQuery",
    options: dict[str, Any],
    signals: SignalSender,
    stopping: threading.Event,
) -> None:
    """Tell the site once a second where Spark has spent the time of its last batch and, on a cluster, how many cores
    there are; fit the executors to the slices. After the first batch, tell that the workers of a cluster are warm:
    those on other machines cannot reach the site's socket.

    A Master that restarts without its state does not know this application and never gives it executors, while Spark
    waits for them for ever. A new driver is a new application."""
    from culver.pipeline.spark.cluster.executors import Executors

    remote = not options["master"].startswith("local")
    standalone = options["master"].startswith("spark:")
    executors = Executors(session.sparkContext) if remote else None
    head_file = HeadFile.open(SiteFiles(Path(options["data_dir"])).head)
    told: int | None = None
    seen = time.monotonic()
    while not standalone or time.monotonic() - seen < _EXECUTOR_SECONDS:
        if stopping.wait(0.2 if remote and told is None else 1.0):
            return
        try:
            progress = query.lastProgress
            if executors is not None:
                if (cores := executors.cores()) > 0:
                    seen = time.monotonic()
                signals.send("cores", count=cores)
                if options["allocate"] and (head := head_file.read()) is not None:
                    executors.fit(head.slices)
        except Exception:
            return  # the virtual machine is gone, and the query with it; `main` reports why
        if progress is None or progress.batchId == told:
            continue
        if remote and told is None:
            signals.send("warm")
        told = progress.batchId
        signals.send("stages", milliseconds=progress.durationMs)
    signals.send("failed", text=f"the cluster has had no executor for {_EXECUTOR_SECONDS:.0f} s")
    os._exit(NO_EXECUTORS)


def _reason(text: str) -> str:
    """The line that tells what went wrong: an error of Culver's own, which names its file, or the second line of a
    Java error, which begins with a colon."""
    lines = text.strip().splitlines() or ["unknown error"]
    own = (line.partition(": ")[2] for line in lines if line.startswith("culver.errors."))
    java = (line[2:] for line in lines if line.startswith(": "))
    return next(own, None) or next(java, lines[0])[:300]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
