"""A site on a Spark cluster of several machines, whose Workers come, go and lose their network while events flow.

    head            site             one, two             client
    Master          culver serve     Worker, executor     publisher, reader of the mailboxes

The machines are network namespaces (`network_hosts`). They share one disk, as a cluster shares the data directory,
but not the site's directory for temporary files: no Worker reaches the socket on which processes of the site's own
machine tell it about results.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx
import psutil

from culver.pipeline import StandaloneCluster
from support.chaos import StallWatch, children_with
from support.mailbox_audit import Audit
from support.mailbox_reader import MailboxReader
from support.network_hosts import NetworkHosts
from support.numbered import Journal, some_filters
from support.service import Service

_PORT = 7077
_DAEMON = "culver.pipeline.spark.worker_daemon"
_LIMIT_SECONDS = 180.0
_LOOK_SECONDS = 0.02
_READ_SECONDS = 0.02
# What shows that a machine takes part: it works and goes on working for so long.
_STEADY_SECONDS = 5.0
_SUBSCRIPTIONS = 50
_SEED = 20261119


@dataclass
class Seen:
    """How long things took, and what came of all events."""

    seconds: dict[str, float] = field(default_factory=dict)
    longest_stalls: dict[str, float] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0
    audit: Audit | None = None


class SeveralMachines:
    """A context manager; at its end no process and no namespace is left. Between, the thread that entered it is on
    the client's machine. `say` gets a line for each thing that is seen."""

    def __init__(
        self, directory: Path, events_per_second: int, say: Callable[[str], None], *settings: str
    ) -> None:
        """`settings` of Spark, as NAME=VALUE, are added to those of the site."""
        self.seen = Seen()
        self.hosts = NetworkHosts("head", "site", "one", "two", "client")
        self._directory = directory
        self._events_per_second = events_per_second
        self._say = say
        self._settings = settings
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            hosts = stack.enter_context(self.hosts)
            hidden = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="culver-site-")))
            self._hidden = hidden
            self.master = f"spark://{hosts.address('head')}:{_PORT}"
            stack.callback(self._cluster("head").down)
            line = ["up", "--host", hosts.address("head"), "--port", str(_PORT), "--workers", "0"]
            self._culver_cluster("head", *line)
            stack.callback(self._cluster("one").down)
            stack.callback(self._cluster("two").down)
            self.join("one")
            stack.enter_context(hosts.inside("client"))
            settings = ("spark.executor.memory=512m", "spark.executor.cores=1", *self._settings)
            self.service = stack.enter_context(
                Service(
                    self._directory / "data",
                    "spark",
                    *("--spark-master", self.master),
                    *(word for setting in settings for word in ("--spark-conf", setting)),
                    host=hosts.address("site"),
                    prefix=hosts.on("site"),
                    TMPDIR=str(hidden),
                )
            )
            self.service.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def traffic(self) -> Iterator[None]:
        """Events flow and mailboxes are read; at the end all of them are compared with what the filters say."""
        filters, journal = some_filters(_SUBSCRIPTIONS, _SEED), self._directory / "journal"
        answer = self.service.http.post("/v1/subscriptions", json=[{"filter": each.text} for each in filters])
        identifiers = [item["id"] for item in answer.raise_for_status().json()["subscriptions"]]
        url, rate = self.service.url, str(self._events_per_second)
        self._watch = StallWatch(url)
        with contextlib.closing(MailboxReader(url, identifiers, _READ_SECONDS)) as reader:
            reader.start()
            self._watch.start()
            publisher = subprocess.Popen(
                [sys.executable, "-m", "support.numbered", url, str(journal), rate],
                stdin=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            try:
                yield
            finally:
                publisher.communicate(timeout=_LIMIT_SECONDS)
                self._watch.stop()
            assert publisher.returncode == 0
            self.service.wait_until_delivered()
            reader.finish()
            written, seen = Journal.read(journal), self.seen
            seen.acknowledged, seen.unknown = len(written.acknowledged), len(written.unknown)
            seen.longest_stalls = self._watch.longest
            seen.audit = Audit.of(reader.mailboxes, filters, written, self._say)

    # --- what happens ---------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """The longest stall from now on is noted under this name."""
        self._watch.victim = name

    def join(self, name: str) -> None:
        self._culver_cluster(name, "join", self.master, "--cores", "1")

    def leave(self, name: str) -> None:
        self._culver_cluster(name, "down")

    def time(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for the condition, and note how long that took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() < began + _LIMIT_SECONDS, f"{what}: not within {_LIMIT_SECONDS:.0f} s"
            time.sleep(_LOOK_SECONDS)
        self.seen.seconds[what] = time.monotonic() - began
        self._say(f"{self.seen.seconds[what]:6.1f} s  {what}")

    # --- what can be seen -----------------------------------------------------------------------------

    def executors(self, name: str) -> list[psutil.Process]:
        state = self._cluster(name).state()
        workers = [psutil.Process(each.pid) for each in state.running] if state is not None else []
        return children_with(workers, "CoarseGrainedExecutorBackend")

    def python_workers(self, name: str, *, but: list[psutil.Process] | None = None) -> list[psutil.Process]:
        """Those of all executors but some. An executor has one from its first task on."""
        executors = [each for each in self.executors(name) if each not in (but or [])]
        return children_with(children_with(executors, _DAEMON), _DAEMON)

    def flows(self) -> bool:
        """Whether what is published is delivered within a second. Not while the site cannot be reached."""
        with contextlib.suppress(httpx.TransportError):
            status = self.service.status()
            return bool(status["log_next_offset"] - status["delivered_offset"] < self._events_per_second)
        return False

    def flows_for_a_while(self) -> bool:
        began = time.monotonic()
        while time.monotonic() < began + _STEADY_SECONDS:
            if not self.flows():
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    # --- the parts ------------------------------------------------------------------------------------

    def _cluster(self, name: str) -> StandaloneCluster:
        return StandaloneCluster(self._directory / name)

    def _culver_cluster(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "culver", "cluster", *arguments]
        said = self.hosts.run(name, [*command, "--dir", str(self._directory / name)], self._hidden)
        self._say(f"          {said.splitlines()[0]}")
