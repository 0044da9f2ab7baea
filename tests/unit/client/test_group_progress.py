"""What a group remembers, so that nothing comes twice and nothing gets lost."""

from culver.client.receiving.group_progress import GroupProgress


def _receive(progress: GroupProgress, number: int, offset: int, *names: str) -> tuple[str, ...]:
    new = progress.missing(offset, names)
    if new:
        progress.take(number, offset, new)
    else:
        progress.pass_over(offset)
    return new


def _late_member() -> GroupProgress:
    """The example of the module: c has events since 11, and the group was already at 13."""
    progress = GroupProgress()
    for number, (offset, name) in enumerate([(10, "a"), (11, "a"), (12, "b"), (13, "a")], 1):
        assert _receive(progress, number, offset, name) == (name,)
    return progress


def test_a_late_member_gets_what_lies_behind_and_the_others_get_nothing_twice() -> None:
    progress = _late_member()
    assert _receive(progress, 5, 11, "a", "c") == ("c",)
    assert _receive(progress, 6, 12, "b") == ()
    assert _receive(progress, 6, 13, "a", "c") == ("c",)
    assert _receive(progress, 7, 14, "a", "c") == ("a", "c")
    assert _receive(progress, 8, 13, "a", "c") == ()


def test_an_acknowledgement_stops_below_what_a_late_member_has_still_to_read() -> None:
    progress = _late_member()
    assert progress.acknowledgeable(2, 11) == 11
    _receive(progress, 5, 11, "c")
    _receive(progress, 6, 13, "c")
    assert progress.acknowledgeable(4, 13) == 10
    assert progress.acknowledgeable(5, 13) == 12
    assert progress.acknowledgeable(6, 13) == 13


def test_only_the_lowest_of_what_came_later_limits_an_acknowledgement() -> None:
    progress = _late_member()
    for number, offset in enumerate([11, 12, 11, 13], 5):
        progress.take(number, offset, (f"c{number}",))
    assert progress.acknowledgeable(4, 13) == 10
    assert progress.acknowledgeable(6, 13) == 10
    assert progress.acknowledgeable(7, 13) == 12
    assert progress.acknowledgeable(8, 13) == 13


def test_another_connection_goes_on_at_the_lowest_offset_that_is_remembered() -> None:
    progress = GroupProgress(most_events=3)
    assert progress.resume_after() is None
    _receive(progress, 1, 0, "a")
    assert progress.resume_after() is None, "there is nothing before offset 0"
    for offset in range(1, 10):
        _receive(progress, offset + 1, offset, "a")
    assert progress.resume_after() == 6
    # In the middle of a step back, this is the place to go on at, whatever the highest offset is.
    _receive(progress, 11, 2, "c")
    assert progress.resume_after() == 1


def test_what_was_refused_comes_again_and_is_not_acknowledged_before() -> None:
    progress = _late_member()
    progress.refuse(11)
    progress.refuse(15)
    assert progress.acknowledgeable(4, 13) == 10
    assert progress.resume_after() == 9
    progress.refuse(5)
    assert progress.resume_after() == 4
    assert _receive(progress, 5, 5, "c") == ("c",)
    assert _receive(progress, 6, 11, "c") == ("c",)
    assert progress.acknowledgeable(6, 13) == 13


def test_the_memory_is_bounded_in_events_and_in_deliveries() -> None:
    progress = GroupProgress(most_events=10, most_deliveries=8)
    for offset in range(6):
        _receive(progress, offset, offset, "a", "b")
    assert progress.resume_after() == 1
    assert _receive(progress, 6, 1, "a") == ("a",), "it is forgotten, and comes again"
    many = tuple(map(str, range(20)))
    assert _receive(progress, 7, 9, *many) == many
    assert _receive(progress, 8, 9, *many) == (), "the newest event is remembered in any case"


def test_a_gap_is_announced_once_to_each() -> None:
    progress = GroupProgress()
    assert progress.take_gap(["a", "b"], 10, "overflow") == ("a", "b")
    assert progress.take_gap(["a", "b", "c"], 10, "overflow") == ("c",)
    assert progress.take_gap(["a"], 12, "overflow") == ("a",)
    assert progress.take_gap(["a"], 10, "expired") == ("a",)
