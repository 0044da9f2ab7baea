"""A streaming query into the sink is killed, as are its workers and the site: every row is stored once."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import spark_sink_query
from support.service import Service

pytestmark = [pytest.mark.spark, pytest.mark.system]

FILES, ROWS = 40, 1_000


class Query:
    def __init__(self, url: str, directory: Path) -> None:
        self._command = [sys.executable, spark_sink_query.__file__, url, str(directory)]
        self._log = directory / "query.log"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def workers(self) -> list[psutil.Process]:
        """The processes of Spark's Python workers."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            return [each for each in children if "daemon" in " ".join(_command_of(each))]
        return []

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            for each in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGKILL)
        self.process.wait()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-6_000:]


def _command_of(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        command: list[str] = process.cmdline()
        return command
    return []


@pytest.mark.thorough
@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(900)
def test_every_row_is_stored_once_whatever_is_killed(tmp_path: Path, full_length: bool) -> None:
    rng = random.Random(9)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        values = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"n": values}), tmp_path / "in" / f"{number:04}.parquet")
    with Service(tmp_path / "site") as site:
        site.wait_until_ready()
        assert site.http.post("/v1/subscriptions", json={"id": "all", "filter": "TRUE"}).status_code == 201
        query = Query(site.url, tmp_path)
        query.start()
        try:
            for turn in range(12 if full_length else 4):
                before = site.status()["log_next_offset"]
                deadline = time.monotonic() + 120
                while site.status()["log_next_offset"] < before + 700 and query.process.poll() is None:
                    assert time.monotonic() < deadline, query.tail()
                    time.sleep(0.02)
                time.sleep(rng.random() * 0.3)
                if turn % 3 == 1 and (workers := query.workers()):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        rng.choice(workers).send_signal(signal.SIGKILL)
                elif turn % 3 == 2:
                    site.kill()
                    site.start()
                    site.wait_until_ready()
                else:
                    query.kill()
                    query.start()
            for _ in range(5):
                if query.process.wait(300) == 0:
                    break
                query.start()  # a killed daemon of the workers may have cost all attempts of a task
            else:
                raise AssertionError(query.tail())
        finally:
            query.kill()
        site.wait_until_delivered()
        stored = Counter(item["event"]["n"] for item in site.receive_all("all"))
    assert stored == Counter(range(FILES * ROWS)), query.tail()
