"""A streaming query of Spark from a durable subscription, killed with its whole process while events are published.

The query is a process of its own, and so is the site, which is killed too. Every event must be in the files of the
query's sink exactly once, as its `_spark_metadata` tells.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pyarrow.parquet as pq
import pytest

from support import spark_query
from support.service import Service

pytestmark = [pytest.mark.spark, pytest.mark.system]

_EVENTS_A_POST = 5
# A query that lives for seconds does not earn what the second compiler costs.
_ENVIRONMENT = {
    **os.environ,
    "PYSPARK_SUBMIT_ARGS": "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell",
}


class QueryProcess:
    """The query, and every process that it starts."""

    def __init__(self, site: Service, directory: Path) -> None:
        self._command = [
            sys.executable, spark_query.__file__, site.url, "s", str(directory), "maxEventsPerBatch=400",
            "eventsPerPartition=150",
        ]  # fmt: skip
        self._log = directory / "query.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(exist_ok=True)

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=_ENVIRONMENT)

    def kill(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for each in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGKILL)
        self._process.wait()

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"the query ended:\n{self._log.read_text()[-6000:]}")


class Publisher:
    """Publishes numbers in a thread, and keeps those that were acknowledged and those that may have been stored."""

    def __init__(self, site: Service) -> None:
        self._site = site
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher")
        self.acknowledged: set[int] = set()
        self.sent = 0

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(base_url=self._site.url, timeout=10, trust_env=False) as http:
            while not self._done.wait(0.05):
                numbers = range(self.sent, self.sent + _EVENTS_A_POST)
                self.sent = numbers.stop
                with contextlib.suppress(httpx.HTTPError):
                    answer = http.post("/v1/events", json=[{"number": number} for number in numbers])
                    if answer.is_success:
                        self.acknowledged |= set(numbers)


def sink_rows(directory: Path) -> list[dict[str, object]]:
    """The rows of all files that the sink's log of batches names, which are those that Spark reads."""
    files: dict[str, None] = {}
    metadata = directory / "out" / "_spark_metadata"
    for path in metadata.glob("*"):
        if path.name.startswith("."):
            continue
        for line in path.read_text().splitlines()[1:]:
            files[httpx.URL(json.loads(line)["path"]).path] = None
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def _until(condition: Callable[[], bool], query: QueryProcess, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        query.check()
        assert time.monotonic() < deadline, "nothing more happens"
        time.sleep(0.1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "site") as service:
        service.wait_until_ready()
        yield service


def _run(site: Service, directory: Path, kills: int, rng: random.Random) -> None:
    body = {"id": "s", "filter": "number >= 0"}
    site.http.post("/v1/subscriptions", json=body).raise_for_status()
    query = QueryProcess(site, directory)
    batches = directory / "checkpoint" / "commits"

    def committed() -> int:
        return max([-1, *(int(each.name) for each in batches.glob("*") if each.name.isdigit())])

    try:
        with Publisher(site) as publisher:
            for kill in range(kills):
                before = committed()
                query.start()
                _until(lambda before=before: committed() > before, query, 120)  # type: ignore[misc]
                time.sleep(rng.uniform(0, 1.5))
                if kill == kills // 2:
                    site.kill()
                    time.sleep(rng.uniform(0, 0.5))
                    site.start()
                query.kill()
            site.wait_until_ready()
            publisher.stop()
        query.start()
        site.wait_until_delivered()
        stored = _stored(site)
        assert publisher.acknowledged <= set(stored)
        _until(lambda: len(sink_rows(directory)) >= len(stored), query, 120)
        time.sleep(1)
        found = sink_rows(directory)
    finally:
        query.kill()
    numbers = sorted(int(str(row["number"])) for row in found)
    assert numbers == sorted(stored), (rng, len(numbers), len(stored))
    ids = {row["delivery_id"] for row in found}
    assert len(ids) == len(found)


def _stored(site: Service) -> list[int]:
    """What is in the log, with the numbers whose publication was not acknowledged and is there all the same."""
    numbers: list[int] = []
    at, end = 0, site.status()["log_next_offset"]
    while at < end:
        page = site.http.get("/v1/log/events", params={"from": at, "to": end, "limit": 10_000}).json()
        numbers += [each["event"]["number"] for each in page["events"]]
        at = page["next"]
    return numbers


@pytest.mark.slow(seconds=30)
def test_every_event_is_in_the_files_once_though_query_and_site_are_killed(
    site: Service, tmp_path: Path
) -> None:
    _run(site, tmp_path / "query", 1, random.Random(1))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_event_is_in_the_files_once_through_ten_kills(site: Service, tmp_path: Path) -> None:
    seed = int(os.environ.get("CULVER_SEED", "7"))
    _run(site, tmp_path / "query", 10, random.Random(seed))
