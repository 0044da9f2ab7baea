import random

import numpy as np
import pytest

from culver.pipeline.checksum import checksum


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 31, 32, 33, 64, 1_000, 1_003])
def test_every_changed_bit_and_every_lost_row_changes_it(length: int) -> None:
    rng = random.Random(length)
    rows = np.array([rng.randrange(1 << 16) for _ in range(length)], np.uint16)
    before = checksum(rows)
    assert checksum(rows.copy()) == before
    seen = {before}
    for place in rng.sample(range(length), min(length, 40)):
        for bit in range(16):
            rows[place] ^= 1 << bit
            seen.add(checksum(rows))
            rows[place] ^= 1 << bit
    assert len(seen) == 1 + 16 * min(length, 40)
    assert checksum(np.append(rows, np.uint16(0))) not in seen
    if length:
        assert checksum(rows[:-1]) not in seen


def test_two_rows_that_change_places_change_it() -> None:
    rows = np.arange(512).astype(np.uint16)
    before = checksum(rows)
    for distance in (1, 4, 32, 64):  # within a word, to the next word, lane and round
        rows[[100, 100 + distance]] = rows[[100 + distance, 100]]
        assert checksum(rows) != before
        rows[[100, 100 + distance]] = rows[[100 + distance, 100]]


def test_it_does_not_matter_where_rows_lie_in_memory() -> None:
    rows = np.arange(100).astype(np.uint16)
    for shift in range(4):
        room = np.empty(104, np.uint16)
        room[shift : shift + 100] = rows
        assert checksum(room[shift : shift + 100]) == checksum(rows)
    rows.flags.writeable = False
    assert checksum(rows) == checksum(rows.copy())
