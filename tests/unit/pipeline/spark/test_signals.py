"""Waiting for a file to be written to."""

import os
import threading
import time
from contextlib import closing
from pathlib import Path

from culver.pipeline.head import Head, HeadFile
from culver.pipeline.spark.signals import FileWatch


def test_write_of_the_head_wakes_the_waiting_one(tmp_path: Path) -> None:
    with closing(HeadFile.create(tmp_path / "head")) as head, closing(FileWatch(tmp_path / "head")) as watch:
        timer = threading.Timer(0.05, lambda: head.write(Head(1, 1, 0)))
        timer.start()
        began = time.monotonic()
        watch.wait(60)
        assert time.monotonic() - began < 30
        timer.join()
        with closing(HeadFile.open(tmp_path / "head")) as reader:
            assert reader.read() == Head(1, 1, 0)


def test_write_before_the_wait_is_not_missed_and_counts_once(tmp_path: Path) -> None:
    with closing(HeadFile.create(tmp_path / "head")) as head, closing(FileWatch(tmp_path / "head")) as watch:
        head.write(Head(1, 1, 0))
        head.write(Head(2, 1, 0))
        began = time.monotonic()
        watch.wait(60)
        assert time.monotonic() - began < 30
        began = time.monotonic()
        watch.wait(0.05)
        assert time.monotonic() - began >= 0.04


def test_file_that_cannot_be_watched_is_looked_at_every_few_milliseconds(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = FileWatch(tmp_path / "missing")
    began = time.monotonic()
    watch.wait(60)
    assert time.monotonic() - began < 30
    watch.close()
    assert len(os.listdir("/proc/self/fd")) == before
