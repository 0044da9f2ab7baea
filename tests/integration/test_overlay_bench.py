"""`culver bench overlay` runs whole: real sites with limited links between them, and simulated ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough


def _records(tmp_path: Path, *flags: str, paper: str = "b-drp") -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "culver", "bench", "overlay", "--paper", paper, "--quick", *flags]
    done = subprocess.run(
        [*command, "--plots", str(tmp_path), "--json", "-"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["name"] == "overlay"
    records: list[dict[str, Any]] = document["results"]
    return records


def test_a_quick_run_has_a_real_broker_and_compares_ways_to_route(tmp_path: Path) -> None:
    records = _records(tmp_path, "--figure", "2", "--figure", "3", "--routing")
    found = {(record["experiment"], record["what"], record["policy"]): record for record in records}
    assert {experiment for experiment, _, _ in found} == {"2", "3", "traffic", "reach", "tables"}
    assert found["2", "matching clients", None]["paper"] == 4.2
    deliveries = found["3", "deliveries of a message", None]
    assert (deliveries["paper"], deliveries["how"]) == (27, "real")
    assert found["3", "undelivered 1 s after the end", None]["ours"] == 0
    policies = {policy for experiment, what, policy in found if what == "false positives"}
    assert policies == {"b-drp", "b-drp, paper's encoding", "names-only", "exact", "flooding"}
    assert found["traffic", "false positives", "exact"]["ours"] == 0
    assert found["tables", "time to match an event", "b-drp"]["target"] == "<= 50"
    assert {path.name for path in tmp_path.iterdir()} == {"figure-2.svg", "figure-3.svg"}


@pytest.mark.slow(seconds=20)
def test_linked_brokers_deliver_everything_and_the_model_stands_beside_them(tmp_path: Path) -> None:
    records = _records(tmp_path, "--figure", "4", "--figure", "5")
    real = {
        record["what"]: record for record in records if record["how"] == "real" and record["brokers"] == 2
    }
    assert real["undelivered 1 s after the end"]["ours"] == 0
    assert real["use of the busiest link"]["ours"] > 0
    modelled = [
        record["what"]
        for record in records
        if (record["how"], record["brokers"], record["rate"])
        == ("simulated", 2, real["use of the busiest link"]["rate"])
    ]
    assert "use of the busiest link" in modelled
    assert {record["what"] for record in records if record["experiment"] == "costs"} == {
        "take", "deliver", "send", "receive", "forward",
    }  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} >= {
        "figure-4-8.svg",
        "figure-5-8.svg",
        "figure-5-2-real.svg",
    }


def test_a_quick_run_of_gossip_stands_beside_bluedoves_figures(tmp_path: Path) -> None:
    records = _records(tmp_path, paper="gossip")
    assert {record["experiment"] for record in records} == {"rounds", "bytes", "detection"}
    assert {record["paper"] for record in records if record["experiment"] == "bytes"} == {2_900}
    assert [record["what"] for record in records if record["met"] is False] == []
    assert {path.name for path in tmp_path.iterdir()} == {"gossip-rounds.svg", "gossip-bytes.svg"}
