"""Kernels and their cache on disk."""

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


def run_kernel(directory: Path, **parts: str) -> str:
    (directory / "kernel.py").write_text(KERNEL.format(**parts), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "import kernel"], cwd=directory, capture_output=True, text=True, check=False
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
