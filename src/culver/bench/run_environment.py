"""Where a figure was measured: the commit, the machine, and the versions of everything involved."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import culver

_LIBRARIES = ("numpy", "numba", "pyarrow", "pyspark", "duckdb", "polars")


def commit() -> tuple[str | None, bool]:
    """The git commit of this code, and whether the working tree differs from it.

    Returns (None, False) if the code is not in a git checkout or git is not installed. An installed copy that
    merely lies below some other repository is not a checkout of it."""
    git = ["git", "-C", str(Path(culver.__file__).parent)]
    if _output([*git, "ls-files", "--error-unmatch", "__init__.py"]) is None:
        return None, False
    head = _output([*git, "rev-parse", "HEAD"])
    return head, head is not None and bool(_output([*git, "status", "--porcelain", ":/"]))


def machine() -> dict[str, Any]:
    """The resources that this run can use."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "platform": platform.platform(),
    }


def versions() -> dict[str, str | None]:
    """Versions by name; None for what is not installed."""
    found: dict[str, str | None] = {
        "culver": culver.__version__,
        "python": platform.python_version(),
    }
    for library in _LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = None
    found["java"] = _java_version()
    return found


def _output(command: list[str]) -> str | None:
    """What a command prints on either stream; None if it fails or does not exist."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1].strip() if model else platform.machine()


def _java_version() -> str | None:
    """The version of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    text = _output([java, "-version"]) if java else None
    version = re.search(r'version "([^"]+)"', text) if text else None
    return version[1] if version else None
