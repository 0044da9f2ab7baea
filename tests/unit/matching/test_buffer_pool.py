"""Results never change while somebody holds them, whatever memory later results get."""

import numpy as np

from culver.matching.index.search.buffer_pool import result_buffer

SIZE = 1 << 18


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_a_room_begins_at_a_page_and_has_the_size_that_was_asked_for() -> None:
    held = [result_buffer(SIZE + size) for size in range(5)]
    assert [address(room) % 4096 for room in held] == [0] * 5
    assert all(len(room) >= SIZE + size for size, room in enumerate(held))


def test_room_that_nobody_holds_is_used_again() -> None:
    room = result_buffer(SIZE)
    before = address(room)
    del room
    assert address(result_buffer(SIZE)) == before


def test_room_is_not_used_again_while_a_view_of_it_is_held() -> None:
    room = result_buffer(SIZE)
    result = room[10:20]
    result[:] = 7
    del room
    for _ in range(4):
        result_buffer(SIZE)[:] = 0
    assert result.tolist() == [7] * 10


def test_rooms_held_at_once_are_different() -> None:
    rooms = [result_buffer(SIZE) for _ in range(5)]
    assert len({address(room) for room in rooms}) == 5


def test_small_and_very_large_rooms_are_not_kept() -> None:
    assert len(result_buffer(10)) == 10
    kept = result_buffer(SIZE)
    before = address(kept)
    del kept
    result_buffer((1 << 24) + 1)
    assert address(result_buffer(SIZE)) == before
