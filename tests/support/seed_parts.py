"""Seeds of a simulation in parts, one for each test: `make test` runs the first part, `make thorough` the others."""

import pytest


def seed_parts(seeds: int, each: int = 20) -> pytest.MarkDecorator:
    """A test of `part`, a range of seeds, for each part of all seeds from 0 on."""
    parts = [range(first, min(first + each, seeds)) for first in range(0, seeds, each)]
    others = [pytest.param(part, marks=pytest.mark.thorough) for part in parts[1:]]
    return pytest.mark.parametrize(
        "part", [parts[0], *others], ids=lambda part: f"{part.start}-{part.stop - 1}"
    )
