import numpy as np
import pytest

from culver.placement.placement import Route, Way

MARKED = np.array([[True, False, False], [True, True, True], [False, False, False], [False, True, True]])


def test_any_slice_is_taken_in_turns() -> None:
    assert Route(4, 3, Way.ANY).chosen().argmax(axis=1).tolist() == [0, 1, 2, 0]
    assert Route(4, 3, Way.ANY).chosen(turn=2).argmax(axis=1).tolist() == [2, 0, 1, 2]
    assert Route(4, 3, Way.ANY).chosen().sum(axis=1).tolist() == [1, 1, 1, 1]


def test_all_slices_get_every_event() -> None:
    assert Route(2, 3, Way.ALL).chosen().tolist() == [[True] * 3] * 2


def test_all_marked_slices_get_the_event() -> None:
    assert Route(4, 3, Way.ALL, MARKED).chosen(turn=5).tolist() == MARKED.tolist()


@pytest.mark.parametrize("turn", range(6))
def test_of_several_candidates_exactly_one_gets_the_event(turn: int) -> None:
    chosen = Route(4, 3, Way.ANY, MARKED).chosen(turn)
    assert chosen.sum(axis=1).tolist() == [1, 1, 0, 1]
    assert (chosen <= MARKED).all()


def test_candidates_take_turns() -> None:
    marked = np.tile(MARKED[3], (6, 1))
    assert Route(6, 3, Way.ANY, marked).chosen().sum(axis=0).tolist() == [0, 3, 3]
