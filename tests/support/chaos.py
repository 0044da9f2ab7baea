"""A site on a standalone cluster that loses a process every few seconds, while a publisher and a reader go on.

Victims are found in the trees of the processes that were started here, never by a search over the machine:

    culver serve                      site
      driver (Python)                 driver
        Java virtual machine          driver-jvm
          daemon, planner             planner
    Master                            master
    Worker                            worker
      executor (Java)                 executor
        daemon                        daemon
          Python worker               python-worker

What must start again by itself is left alone; a site, a Worker or a Master is started again, as an operator or a
service manager would.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from culver.pipeline import StandaloneCluster
from support.mailbox_audit import Audit
from support.mailbox_reader import MailboxReader
from support.numbered import Journal, some_filters
from support.service import Service

KINDS = (
    "executor", "python-worker", "driver", "worker", "daemon", "site", "master", "driver-jvm", "planner"
)  # fmt: skip
_AWAY_SECONDS = 1.0  # before an operator starts again what was killed
_LOOK_SECONDS = 0.1
_END_SECONDS = 300.0
_MOST_SLICES = 5
_READ_SECONDS = 0.02  # between two mailboxes


@dataclass
class Report:
    """What came of a run. `lost`, `duplicated` and `foreign` (deliveries that no filter explains) must be 0."""

    seconds: float = 0.0
    acknowledged: int = 0
    unknown: int = 0
    deliveries: int = 0
    lost: int = 0
    duplicated: int = 0
    foreign: int = 0
    drained_seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    stalls: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        stalls = ", ".join(
            f"{kind} {self.kills[kind]}x {self.stalls.get(kind, 0.0):.1f} s" for kind in sorted(self.kills)
        )
        return (
            f"{self.acknowledged:,} events acknowledged in {self.seconds:.0f} s "
            f"({self.acknowledged / self.seconds:,.0f}/s), {self.unknown:,} without an answer; "
            f"{self.deliveries:,} deliveries\n"
            f"lost {self.lost}, duplicated {self.duplicated}, foreign {self.foreign}; "
            f"the last event was delivered {self.drained_seconds:.1f} s after its publication\n"
            f"{sum(self.kills.values())} kills; longest stall {max(self.stalls.values(), default=0.0):.1f} s "
            f"({stalls}); slices added {self.changes['added']}x, removed {self.changes['removed']}x, "
            f"{self.changes['refused']} changes refused"
        )


class StallWatch(threading.Thread):
    """How long `delivered_offset` stands still while events wait, or while nobody answers; noted under the name of
    the last victim."""

    def __init__(self, url: str) -> None:
        super().__init__(name="stall-watch", daemon=True)
        self.longest: dict[str, float] = {}
        self.victim = "nothing"
        self._url = url
        self._stopping = threading.Event()

    def run(self) -> None:
        moved, delivered = time.monotonic(), -1
        with httpx.Client(base_url=self._url, timeout=2, trust_env=False) as http:
            while not self._stopping.wait(_LOOK_SECONDS):
                with contextlib.suppress(httpx.TransportError, ValueError):
                    status = http.get("/readyz").json()
                    waits = status["delivered_offset"] < status["log_next_offset"]
                    if not waits or status["delivered_offset"] != delivered:
                        moved, delivered = time.monotonic(), status["delivered_offset"]
                stall = time.monotonic() - moved
                self.longest[self.victim] = max(self.longest.get(self.victim, 0.0), stall)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class SliceChanger(threading.Thread):
    """Adds and removes slices, one to five of them, while everything else goes on."""

    def __init__(self, url: str, every_seconds: float, seed: int, say: Callable[[str], None]) -> None:
        super().__init__(name="slice-changer", daemon=True)
        self.changes: Counter[str] = Counter()
        self._url = url
        self._every_seconds = every_seconds
        self._rng = random.Random(seed)
        self._say = say
        self._stopping = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, trust_env=False) as http:
            while not self._stopping.wait(self._rng.uniform(0.5, 1.5) * self._every_seconds):
                # A site that is away, or has not answered before it was killed, is asked again the next time.
                with contextlib.suppress(httpx.TransportError):
                    self._change(http)

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _change(self, http: httpx.Client) -> None:
        count = len(http.get("/v1/slices").raise_for_status().json()["slices"])
        add = count == 1 or (count < _MOST_SLICES and self._rng.random() < 0.5)
        gone = self._rng.randrange(count)
        answer = http.post("/v1/slices", json={}) if add else http.delete(f"/v1/slices/{gone}")
        word = "refused" if answer.is_error else "added" if add else "removed"
        self.changes[word] += 1
        self._say(f"          slice {word}: {answer.text if answer.is_error else f'{count} before'}")


class Chaos:
    """One run: on the Spark engine with a cluster, or on the inline engine, where the site is all there is to kill.
    `say` gets a line for each kill."""

    def __init__(
        self,
        directory: Path,
        *,
        engine: str,
        seconds: float,
        every_seconds: float,
        events_per_second: int,
        subscriptions: int,
        seed: int,
        say: Callable[[str], None],
        change_slices_every_seconds: float | None = None,
    ) -> None:
        """With `change_slices_every_seconds` the placement is `mpartition`, and its slices change, too."""
        self._directory = directory
        self._change_every_seconds = change_slices_every_seconds
        self._seconds = seconds
        self._every_seconds = every_seconds
        self._events_per_second = events_per_second
        self._filters = some_filters(subscriptions, seed)
        self._rng = random.Random(seed)
        self._seed = seed
        self._say = say
        self._report = Report()
        self._engine = engine
        self._kinds = KINDS if engine == "spark" else ("site",)
        self._cluster = StandaloneCluster(directory / "cluster")

    def run(self) -> Report:
        arguments: list[str] = []
        try:
            if self._engine == "spark":
                state = self._cluster.up(workers=2, cores=1, memory="1g", port=0, progress=lambda text: None)
                arguments = ["--spark-master", state.master_url, "--spark-conf", "spark.executor.memory=512m"]
            if self._change_every_seconds is not None:
                arguments += ["--placement", "mpartition", "--slices", "2"]
            with Service(self._directory / "data", self._engine, *arguments) as service:
                service.wait_until_ready(180)
                reader = MailboxReader(service.url, self._subscribe(service), _READ_SECONDS)
                reader.start()
                with contextlib.closing(reader):
                    self._live(service)
                    reader.finish()
                self._check(reader)
        finally:
            self._cluster.down()
        return self._report

    def _subscribe(self, service: Service) -> list[str]:
        specs = [{"filter": wanted.text} for wanted in self._filters]
        answer = service.http.post("/v1/subscriptions", json=specs)
        answer.raise_for_status()
        return [item["id"] for item in answer.json()["subscriptions"]]

    def _live(self, service: Service) -> None:
        watch = StallWatch(service.url)
        command = [sys.executable, "-m", "support.numbered", service.url, str(self._journal)]
        publisher = subprocess.Popen(
            [*command, str(self._events_per_second)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        while not (self._journal.exists() and self._journal.stat().st_size):
            assert publisher.poll() is None, "the publisher has failed"
            time.sleep(_LOOK_SECONDS)
        began = time.monotonic()
        watch.start()
        changer = None
        if self._change_every_seconds is not None:
            changer = SliceChanger(service.url, self._change_every_seconds, self._seed, self._say)
            changer.start()
        try:
            for kind in self._victims():
                wake = time.monotonic() + self._every_seconds
                if wake > began + self._seconds:
                    break
                time.sleep(self._every_seconds)
                self._kill(kind, service, watch, time.monotonic() - began)
                assert publisher.poll() is None, "the publisher has failed"
            time.sleep(max(0.0, began + self._seconds - time.monotonic()))
        finally:
            if changer is not None:
                changer.stop()
                self._report.changes = changer.changes
            assert publisher.stdin is not None
            publisher.stdin.close()
            code = publisher.wait(120)
        assert code == 0, f"the publisher ended with {code}"
        stopped = time.monotonic()
        self._report.seconds = stopped - began
        service.wait_until_listening()
        service.wait_until_delivered(_END_SECONDS)
        self._report.drained_seconds = time.monotonic() - stopped
        watch.stop()
        self._report.stalls = watch.longest

    @property
    def _journal(self) -> Path:
        return self._directory / "journal"

    # --- killing --------------------------------------------------------------------------------------

    def _victims(self) -> list[str]:
        """Every kind once, in the order of `KINDS`, then in random rounds, so that none is left out for long."""
        kinds = list(self._kinds)
        for _ in range(int(self._seconds / self._every_seconds / len(kinds)) + 1):
            kinds += self._rng.sample(self._kinds, len(self._kinds))
        return kinds

    def _kill(self, kind: str, service: Service, watch: StallWatch, at_seconds: float) -> None:
        found = self._find(kind, service)
        if not found:  # it is being started this moment; whatever runs, something dies
            found, kind = self._find("driver", service), "driver"
        if not found:
            found, kind = [psutil.Process(service.process.pid)], "site"
        process, role = self._rng.choice(found), None
        if kind in ("master", "worker"):
            state = self._cluster.state()
            assert state is not None
            [role] = (record.role for record in state.processes if record.pid == process.pid)
        watch.victim = kind
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            self._report.kills[kind] += 1
        self._say(f"{at_seconds:6.1f} s  killed {role or kind} (process {process.pid})")
        if kind == "site":
            service.process.wait()
            time.sleep(_AWAY_SECONDS)
            service.start()
            service.wait_until_listening()
        elif role is not None:
            time.sleep(_AWAY_SECONDS)
            state = self._cluster.state()
            assert state is not None
            self._cluster._wait_for(self._cluster._start(state, role).processes[-1])

    def _find(self, kind: str, service: Service) -> list[psutil.Process]:
        match kind:
            case "site":
                return [psutil.Process(service.process.pid)]
            case "master" | "worker":
                state = self._cluster.state()
                assert state is not None
                return [psutil.Process(item.pid) for item in state.running if item.role.startswith(kind)]
            case "executor":
                return children_with(self._find("worker", service), "CoarseGrainedExecutorBackend")
            case "daemon":
                return children_with(self._find("executor", service), "culver.pipeline.spark.worker_daemon")
            case "python-worker":
                return children_with(self._find("daemon", service), "culver.pipeline.spark.worker_daemon")
            case "driver":
                return children_with([psutil.Process(service.process.pid)], "culver.pipeline.spark.driver")
            case "driver-jvm":
                return children_with(self._find("driver", service), "SparkSubmit")
            case _:
                return children_with(self._find("driver-jvm", service), "python")

    # --- checking -------------------------------------------------------------------------------------

    def _check(self, reader: MailboxReader) -> None:
        journal, report = Journal.read(self._journal), self._report
        report.acknowledged, report.unknown = len(journal.acknowledged), len(journal.unknown)
        audit = Audit.of(reader.mailboxes, self._filters, journal, self._say)
        report.deliveries, report.lost = audit.deliveries, audit.lost
        report.duplicated, report.foreign = audit.duplicated, audit.foreign


def children_with(parents: list[psutil.Process], word: str) -> list[psutil.Process]:
    """The children that have the word in their command lines."""
    found = []
    for parent in parents:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in parent.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += [child] if word in " ".join(child.cmdline()) else []
    return found
