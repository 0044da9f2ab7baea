"""What every writer of files needs of the disk."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make names that were added to, changed in or removed from a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
