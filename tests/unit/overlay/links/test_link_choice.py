"""The duel of two connections between the same sites."""

import itertools

from hypothesis import given, strategies as st

from culver.overlay.links.link_choice import Contender, replaces

contenders = st.builds(Contender, st.integers(0, 2), st.booleans(), st.booleans())


def test_a_newer_boot_replaces_whoever_dialled() -> None:
    for by_smaller, before in itertools.product((False, True), repeat=2):
        assert replaces(Contender(2, by_smaller), Contender(1, before))
        assert not replaces(Contender(1, by_smaller), Contender(2, before, silent=True))


def test_the_connection_that_the_smaller_key_dialled_stays() -> None:
    smaller, larger = Contender(1, True), Contender(1, False)
    assert replaces(smaller, larger)
    assert not replaces(larger, smaller)


def test_the_first_of_two_equal_connections_stays_unless_it_is_silent() -> None:
    for by_smaller in (False, True):
        assert not replaces(Contender(1, by_smaller), Contender(1, by_smaller))
        assert replaces(Contender(1, by_smaller), Contender(1, by_smaller, silent=True))
        assert replaces(Contender(1, not by_smaller), Contender(1, by_smaller, silent=True))


@given(contenders, contenders)
def test_two_live_connections_never_replace_each_other_in_turn(one: Contender, two: Contender) -> None:
    if not one.silent and not two.silent:
        assert not (replaces(one, two) and replaces(two, one))
