"""Matches are divided into parts that Arrow's arrays can hold, without a look at every id for every event."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from culver.matcher import match_lists
from culver.matcher.match_lists import lists_of, split
from culver.matching import Matches


def test_all_ids_are_looked_at_once_and_only_where_the_matches_may_be_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def binary_length(ids: pa.Array) -> pa.Array:
        looks.append(len(ids))
        return pc.call_function("binary_length", [ids])

    monkeypatch.setattr(pc, "binary_length", binary_length)
    ids = pa.array([f"filter {number}" for number in range(100)], pa.large_string())
    matches = Matches(np.arange(0, 81, 10), np.tile(np.arange(10), 8))
    assert list(split(matches, ids)) == [matches]
    assert looks == []
    monkeypatch.setattr(match_lists, "_MOST_BYTES", 250)
    parts = list(split(matches, ids))
    assert [len(part.offsets) - 1 for part in parts] == [2, 2, 2, 2]
    assert looks == [100]
    assert [row for part in parts for row in lists_of(part, ids).to_pylist()] == [ids[:10].to_pylist()] * 8
