import numpy as np

from culver.matching.index.segments.segment_file import FOREVER
from culver.matching.index.storage.index_writer import columns_of_ends
from culver.matching.index.storage.version_files import NO_TOMBSTONES, Tombstones


def test_of_two_ends_the_earlier_holds() -> None:
    places, until = columns_of_ends([(7, 50), (3, 40), (7, 45)])
    joined = NO_TOMBSTONES.joined(places, until).joined(*columns_of_ends([(3, 60), (9, 1)]))
    assert joined.places.tolist() == [3, 7, 9]
    assert joined.until.tolist() == [40, 45, 1]
    assert [joined.dead(horizon) for horizon in (0, 1, 40, 44, 45)] == [0, 1, 2, 2, 3]


def test_spread_and_gathered_again_they_are_the_same() -> None:
    tombstones = NO_TOMBSTONES.joined(*columns_of_ends([(1, 5), (3, 0)]))
    until = tombstones.spread(4)
    assert until is not None
    assert until.tolist() == [FOREVER, 5, FOREVER, 0]
    again = Tombstones.gathered(until)
    assert (again.places.tolist(), again.until.tolist()) == ([1, 3], [5, 0])


def test_none_are_nothing_to_matching() -> None:
    assert NO_TOMBSTONES.spread(4) is None
    assert len(Tombstones.gathered(np.full(4, FOREVER))) == 0
    assert NO_TOMBSTONES.joined(*columns_of_ends([])) is NO_TOMBSTONES
