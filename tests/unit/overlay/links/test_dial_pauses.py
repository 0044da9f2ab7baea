from random import Random

from hypothesis import given, strategies as st

from culver.overlay.links.dialler import DialPauses


@given(st.integers())
def test_pauses_double_within_bounds(seed: int) -> None:
    pauses = DialPauses(Random(seed))
    longest = 0.1
    for _ in range(12):
        pause = pauses.next_seconds()
        assert max(0.1, longest / 2) <= pause <= longest
        longest = min(5.0, 2 * longest)


def test_a_link_that_stood_resets_the_pauses_and_a_short_one_does_not() -> None:
    pauses = DialPauses(Random(1))
    for _ in range(10):
        pauses.next_seconds()
    pauses.link_stood(0.5)
    assert pauses.next_seconds() >= 2.5
    pauses.link_stood(60.0)
    assert pauses.next_seconds() == 0.1


def test_two_sites_do_not_pause_alike() -> None:
    one, two = DialPauses(Random(1)), DialPauses(Random(2))
    assert [one.next_seconds() for _ in range(9)] != [two.next_seconds() for _ in range(9)]
