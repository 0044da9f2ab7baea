"""The wheel in fresh environments, from the registry of packages: with `--full` only, in minutes for each Python.

It runs on this Python and on each other supported one whose `python3.N` is on the PATH.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.service import Service, free_port

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
# Files that programs read, beside Python's.
DATA = {"culver/model/language/filter.lark", "culver/gateway/api/docs.html", "culver/py.typed"}
MOST_CLIENT_BYTES = 20_000_000
FRESH_PACKAGES = ("_distutils_hack", "pip", "pkg_resources", "setuptools")
COMPILE_SECONDS = 900.0

pytestmark = [pytest.mark.timeout(3600), pytest.mark.together("installation")]


@pytest.fixture(autouse=True)
def _full(full_length: bool) -> None:
    if not full_length:
        pytest.skip("installs packages; --full runs it")


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    """The path of a Python of that version."""
    if sys.version.startswith(f"{request.param}."):
        return sys.executable
    found = shutil.which(f"python{request.param}")
    if found is None or subprocess.run([found, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no Python {request.param}")
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources, without what building and running leave in them."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in SOURCES:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(place, copy)
    return copy


class Environment:
    """A fresh virtual environment, in which lines of a shell run."""

    def __init__(self, python: str, directory: Path, working_directory: Path) -> None:
        subprocess.run([python, "-m", "venv", directory], check=True)
        self.bin = directory / "bin"
        self.working_directory = working_directory
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CULVER_", "PYTHON", "NUMBA_"))
        }
        self.variables["PATH"] = f"{self.bin}:{os.environ['PATH']}"

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", "-c", line],
            cwd=self.working_directory,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, line: str) -> str:
        done = self.run(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, line: str, awaited: str) -> Iterator[Path]:
        """The line's output, from when it has said `awaited` on."""
        output = self.working_directory / f"output-{line.split()[1]}.txt"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {line}"],
                cwd=self.working_directory,
                env=self.variables,
                stdout=stream,
                stderr=stream,
            )
        try:
            wait_for(output, awaited, process)
            yield output
        finally:
            process.terminate()
            process.wait()

    def size(self) -> int:
        """What pip has installed, without pip itself and what comes with every new environment."""
        packages = next(self.bin.parent.glob("lib/python3.*/site-packages"))
        return sum(
            path.stat().st_size
            for path in packages.rglob("*")
            if path.is_file() and path.relative_to(packages).parts[0].split("-")[0] not in FRESH_PACKAGES
        )


def wait_for(output: Path, awaited: str, process: "subprocess.Popen[bytes] | None" = None) -> None:
    deadline = time.monotonic() + COMPILE_SECONDS
    while awaited not in output.read_text():
        assert time.monotonic() < deadline, output.read_text()
        assert process is None or process.poll() is None, output.read_text()
        time.sleep(0.1)


def documented_lines() -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"### With pip\n.*?```sh\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_five_documented_lines_lead_from_a_checkout_to_a_received_event(
    python: str, tmp_path: Path, checkout: Path
) -> None:
    build, install, serve, subscribe, publish = documented_lines()
    environment = Environment(python, tmp_path / "environment", checkout)
    environment.check(build)
    (wheel,) = (checkout / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert set(names) >= DATA
    assert [name for name in names if not name.startswith("culver") or "__pycache__" in name] == []

    environment.check(install)
    environment.check("pip check")
    url = f"http://127.0.0.1:{free_port()}"
    environment.variables["CULVER_URL"] = url
    environment.variables["CULVER_GATEWAY_PORT"] = url.rpartition(":")[2]
    with environment.running(serve, "Culver is ready") as served:
        assert "compiling the kernels, once for this installation" in served.read_text()
        with environment.running(subscribe, "listening") as received:
            environment.check(publish)
            wait_for(received, "21.5")
    with environment.running(serve, "Culver is ready") as served:
        assert "compiling" not in served.read_text()
    assert "culver[spark]" in environment.run("culver serve").stderr


def test_the_client_alone_is_small_and_talks_with_a_site(python: str, tmp_path: Path, checkout: Path) -> None:
    environment = Environment(python, tmp_path / "environment", checkout)
    environment.check("pip install --quiet . && pip check")
    assert environment.size() < MOST_CLIENT_BYTES
    refusal = environment.run("culver serve")
    assert refusal.stderr == "culver: culver serve needs the server: pip install 'culver[server]'\n"
    with Service(tmp_path / "data") as service:
        service.wait_until_ready()
        environment.variables["CULVER_URL"] = service.url
        environment.check("culver subs add alerts 'price > 20'")
        environment.check("""culver pub '{"symbol": "XYZ", "price": 21.5}'""")
        assert "21.5" in environment.check("culver sub --durable alerts --count 1")
        environment.check("culver top --once")
