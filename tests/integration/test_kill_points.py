"""Spark's processes killed at the moments that matter between an event's publication and the commit of its batch.

head moves | offset log | partial result | join | notification file | commit log
          1            2                3 3      4 (in the middle)   5

The first moment, after which nothing of the batch is left, is part of `--full`.
"""

import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from culver.config import PipelineSettings, Settings
from culver.site import RunningSite
from support.events import random_event
from support.moments import CREATED, RENAMED_FROM, RENAMED_TO, Strike
from support.scenes import Expectation, check, delivered, random_steps, ready, run, subscribe
from support.until import until

pytestmark = pytest.mark.spark


Point = Callable[[RunningSite], Awaitable[None]]


def of_this_site(name: str) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if name in " ".join(child.cmdline()) else []
    return found


def virtual_machine() -> psutil.Process:
    [driver] = of_this_site("culver.pipeline.spark.driver")
    [machine] = [child for child in driver.children() if "SparkSubmit" in " ".join(child.cmdline())]
    return machine


def writer(name: str) -> int:
    """The process that writes a file, which is a part of its name until it is finished."""
    return int(name.split(".")[-2])


def numbers_in(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.iterdir() if path.name.isdigit()}


class Points:
    """One site's life. Each method is one point: events are published, something dies, and what has been reached by
    then is looked at; whether nothing was lost is for `check` to say."""

    def __init__(self, data_dir: Path) -> None:
        self.rng = random.Random(15)
        self.expected = Expectation()
        self._partials = data_dir / "partials"
        self._notifications = data_dir / "delivery" / "notifications"
        self._offsets = data_dir / "spark" / "checkpoint" / "offsets"
        self._commits = data_dir / "spark" / "checkpoint" / "commits"

    async def live(self, site: RunningSite, full_length: bool) -> None:
        await subscribe(site, self.rng, self.expected, 60)
        await random_steps(site, self.rng, self.expected, 20)
        points: list[Point] = [
            self.half_a_file,
            self.after_a_partial_result,
            self.before_the_join,
            self.after_the_offset_log,
            self.before_the_commit,
            self.all_workers,
        ]
        if full_length:  # because it starts Spark once more
            points.insert(3, self.before_the_offset_log)
        for point in points:
            await ready(site)
            await delivered(site)
            await point(site)
            await random_steps(site, self.rng, self.expected, 6)
            await check(site, self.expected)

    async def before_the_offset_log(self, site: RunningSite) -> None:
        machine, logged = virtual_machine(), numbers_in(self._offsets)
        machine.send_signal(signal.SIGSTOP)
        await self._publish(site)
        assert numbers_in(self._offsets) == logged
        [driver] = of_this_site("culver.pipeline.spark.driver")
        driver.kill()
        machine.kill()

    async def after_the_offset_log(self, site: RunningSite) -> None:
        machine = virtual_machine().pid

        def logged(what: int, name: str) -> int | None:
            return machine if what & RENAMED_TO and name.isdigit() else None

        await self._strike(site, Strike(self._offsets, logged))
        assert max(numbers_in(self._offsets)) > max(numbers_in(self._commits))

    async def after_a_partial_result(self, site: RunningSite) -> None:
        """The task that has put it is tried again. By then, the other one may have joined it, or not."""
        last = 0

        def put(what: int, name: str) -> int | None:
            nonlocal last
            if what & RENAMED_FROM:
                last = writer(name)
            return last if what & RENAMED_TO else None

        self._partials.mkdir(exist_ok=True)
        await self._strike(site, Strike(self._partials, put))

    async def before_the_join(self, site: RunningSite) -> None:
        """All workers die but the one that has put the first partial result of a range: one of them would find it,
        and join it with its own."""
        workers: set[int] = {process.pid for process in of_this_site("culver.pipeline.spark.worker_daemon")}
        last = 0

        def others(what: int, name: str) -> int | None:
            nonlocal last
            if what & RENAMED_FROM:
                last = writer(name)
            if not what & RENAMED_TO:
                return None
            victims = sorted(workers - {last, psutil.Process(last).ppid()})
            for pid in victims[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return victims[0]

        self._partials.mkdir(exist_ok=True)
        await self._strike(site, Strike(self._partials, others))

    async def half_a_file(self, site: RunningSite) -> None:
        def begun(what: int, name: str) -> int | None:
            return writer(name) if what & CREATED and name.endswith(".tmp") else None

        for _ in range(5):
            await self._strike(site, Strike(self._notifications, begun))
            if list(self._notifications.glob("*.tmp")):
                return
            await delivered(site)  # it was finished before it could be killed
        raise AssertionError("no file was left unfinished")

    async def before_the_commit(self, site: RunningSite) -> None:
        machine = virtual_machine().pid

        def done(what: int, name: str) -> int | None:
            return machine if what & RENAMED_TO and name.endswith(".ntf") else None

        await self._strike(site, Strike(self._notifications, done))

    async def all_workers(self, site: RunningSite) -> None:
        """With the process that forks them, and the one that plans batches."""
        for process in of_this_site("culver.pipeline.spark.worker_daemon"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await self._publish(site)

    async def _strike(self, site: RunningSite, strike: Strike) -> None:
        with strike:
            await self._publish(site)
            await until(lambda: strike.struck)

    async def _publish(self, site: RunningSite) -> None:
        events = [random_event(self.rng) for _ in range(100)]
        receipt = await site.publications.publish(events)
        self.expected.events.update(
            zip(range(receipt.first_offset, receipt.next_offset), events, strict=True)
        )


@pytest.mark.thorough
@pytest.mark.slow(seconds=45)
def test_no_moment_of_a_kill_loses_or_repeats_anything(tmp_path: Path, full_length: bool) -> None:
    # Spark tries a task of a local master once, unless told otherwise.
    pipeline = PipelineSettings(engine="spark", spark_master="local[2,4]", placement="hashed", slices=2)
    points = Points(tmp_path / "data")
    run(
        Settings(data_dir=tmp_path / "data", pipeline=pipeline), partial(points.live, full_length=full_length)
    )
