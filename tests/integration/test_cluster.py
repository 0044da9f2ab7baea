"""A site on a real standalone cluster, a Master and two Workers as processes of their own, some of them killed."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from culver.assembly import RunningSite
from culver.config import PipelineSettings, Settings
from culver.errors import Conflict
from culver.pipeline.spark.standalone import ClusterState, StandaloneCluster
from support.scenes import Expectation, check, random_steps, run

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneCluster, ClusterState]]:
    cluster = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    state = cluster.up(workers=2, cores=1, memory="1g", port=0, progress=lambda text: None)
    try:
        yield cluster, state
    finally:
        stopped = cluster.down()
    assert [process.role for process in stopped] == ["worker-1", "master"], "the other Worker was killed"
    assert not state.running
    assert cluster.state() is None
    assert cluster.down() == []


def executors(state: ClusterState) -> list[psutil.Process]:
    found = []
    for record in state.running:
        for child in psutil.Process(record.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()) else []
    return found


def test_second_cluster_in_a_directory_is_refused(
    cluster: tuple[StandaloneCluster, ClusterState],
) -> None:
    found, state = cluster
    assert [process.role for process in state.running] == ["master", "worker-1", "worker-2"]
    with pytest.raises(Conflict, match="up already"):
        found.up(workers=1, cores=1, memory="512m", port=0, progress=lambda text: None)
    assert found.state() == state


def test_killed_executor_and_killed_worker_lose_and_repeat_nothing(
    tmp_path: Path, cluster: tuple[StandaloneCluster, ClusterState], full_length: bool
) -> None:
    _, state = cluster
    rng = random.Random(12)
    expected = Expectation()
    steps = 300 if full_length else 30

    async def kill_meanwhile(site: RunningSite, victim: psutil.Process) -> None:
        living = asyncio.create_task(random_steps(site, rng, expected, steps))
        await asyncio.sleep(0.3)
        victim.kill()
        await living
        await check(site, expected)

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, steps)
        await check(site, expected)
        for _ in range(4 if full_length else 1):
            while not (running := executors(state)):  # noqa: ASYNC110 - the cluster starts another
                await asyncio.sleep(0.1)
            await kill_meanwhile(site, rng.choice(running))
        await kill_meanwhile(site, psutil.Process(state.processes[-1].pid))
        assert len(state.running) == 2

    pipeline = PipelineSettings(
        engine="spark", spark_master=state.master_url, spark_conf={"spark.executor.memory": "512m"}
    )
    run(Settings(data_dir=tmp_path / "data", pipeline=pipeline), scene)
