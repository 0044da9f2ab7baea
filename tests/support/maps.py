"""What a process has mapped of an index into its memory, as Linux tells, and what it may have."""

from pathlib import Path

import numpy as np

from culver.matching.index.storage.version_files import read_version
from culver.placement.placement import sets_of_slice


def mapped_segments(directory: Path, pid: int | None = None) -> dict[str, int]:
    """The segments of an index somewhere below a directory that a process (this one) has mapped: names, and bytes."""
    found: dict[str, int] = {}
    for line in Path(f"/proc/{pid or 'self'}/maps").read_text().splitlines():
        addresses, *_, path = line.split(maxsplit=5)
        if path.startswith(str(directory)) and path.removesuffix(" (deleted)").endswith(".segment"):
            low, high = (int(address, 16) for address in addresses.split("-"))
            name = Path(path.removesuffix(" (deleted)")).name
            found[name] = found.get(name, 0) + high - low
    return found


def files_of_slices(index: Path, version: int) -> list[set[str]]:
    """The segments that each slice of a version works on, or may work on. None of them stays mapped."""
    found = read_version(index, version)
    homes = np.array(found.placement.homes)
    shares = [set(sets_of_slice(homes, own)) for own in range(found.placement.slices)]
    return [{part.file for part in found.segments if part.set in share} for share in shares]
