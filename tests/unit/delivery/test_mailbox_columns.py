import random

import numpy as np
import pytest

from culver.delivery.mailboxes.mailbox_columns import NEVER, NONE, MailboxColumns, SlotTable


@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_found_like_in_a_dictionary(seed: int) -> None:
    choose = random.Random(seed)
    numbers, expected = SlotTable(), dict[int, int]()
    unused = list(range(6_000))
    for step in range(300):
        if choose.random() < 0.7:
            count = choose.choice((0, 1, 1, 50))
            in_order = choose.random() < 0.8
            chosen = unused[:count] if in_order else choose.sample(unused, min(count, len(unused)))
            unused = [number for number in unused if number not in set(chosen)]
            slots = [choose.randrange(100) for _ in chosen]
            numbers.add(chosen, slots)
            expected.update(zip(chosen, slots, strict=True))
        elif expected:
            for number in choose.sample(sorted(expected), min(len(expected), 40)):
                numbers.remove([number])
                del expected[number]
        if step % 20 == 0:
            asked = np.arange(-1, 6_001)
            assert numbers.slots_of(asked).tolist() == [expected.get(int(n), NONE) for n in asked]


def test_a_number_that_was_removed_can_be_added_again() -> None:
    numbers = SlotTable()
    numbers.add([3, 5], [0, 1])
    numbers.remove([5])
    numbers.remove([4])
    assert numbers.slot_of(5) == NONE
    numbers.add([5], [7])
    numbers.remove([3])
    numbers.add([3], [8])
    assert [numbers.slot_of(number) for number in (3, 4, 5)] == [8, NONE, 7]


def test_a_slot_that_was_released_starts_anew() -> None:
    columns = MailboxColumns()
    slots = [columns.take() for _ in range(200)]
    assert slots == list(range(200))
    columns.cursor[150] = 17
    columns.oldest[150] = 3
    columns.pending[199] = 4
    columns.release(np.array([150]))
    assert columns.take() == 150
    assert columns.cursor[150] == -1
    assert columns.oldest[150] == NEVER
    assert columns.pending[199] == 4
    assert columns.used == 200
