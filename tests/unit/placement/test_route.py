import numpy as np
import pytest

from culver.matching.index.slicing import ANYWHERE
from culver.placement.placement import NOWHERE, Route, always

HOMES = np.array([ANYWHERE, 0, 1, 2, 0])
CHOICE = np.array([[1, NOWHERE, NOWHERE], [1, 2, 3], [NOWHERE, NOWHERE, NOWHERE], [2, 3, NOWHERE]])


@pytest.mark.parametrize("turn", range(6))
def test_of_several_candidates_exactly_one_gets_the_event(turn: int) -> None:
    (sets,) = Route(4, (CHOICE,)).chosen(HOMES, 3, turn).sets
    assert [bool(np.isin(number, row)) for number, row in zip(sets, CHOICE, strict=True)] == [True] * 4
    assert (sets != NOWHERE).tolist() == [True, True, False, True]


def test_candidates_take_turns() -> None:
    choice = np.tile(CHOICE[3], (6, 1))
    chosen = Route(6, (choice,)).chosen(HOMES, 3)
    assert chosen.sets[0].tolist() == [2, 3, 2, 3, 2, 3]
    assert chosen.slices[0].tolist() == [1, 2, 1, 2, 1, 2]


def test_what_is_at_home_anywhere_is_worked_on_by_slices_in_turn() -> None:
    chosen = Route(4, (always(0, 4),)).chosen(HOMES, 3, turn=2)
    assert chosen.sets[0].tolist() == [0] * 4
    assert chosen.slices[0].tolist() == [2, 0, 1, 2]


def test_what_is_at_home_anywhere_goes_where_the_event_goes_anyway() -> None:
    chosen = Route(4, (always(0, 4), CHOICE[:, :1])).chosen(HOMES, 3, turn=2)
    assert chosen.slices[1].tolist() == [0, 0, NOWHERE, 1]
    assert chosen.slices[0].tolist() == [0, 0, 1, 1]
