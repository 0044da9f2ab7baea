"""A site on a real standalone cluster, a Master and two Workers as processes of their own, some of them killed."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from culver.config import PipelineSettings, Settings
from culver.errors import Conflict
from culver.matching.index.storage.version_files import index_versions
from culver.pipeline.batch_plan import LoadFile
from culver.pipeline.site_files import SiteFiles
from culver.pipeline.spark.standalone_cluster import ClusterState, StandaloneCluster
from culver.site import RunningSite
from support.maps import files_of_slices, mapped_segments
from support.scenes import (
    Expectation,
    check,
    delivered,
    narrow_predicate,
    publish,
    random_steps,
    run,
    subscribe,
)
from support.until import until

pytestmark = pytest.mark.spark


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path / "cluster")
    try:
        yield cluster
    finally:
        cluster.down()


def executors(state: ClusterState) -> list[psutil.Process]:
    found = []
    for record in state.running:
        for child in psutil.Process(record.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()) else []
    return found


async def check_shares(
    site: RunningSite, rng: random.Random, expected: Expectation, state: ClusterState
) -> None:
    """After some batches with the same index no executor holds what is not of its slice, or of all."""
    files, before = SiteFiles(site.settings.data_dir), -1
    while before != (newest := index_versions(files.index)[-1]):
        before = newest
        for _ in range(3):
            await publish(site, rng, expected, 20)
            await delivered(site)
    shares = files_of_slices(files.index, newest)
    assert [bool(one - other) for one, other in itertools.permutations(shares, 2)] == [True, True]
    for executor in executors(state):
        held = set()
        for process in executor.children(recursive=True):
            held |= set(mapped_segments(files.data_dir, process.pid))
        assert held
        assert any(held <= share for share in shares), (held, shares)


@pytest.mark.thorough
@pytest.mark.slow(seconds=40)
def test_executors_come_and_go_with_slices_and_killed_ones_lose_and_repeat_nothing(
    tmp_path: Path, cluster: StandaloneCluster, full_length: bool
) -> None:
    state = cluster.up(workers=2, cores=1, memory="1g", port=0, progress=lambda text: None)
    assert [process.role for process in state.running] == ["master", "worker-1", "worker-2"]
    with pytest.raises(Conflict, match="up already"):
        cluster.up(workers=1, cores=1, memory="512m", port=0, progress=lambda text: None)
    assert cluster.state() == state
    rng = random.Random(12)
    expected = Expectation()
    steps = 300 if full_length else 30
    told = LoadFile(SiteFiles(tmp_path / "data").load)

    async def has_executors(count: int) -> None:
        await until(lambda: len(executors(state)) == told.read().cores == count, 60)

    async def kill_meanwhile(site: RunningSite, victim: psutil.Process) -> None:
        published = len(expected.events)
        living = asyncio.create_task(random_steps(site, rng, expected, steps))
        await until(lambda: living.done() or len(expected.events) > published + 20)
        victim.kill()
        await living
        await check(site, expected)

    async def scene(site: RunningSite) -> None:
        await subscribe(site, rng, expected, 400, narrow_predicate)
        await has_executors(1)
        await site.slices.add()
        await random_steps(site, rng, expected, steps)
        await has_executors(2)
        await check_shares(site, rng, expected, state)
        for _ in range(3 if full_length else 0):
            await kill_meanwhile(site, rng.choice(executors(state)))
            await has_executors(2)
        await kill_meanwhile(site, rng.choice(executors(state)))
        await site.slices.remove(0)
        await random_steps(site, rng, expected, steps)
        await has_executors(1)
        await kill_meanwhile(site, psutil.Process(state.processes[-1].pid))
        assert len(state.running) == 2

    pipeline = PipelineSettings(
        engine="spark",
        spark_master=state.master_url,
        spark_conf={"spark.executor.memory": "512m"},
        placement="mpartition",
        slices=1,
        elastic=True,
    )
    run(Settings(data_dir=tmp_path / "data", pipeline=pipeline), scene)
    stopped = cluster.down()
    assert [process.role for process in stopped] == ["worker-1", "master"], "the other Worker was killed"
    assert not state.running
    assert cluster.state() is None
    assert cluster.down() == []
