"""A site whose index is in slices gives what the reference gives, on both engines, whatever the placement."""

import random
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from culver.assembly import RunningSite
from culver.config import PipelineSettings, Settings
from culver.errors import InvalidConfiguration
from support.scenes import Expectation, check, random_steps, run, subscribe

DIVIDING = ["hashed", "event-space", "kmeans"]
MANY = 250  # subscriptions at once, enough for a placement to learn from


def settings_for(data_dir: Path, engine: str, placement: str, slices: int) -> Settings:
    pipeline = PipelineSettings(engine=engine, spark_master="local[2]", placement=placement, slices=slices)
    return Settings(data_dir=data_dir, pipeline=pipeline)


def slices_on_disk(data_dir: Path) -> set[int]:
    from culver.matching.index.snapshot import read_version, versions_in

    newest = read_version(data_dir / "index", versions_in(data_dir / "index")[-1])
    return {part.slice for part in newest.parts}


@pytest.mark.parametrize("slices", [1, 2, 3, 4])
@pytest.mark.parametrize("placement", ["replicated", *DIVIDING])
def test_inline_site_in_slices_gives_what_the_reference_gives(
    placement: str, slices: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{placement} {slices}")
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await subscribe(site, rng, expected, MANY)
        await random_steps(site, rng, expected, 30)
        await check(site, expected)

    run(settings_for(tmp_path / "data", "inline", placement, slices), scene, scene)
    used = 1 if placement == "replicated" else slices
    assert slices_on_disk(tmp_path / "data") == set(range(used))


@pytest.mark.spark
def test_spark_site_gives_what_the_reference_gives_while_its_placement_changes_between_starts(
    tmp_path: Path,
) -> None:
    rng = random.Random(12)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await subscribe(site, rng, expected, MANY)
        await random_steps(site, rng, expected, 40)
        await check(site, expected)

    for placement, slices in (("hashed", 3), ("event-space", 2), ("kmeans", 4)):
        run(settings_for(tmp_path / "data", "spark", placement, slices), scene)
        assert slices_on_disk(tmp_path / "data") == set(range(slices))
        assert list((tmp_path / "data" / "partials").iterdir()) == []


def test_unknown_placement_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="known: auto, event-space, hashed, kmeans, replicated"):
        run(settings_for(tmp_path / "data", "inline", "alphabetical", 2), AsyncMock())


def test_auto_divides_an_index_that_does_not_fit_and_keeps_one_that_does(tmp_path: Path) -> None:
    rng = random.Random(13)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await subscribe(site, rng, expected, MANY)
        await random_steps(site, rng, expected, 20)
        await check(site, expected)

    def settings(memory: int) -> Settings:
        pipeline = PipelineSettings(engine="inline", slices=3, worker_memory_bytes=memory)
        return Settings(data_dir=tmp_path / "data", pipeline=pipeline)

    run(settings(0), scene)
    assert slices_on_disk(tmp_path / "data") == {0}
    run(settings(20_000), scene)
    assert slices_on_disk(tmp_path / "data") == {0, 1, 2}
