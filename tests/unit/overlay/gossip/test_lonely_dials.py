from random import Random

from culver.overlay.gossip.lonely_dials import DialChanges, LonelyDials

ADDRESSES = [f"10.0.0.{number}:7400" for number in range(1, 8)]


def test_a_site_with_a_link_dials_nobody_else() -> None:
    dials = LonelyDials(Random(1))
    assert all(dials.look(1, 0, ADDRESSES, float(now)) == DialChanges() for now in range(100))


def test_a_site_that_is_alone_for_a_while_dials_some_members_and_then_others() -> None:
    dials = LonelyDials(Random(1))
    changes = {now: dials.look(0, 0, ADDRESSES, float(now)) for now in range(30)}
    assert [now for now, change in changes.items() if change != DialChanges()] == [5, 15, 25]
    assert len(changes[5].dial) == 3
    assert changes[5].hang_up == ()
    dialled = {*changes[5].dial, *changes[15].dial} - set(changes[15].hang_up)
    assert len(dialled) == 3
    assert set(dials.dialled) <= set(ADDRESSES)


def test_a_rescue_link_stays_until_a_link_of_its_own_choice_has_stood_for_a_while() -> None:
    dials = LonelyDials(Random(1))
    for now in range(6):
        dials.look(0, 0, ADDRESSES, float(now))
    dialled = dials.dialled
    assert all(dials.look(0, 1, ADDRESSES, float(now)) == DialChanges() for now in range(6, 60))
    assert all(dials.look(1, 1, ADDRESSES, float(now)) == DialChanges() for now in range(60, 65))
    assert dials.look(0, 1, ADDRESSES, 65.0) == DialChanges()
    assert all(dials.look(1, 1, ADDRESSES, float(now)) == DialChanges() for now in range(66, 76))
    assert dials.look(1, 1, ADDRESSES, 76.0) == DialChanges((), dialled)
    assert dials.dialled == ()
    assert dials.look(1, 0, ADDRESSES, 77.0) == DialChanges()


def test_a_site_that_knows_nobody_waits() -> None:
    dials = LonelyDials(Random(1))
    assert all(dials.look(0, 0, (), float(now)) == DialChanges() for now in range(30))
    assert dials.look(0, 0, ADDRESSES[:1], 30.0) == DialChanges((ADDRESSES[0],))
