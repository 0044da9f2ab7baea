"""What a process has mapped into its memory, as Linux tells."""

from pathlib import Path


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


def set_of(segment: str) -> int:
    """Of which set a segment is, which its name tells."""
    return int(segment.split("-")[1])
