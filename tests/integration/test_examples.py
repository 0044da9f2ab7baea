"""The examples run as they are, against a gateway on a socket."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def site() -> FakeSite:
    return FakeSite(gateway_settings())


def _run(name: str, url: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        env={**os.environ, "CULVER_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_has_a_test_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "alerts_durable.py",
        "matcher.py",
        "quickstart.py",
        # test_spark_match runs those of Spark.
        "spark_alerts.py",
        "spark_batch.py",
        "spark_source.py",
        "spark_streaming.py",
        "sync_publisher.py",
    ]


def test_the_quickstart_shows_what_matches(site: FakeSite) -> None:
    with site_in_thread(site) as url:
        assert _run("quickstart.py", url) == "1 XYZ 21.5\n2 XYZ 22.0\n"


def test_durable_alerts_wait_for_their_program(site: FakeSite) -> None:
    from culver.cli import main

    with site_in_thread(site) as url:
        assert main(["subs", "add", "alerts", "level = 'error'", "--url", url]) == 0
        for text in ("one", "two", "three"):
            main(["pub", f'{{"level": "error", "text": "{text}"}}', "--url", url])
        assert _run("alerts_durable.py", url, ALERTS="2") == "alerts:0 one\nalerts:1 two\n"
        assert _run("alerts_durable.py", url, ALERTS="1") == "alerts:2 three\n"


def test_the_matcher_shows_its_parts() -> None:
    lines = _run("matcher.py", "").splitlines()
    assert lines[0] == "['dear', 'urgent']"
    assert lines[2] == "no match: unknown"
    assert lines[-4].split() == ["1", "ABC", "[urgent,", "alert.1]"]
    assert lines[-1] == "5 4"


def test_the_blocking_publisher_stores_everything(site: FakeSite) -> None:
    with site_in_thread(site) as url:
        assert _run("sync_publisher.py", url) == "1000 measurements are on disk\n"
    assert len(site.events) == 1000
