import subprocess
import sys

import pytest

from culver.errors import InvalidConfiguration
from culver.plugins import FILTERS, PLACEMENTS, filter_named, placement_named


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_a_known_name_gives_an_empty_filter(name: str) -> None:
    assert len(filter_named(name)()) == 0


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_a_known_name_gives_a_placement_of_that_name(name: str) -> None:
    assert placement_named(name)(2).name == name


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfiguration, match="'fast'; known: columnar, counting, encoded, reference"):
        filter_named("fast")
    with pytest.raises(
        InvalidConfiguration,
        match="'best'; known: event-space, hashed, kmeans, mpartition, one-dimension, replicated",
    ):
        placement_named("best")


def test_an_implementation_is_imported_only_when_it_is_asked_for() -> None:
    code = "import sys, culver.plugins; print('numba' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
