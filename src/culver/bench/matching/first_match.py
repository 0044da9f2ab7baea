"""Measures how soon a new process has its first match, with the kernels in the cache on disk: from the moment the
interpreter is up until the numbers are there. Imports and the loading of kernels count.

`columnar` maps an index that was written before, as a restarted site and every Spark worker do. Other filters
compile the subscriptions in the process.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.workloads import Workload
from culver.matching import Entry, IndexWriter
from culver.model.columns import serialise

SUBSCRIPTIONS = 1_000
_EVENTS = 64  # so many that some match
_LIMIT_SECONDS = 300.0

_CHILD = """
import sys, time
started = time.perf_counter()
import culver.matching
import pickle
from pathlib import Path
from culver.model.columns.event_batch import deserialise
from culver.plugins import filter_named

directory = Path(sys.argv[2])
if sys.argv[1] == "columnar":
    from culver.matching import Index
    target = Index.open(directory / "index", 1)
else:
    target = filter_named(sys.argv[1])()
    target.add(pickle.loads((directory / "subscriptions").read_bytes()))
matches = target.match(deserialise((directory / "events").read_bytes()))
seconds = time.perf_counter() - started
assert len(matches.numbers), "no event matches"
print(seconds)
"""


def first_match_seconds(name: str, workload: Workload, seed: int, attempts: int) -> float:
    """The best of several attempts with the filter of that name, after one attempt that fills the kernels' cache."""
    with tempfile.TemporaryDirectory(prefix="culver-bench-") as directory:
        subscriptions = list(draw(workload, SUBSCRIPTIONS, seed).predicates())
        (Path(directory) / "subscriptions").write_bytes(pickle.dumps(subscriptions))
        entries = [Entry(number, predicate) for number, predicate in subscriptions]
        IndexWriter(Path(directory) / "index").publish(1, entries, [], 0)
        (Path(directory) / "events").write_bytes(serialise(workload.event_batch(_EVENTS, seed)))
        return min([_attempt(name, directory) for _ in range(1 + attempts)][1:])


def _attempt(name: str, directory: str) -> float:
    command = [sys.executable, "-c", _CHILD, name, directory]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, env=os.environ, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BenchmarkFailed(f"{name} gave no first match in a process of its own: {last}")
    return float(done.stdout)
