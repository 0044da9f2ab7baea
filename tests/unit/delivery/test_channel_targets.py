"""Which subscriptions deliver to a channel, after registrations in any order that the registry may tell them in."""

from dataclasses import replace

from culver.delivery.channel_targets import ChannelTargets
from culver.registry.registration import Registration
from support.notifications import registration


def targeting(number: int, channel: str | None = "c", until: int | None = None) -> Registration:
    return replace(registration(number, "s"), channel=channel, until=until)


class Watched(ChannelTargets):
    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str | None]] = []
        self.on_change = self._note

    def _note(self, subscription: str) -> None:
        found = self.current.get(subscription)
        self.changes.append((subscription, None if found is None else found.channel))


def test_subscription_without_a_channel_is_no_target() -> None:
    targets = Watched()
    targets.register([targeting(1, None), targeting(1, None, until=5)])
    assert (targets.current, targets.changes) == ({}, [])


def test_replacement_changes_or_ends_the_channel() -> None:
    targets = Watched()
    for registered in (targeting(1, "a"), targeting(2, "b"), targeting(3, None)):
        targets.register([registered])
    assert targets.changes == [("s", "a"), ("s", "b"), ("s", None)]
    assert targets.current == {}


def test_removed_subscription_is_no_target_any_more() -> None:
    targets = Watched()
    targets.register([targeting(1)])
    targets.register([replace(targeting(1, until=7), removed=True)])
    assert targets.changes == [("s", "c"), ("s", None)]


def test_all_registrations_of_a_start_leave_the_one_in_effect() -> None:
    targets = Watched()
    targets.register([targeting(1, "a", until=5), targeting(2, "b", until=9), targeting(4, "d")])
    assert targets.current["s"].number == 4


def test_end_of_an_earlier_registration_leaves_its_successor() -> None:
    targets = Watched()
    targets.register([targeting(4, "d")])
    targets.register([targeting(1, "a", until=5)])
    assert targets.current["s"].channel == "d"
    assert targets.changes == [("s", "d")]
