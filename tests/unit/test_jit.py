"""Kernels and their cache on disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
from typing import NamedTuple
import numpy as np
from culver.jit import Integers, compiled

class {name}(NamedTuple):
    values: Integers

@compiled
def total(columns):
    return columns.values.sum() {more}

print(total({name}(np.arange(4))))
"""


def run_kernel(directory: Path, home: Path | None = None, **parts: str) -> str:
    (directory / "kernel.py").write_text(KERNEL.format(**parts), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", "import kernel"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=environment if home is None else {**environment, "HOME": str(home)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow(seconds=4)
def test_a_kernel_is_compiled_anew_when_its_source_and_the_name_of_its_argument_have_changed(
    tmp_path: Path,
) -> None:
    assert run_kernel(tmp_path, name="Columns", more="") == "6\n"
    cached = set((tmp_path / "__pycache__").glob("kernel.total-*.nbi"))
    assert len(cached) == 1
    assert run_kernel(tmp_path, name="Arrays", more="+ 1") == "7\n"


@pytest.mark.slow(seconds=4)
def test_a_kernel_is_kept_in_the_users_cache_or_nowhere_where_the_package_cannot_be_written_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "__pycache__").touch()  # the superuser may write to any directory, but not into a file
    assert run_kernel(tmp_path, home=tmp_path, name="Columns", more="") == "6\n"
    assert len(list((tmp_path / ".cache" / "numba").rglob("kernel.total-*.nbi"))) == 1
    assert run_kernel(tmp_path, home=tmp_path / "kernel.py", name="Columns", more="") == "6\n"
