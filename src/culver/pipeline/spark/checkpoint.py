"""Looks into Spark's checkpoint: whether a query can go on from it, and sets it aside where it cannot.

    checkpoint/metadata      the query's id, one JSON object
               offsets/N     "v1", settings, and where batch N ends; written before it runs
               commits/N     "v1" and one JSON object; written when it is through

Losing a checkpoint loses no event: a query without one starts at the frontier, which follows from the notification
files. So the site sets a damaged one aside, and names it, before Spark fails on it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

_LINES_OF_OFFSETS, _LINES_OF_COMMITS = 3, 2


def damage_in(checkpoint: Path) -> str | None:
    """What is wrong, as a sentence with the file's name; None where a query can start from it, or there is none.

    Checks what Spark reads at a start: the metadata, the last commit and the last two offsets."""
    try:
        # Commits first, because a driver that is about to end may still write, and writes offsets before commits.
        commits = _numbers(checkpoint / "commits")
        offsets = _numbers(checkpoint / "offsets")
        if (checkpoint / "metadata").exists():
            _read(checkpoint / "metadata")
        elif offsets:
            raise ValueError(f"{checkpoint / 'metadata'} is missing")
        if commits and (not offsets or offsets[-1] < commits[-1]):
            raise ValueError(
                f"{checkpoint / 'offsets' / str(commits[-1])} is missing, though it was committed"
            )
        if offsets and offsets[-1] > 0 and offsets[-2:-1] != [offsets[-1] - 1]:
            raise ValueError(f"{checkpoint / 'offsets' / str(offsets[-1] - 1)} is missing")
        if offsets and offsets[-1] > 0 and (not commits or commits[-1] < offsets[-1] - 1):
            raise ValueError(f"{checkpoint / 'commits' / str(offsets[-1] - 1)} is missing")
        for number in offsets[-2:]:
            path = checkpoint / "offsets" / str(number)
            end = _read(path, _LINES_OF_OFFSETS)
            if not all(isinstance(end.get(name), int) for name in ("offset", "index_version", "start_up")):
                raise ValueError(f"{path} names no position of the log")
        if commits:
            _read(checkpoint / "commits" / str(commits[-1]), _LINES_OF_COMMITS)
    except (OSError, ValueError) as exc:
        return str(exc)
    return None


def set_aside(checkpoint: Path) -> Path:
    """Move it out of the way, over one that was moved before; returns where it is now."""
    aside = checkpoint.with_name("checkpoint.unusable")
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)
    return aside


def _numbers(directory: Path) -> list[int]:
    if not directory.exists():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def _read(path: Path, count: int = 1) -> dict[str, Any]:
    """The object on the last of so many lines; the first of several is a version. Raises ValueError."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    try:
        if len(lines) != count or (count > 1 and lines.pop(0) != "v1"):
            raise ValueError
        objects: list[dict[str, Any]] = [json.loads(line) for line in lines]
        if not all(isinstance(each, dict) for each in objects):
            raise ValueError
    except ValueError as exc:
        raise ValueError(f"{path} is torn or altered") from exc
    return objects[-1]
