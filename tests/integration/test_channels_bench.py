"""`culver bench channels` runs whole: servers behind limits, players in processes of their own, both policies."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from culver.channels.servers.server_program import find_server_program
from culver.errors import ServerNotStarted
from support.until import until

pytestmark = pytest.mark.thorough

try:
    find_server_program()
except ServerNotStarted as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.mark.parametrize("limits", [(), ("--proxies",)], ids=["best limits", "proxies"])
def test_a_quick_game_tells_how_many_players_each_policy_bears(
    tmp_path: Path, limits: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "culver", "bench", "channels", "--experiment", "2", "--quick", *limits]
    done = subprocess.run(
        [*command, "--plots", str(tmp_path), "--json", "-"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["results"]
    players = {record["policy"]: record for record in records if record["what"] == "players"}
    assert set(players) == {"dynamoth", "consistent-hashing"}
    for record in players.values():
        assert record["experiment"] == "2"
        assert record["unit"] == "players"
        assert record["ours"] > 0
        assert ("proxies" in record["note"]) >= bool(limits)
    assert players["dynamoth"]["paper"] == 1_000
    assert {path.name for path in tmp_path.iterdir()} >= {"figure-5a.svg", "figure-5c.svg", "figure-6.svg"}


@pytest.mark.slow(seconds=45)
def test_quick_reconfigurations_stand_beside_slot_migrations_and_the_analyser_tells_its_cost(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "culver", "bench", "channels", "--quick", "--plots", str(tmp_path)]
    done = subprocess.run(
        [*command, "--experiment", "reconfigurations", "--experiment", "analyser", "--json", "-"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["results"]
    counts = {
        (record["system"], record["what"]): record["ours"]
        for record in records
        if record["experiment"] == "reconfigurations"
    }
    ours, theirs = "channels", "valkey cluster, redis-py, CLUSTER SETSLOT"
    assert min(counts[ours, "deliveries due"], counts[theirs, "deliveries due"]) > 0
    assert [counts[ours, what] for what in ("lost", "duplicated", "out of order", "errors raised")] == [0] * 4
    assert counts[theirs, "lost"] >= 0
    costs = {record["what"]: record["ours"] for record in records if record["experiment"] == "analyser"}
    assert 0 < costs["analyser's questions, of the server's CPU"] < 100
    assert 0 <= costs["dispatcher and analyser, of a core"] < 100


def test_a_benchmark_that_is_terminated_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "culver", "bench", "channels", "--experiment", "2", "--quick"]
    # Servers run in the benchmark's temporary folder, and so are told apart from those of others.
    bench = subprocess.Popen(
        [*command, "--proxies", "--plots", str(tmp_path / "plots")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        asyncio.run(until(lambda: len(_processes_in(tmp_path)) >= 4, 60))
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        bench.kill()
        bench.wait()
    assert _processes_in(tmp_path) == []
    assert not list(tmp_path.glob("culver-channels-*"))


def _processes_in(folder: Path) -> list[str]:
    """The command lines of all processes that work in a folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cwd").readlink().is_relative_to(folder):
                found.append(process.joinpath("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
