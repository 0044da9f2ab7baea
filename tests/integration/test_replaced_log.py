"""A site on another log than the file log: nothing outside the plug-in table knows the difference."""

import random
from pathlib import Path

import pytest

from culver import plugins
from culver.config import PipelineSettings, Settings
from culver.pipeline import SiteFiles
from culver.site import RunningSite
from support.memory_log import MemoryLog
from support.scenes import Expectation, check, random_steps, run


def test_site_runs_on_any_log_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "LOGS", {"file": "support.memory_log:MemoryLog"})
    settings = Settings(data_dir=tmp_path, pipeline=PipelineSettings(engine="inline"))
    rng = random.Random(3)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 80)
        await check(site, expected)

    run(settings, scene, scene)
    assert MemoryLog.open_reader(SiteFiles(tmp_path).log_address).next_offset == len(expected.events) > 0
    assert not (tmp_path / "log").exists()
