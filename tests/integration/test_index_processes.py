"""The index and its kernels in processes of their own."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from culver.matching import Entry, IndexWriter, warm_up
from culver.model.language.parser import parse

MATCH = """
import json, sys, time
from pathlib import Path
from culver.matching import warm_up
from culver.matching import Index
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event

warm_up()
batch = concat(encode([Event({}, {"x": n, "s": "ab"}, b"{}") for n in range(4)], 0))
index = Index.open(Path(sys.argv[1]), int(sys.argv[2]))
begin = time.perf_counter()
matches = index.match(batch)
print(json.dumps([matches.offsets.tolist(), matches.numbers.tolist(), time.perf_counter() - begin]))
"""

COMPILE = """
import numpy as np
from culver.matching.index.needs.met_needs import count

counts = np.zeros(3, np.int64)
count(np.array([0, 1], np.int32), np.array([1, -1], np.int32), np.array([0, 1, 3]), counts)
assert counts.tolist() == [0, 2, 0]
"""

WARM = """
import sys
from pathlib import Path
from culver.matching import Entry, Index, IndexWriter, warm_up
from culver.matching.index.keys import key_kernels
from culver.matching.index.needs import need_cache, met_needs
from culver.matching.index.results import grouping
from culver.matching.index.search import columnar_matcher
from culver.model.columns import concat, encode
from culver.model import Event
from culver.model.language import parse

directory = Path(sys.argv[1])
warm_up()
every = [
    *(columnar_matcher.match_segments, key_kernels.fill_keys, key_kernels.payload_sizes),
    *(grouping.group_list, grouping.count_groups),
    *(met_needs.count, met_needs.fill, met_needs.drop_repeated),
    *(need_cache.find_codes, need_cache.fill_slots),
]
before = [list(kernel.signatures) for kernel in every]
assert all(len(signatures) == 1 for signatures in before), before
first = Event({}, {"x": 0.5, "s": "ab", "l": ("a", "a")}, b"{}")
written = concat(encode([first, Event({"s": "b"}, {"x": 3}, b"{}")], 0))
with Index.open(directory, 5) as index:
    for batch in (written, written.slice(1, 1)):
        index.match(batch)
        index.match(batch, 10)
many = ", ".join(map(str, range(40)))
texts = ("y > 1", "'a' IN l", f"x IN ({many})", "s IS NOT NULL AND x + 1 > x")
others = [Entry(number, parse(text), 5) for number, text in enumerate(texts, 9)]
IndexWriter(directory).publish(6, others, [(1, 7)], 0)
Index.open(directory, 6).match(written, 0)
assert [list(kernel.signatures) for kernel in every] == before
"""

TEXTS = ("x >= 2", "s = 'ab' AND x < 1", "s LIKE '%b' AND x = 3", "TRUE")


def publish(directory: Path) -> None:
    entries = [Entry(number, parse(text)) for number, text in enumerate(TEXTS, 1)]
    IndexWriter(directory).publish(5, entries, [], 0)


def start(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def output_of(process: "subprocess.Popen[str]") -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def test_another_process_reads_the_same_version(tmp_path: Path) -> None:
    publish(tmp_path)
    warm_up()  # so that the kernels are in the cache
    offsets, numbers, seconds = json.loads(output_of(start(MATCH, str(tmp_path), "5")))
    assert offsets == [0, 2, 3, 5, 8]
    found = [sorted(numbers[begin:end]) for begin, end in itertools.pairwise(offsets)]
    assert found == [[2, 4], [4], [1, 4], [1, 3, 4]]
    assert seconds < 0.5  # warmed up: no kernel had to be compiled or loaded


@pytest.mark.slow(seconds=6)
def test_processes_that_start_at_once_share_an_empty_kernel_cache(tmp_path: Path) -> None:
    together = [start(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    for process in together:
        output_of(process)
    assert list(tmp_path.rglob("*.nbi"))
    output_of(start(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)))


def test_warming_up_leaves_nothing_to_compile(tmp_path: Path) -> None:
    publish(tmp_path)
    output_of(start(WARM, str(tmp_path)))
