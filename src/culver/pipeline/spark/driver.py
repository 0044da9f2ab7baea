"""The process that runs the streaming query: `python -m culver.pipeline.spark.driver`.

Its options are the first line of its standard input, as JSON: everybody can see arguments, and settings of Spark may
be passwords. It stops when its standard input ends, which also happens when the site is killed. It exits with 1 when
the query fails, and with 3 when a cluster has given it no executor for a minute; the site then starts another.
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
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

NO_EXECUTORS = 3
# After so long without an executor, a new driver asks the cluster again.
_EXECUTOR_SECONDS = 60.0


def main() -> int:
    options = json.loads(_first_line_of_input())
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

    from culver.pipeline.spark.log_source import start_query

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


def _first_line_of_input() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(0, 4096)):
            sys.exit(0)  # the site is gone
        line += piece
    return line


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


def executors_for(slices: int, tasks_each: int) -> int:
    """How many executors it takes to run a task for every slice at the same time."""
    return max(1, -(-slices // tasks_each))


class Executors:
    """The executors of one session on a cluster. For one thread, which waits for the cluster's answers.

        slices 3, executors of one core      wanted 3, there are 1   -->  ask the cluster for 3
        slices 2                             wanted 2, there are 3   -->  let go of one that has no task this instant

    Spark's own rule (dynamic allocation) asks for an executor when a task has waited for a second, and lets go of one
    that had no task for some time. Batches take milliseconds and their tasks go to any executor, so the result of
    that rule has little to do with slices. Culver turns it off (`session_settings`) and names the number itself."""

    def __init__(self, context: "SparkContext") -> None:
        configuration = context.getConf()
        cores = int(configuration.get("spark.executor.cores", "1") or 1)
        self._tasks_each = max(1, cores // int(configuration.get("spark.task.cpus", "1") or 1))
        self._context = context._jsc.sc()
        self._profile = self._context.resourceProfileManager().defaultResourceProfile()
        assert context._jvm is not None
        self._scala = context._jvm.PythonUtils

    def cores(self) -> int:
        """How many tasks the present executors can run at the same time."""
        return int(self._context.maxNumConcurrentTasks(self._profile))

    def fit(self, slices: int) -> None:
        """Ask for missing executors, and let go of idle ones that are too many. Call it again and again: a cluster
        gives what it has, and may have more later."""
        wanted, present = executors_for(slices, self._tasks_each), self._present()
        if len(present) == wanted:
            return
        # Repeated until it is true: a Master that was started again remembers the query, but not this request.
        self._context.requestTotalExecutors(wanted, 0, self._scala.toScalaMap({}))
        surplus = len(present) - wanted
        for each in reversed(present):
            if surplus > 0 and self._let_go(each):
                surplus -= 1

    def _present(self) -> list[str]:
        """The active executors, oldest first, without those that are being stopped."""
        identifiers = self._context.getExecutorIds().mkString(" ").split()
        backend = self._context.schedulerBackend()
        return sorted(filter(backend.isExecutorActive, identifiers), key=lambda each: (len(each), each))

    def _let_go(self, identifier: str) -> bool:
        """Stop an executor if it has no task, and return whether that is so; no task has to run again."""
        adjust_target, count_failures, force = False, False, False
        stopped = self._context.schedulerBackend().killExecutors(
            self._scala.toSeq([identifier]), adjust_target, count_failures, force
        )
        return bool(stopped.nonEmpty())


if __name__ == "__main__":
    sys.exit(main())
