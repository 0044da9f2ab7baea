"""The frame: what it says about a run, to people and to machines."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import culver
from culver.bench import bench_frame, run_environment, spine
from culver.bench.spine import SpinePlan
from culver.cli import main

RECORD: bench_frame.Record = {
    "workload": "W1",
    "subscriptions": 40_000,
    "engine": "inline",
    "events_per_second": 12_345.6,
    "publish_events_per_second": 99_999.9,
    "p50_ms": 1.5,
    "notifications_per_event": None,
}


def test_the_document_has_the_promised_members() -> None:
    document = bench_frame.document("spine", [RECORD])
    assert set(document) == {"name", "commit", "dirty", "machine", "versions", "results"}
    assert document["name"] == "spine"
    assert document["results"] == [RECORD]
    assert json.loads(json.dumps(document)) == document


def test_the_versions_name_what_takes_part_without_importing_it() -> None:
    code = (
        "import sys, json; from culver.bench import run_environment; found = run_environment.versions();"
        "assert 'pyspark' not in sys.modules and 'numba' not in sys.modules; print(json.dumps(found))"
    )
    found = json.loads(_python(code))
    assert set(found) == {
        "culver",
        "python",
        "numpy",
        "numba",
        "pyarrow",
        "pyspark",
        "duckdb",
        "polars",
        "java",
    }
    assert found["culver"] == culver.__version__
    assert found["python"] == ".".join(str(part) for part in sys.version_info[:3])


def test_the_machine_is_described() -> None:
    machine = run_environment.machine()
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] > 2**28


def test_the_java_version_is_none_where_java_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run_environment.versions()["java"] is None


def test_the_commit_and_its_changes_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "src" / "culver"
    package.mkdir(parents=True)
    source = package / "__init__.py"
    source.write_text("")
    monkeypatch.setattr(culver, "__file__", str(source))
    assert run_environment.commit() == (None, False)
    _git(tmp_path, "init", "-q")
    assert run_environment.commit() == (None, False), "below a repository that does not hold it"
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "first")
    head = _git(tmp_path, "rev-parse", "HEAD")
    assert run_environment.commit() == (head, False)
    source.write_text("changed = True")
    assert run_environment.commit() == (head, True)


def test_the_table_is_aligned_and_shows_units() -> None:
    other: bench_frame.Record = {"workload": "W1", "engine": "spark", "p99_ms": 70.123456, "ready": True}
    assert bench_frame.table([RECORD, other]).splitlines() == [
        "workload  subscriptions  engine    events   publish  p50  notifications    p99  ready",
        "                                 events/s  events/s   ms         /event     ms",
        "--------  -------------  ------  --------  --------  ---  -------------  -----  -----",
        "W1               40,000  inline    12,346   100,000  1.5              -      -      -",
        "W1                    -  spark          -         -    -              -  70.12    yes",
    ]


def test_json_goes_to_standard_output_and_the_table_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = _stand_in_for_the_measurement(monkeypatch)
    assert main(["bench", "spine", "--engine", "inline", "--quick", "--json", "-"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["name"] == "spine"
    assert document["results"] == [RECORD]
    assert "measuring inline" in shown.err
    assert "12,346" in shown.err
    assert [(engine, plan.subscriptions, plan.events) for engine, plan in asked] == [("inline", 1_000, 5_000)]


def test_json_goes_into_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _stand_in_for_the_measurement(monkeypatch)
    path = tmp_path / "results.json"
    assert main(["bench", "spine", "--json", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert len(json.loads(path.read_text())["results"]) == 2


def test_both_engines_are_measured_on_the_workloads_own_number_of_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = _stand_in_for_the_measurement(monkeypatch)
    assert main(["bench", "spine"]) == 0
    assert [(engine, plan.workload.name, plan.subscriptions) for engine, plan in asked] == [
        ("spark", "W1", 40_000),
        ("inline", "W1", 40_000),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "W9"], "known workloads: W1, W2, W3"),
        (["--json", "/nowhere/at/all.json"], "--json"),
        (["--engine", "steam"], "'steam' is not one of"),
        (["--rate", "0"], "0 is not in the range"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = _stand_in_for_the_measurement(monkeypatch)
    assert main(["bench", "spine", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert asked == []


def test_a_failed_benchmark_says_why_and_gives_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(engine: str, plan: SpinePlan, tell: bench_frame.Tell) -> bench_frame.Record:
        raise bench_frame.BenchmarkFailed("the site announced a gap")

    monkeypatch.setattr(spine, "run_engine", fail)
    assert main(["bench", "spine", "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "culver: the site announced a gap\n"


def test_the_help_lists_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "spine" in shown
    assert "Throughput and latency of the whole path" in shown


def test_the_command_loads_nothing_heavy() -> None:
    code = (
        "import sys; import culver.bench.bench_command;"
        "print([name for name in ('numpy', 'pyarrow', 'httpx', 'pyspark') if name in sys.modules])"
    )
    assert _python(code).strip() == "[]"


def _stand_in_for_the_measurement(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, SpinePlan]]:
    asked: list[tuple[str, SpinePlan]] = []

    def measure(engine: str, plan: SpinePlan, tell: bench_frame.Tell) -> bench_frame.Record:
        asked.append((engine, plan))
        tell(f"measuring {engine}")
        return RECORD

    monkeypatch.setattr(spine, "run_engine", measure)
    return asked


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def _git(directory: Path, *arguments: str) -> str:
    identity: list[Any] = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
