"""A site that has too much to do, and which streams it hands to whom."""

from random import Random

import pytest

from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.clusters.load.load_messages import (
    HoldBack,
    LoadFigures,
    LoadKind,
    OffloadAccept,
    OffloadRequest,
    SendLoadMessage,
)
from culver.overlay.clusters.load.stream_balance import StreamBalance, StreamKey

OWN, B, C = "own", "b", "c"
CAPACITY = 100.0
CLUSTER = LoadKind.CLUSTER
HEAVY, LIGHT = ("heavy", 0), ("light", 0)


def figures(load: float, acceptance: float = 1.0) -> LoadFigures:
    return LoadFigures(load, 0, 0, 0, 0, 0, 0, CAPACITY, 0.0, acceptance)


def site_with(
    streams: dict[StreamKey, int],
    others: float = 10.0,
    *,
    seconds: int = 30,
    may_carry: set[tuple[str, int, str]] | None = None,
) -> tuple[StreamBalance, list[SendLoadMessage]]:
    """A site that carries streams of so many messages a second, beside others with a load; and what it says."""
    made = StreamBalance(OWN, Random(1), 0.0, LoadSettings(first_capacity=CAPACITY))
    if may_carry is not None:
        made.may_carry = lambda *stream_and_site: stream_and_site in may_carry
    made.arrange([OWN, B, C], [])
    said: list[SendLoadMessage] = []
    for second in range(1, seconds + 1):
        for stream, messages in streams.items():
            made.received_messages(LoadKind.RING, messages, second)
            made.carried(stream, messages, second)
        made.worked(made.handled / CAPACITY)
        for site in (B, C):
            made.heard(site, figures(others), second)
        said += made.tick(second)
    return made, said


def test_a_site_that_does_not_know_what_it_can_bear_balances_nothing() -> None:
    made = StreamBalance(OWN, Random(1), 0.0, LoadSettings(first_capacity=1.0))
    made.arrange([OWN, B], [])
    made.received_messages(LoadKind.RING, 1000, 1.0)
    made.heard(B, figures(0.0), 1.0)
    assert made.tick(1.0) == []
    assert made.accepts_streams
    assert made.figures_for(B, 1.0) is None
    assert made.received(B, OffloadRequest(CLUSTER, 1.0), 1.0) == []


def test_what_a_site_can_bear_is_measured() -> None:
    made, _ = site_with({HEAVY: 40})
    assert made.loads(30.0).capacity == pytest.approx(CAPACITY)
    assert made.loads(30.0).use == pytest.approx(0.4, abs=0.05)
    assert made.accepts_streams


def test_what_a_site_does_without_messages_does_not_make_it_weak() -> None:
    made = StreamBalance(OWN, Random(1), 0.0, LoadSettings(first_capacity=CAPACITY))
    for _ in range(100):
        made.worked(0.03)
    made.worked(1.0)  # a busy second without a message counts for little, and is soon forgotten
    made.worked(0.03)
    for second in range(1, 601):
        made.received_messages(LoadKind.RING, 10, second)
        made.worked(0.03 + 10 / 2_000)
    use, capacity = made.use(600.0) or (0.0, 0.0)
    assert capacity == pytest.approx(2_000, rel=0.3)
    assert use == pytest.approx(10 / capacity, rel=0.2)


def test_a_site_that_was_never_busy_with_messages_does_not_know_its_capacity() -> None:
    made = StreamBalance(OWN, Random(1), 0.0, LoadSettings(first_capacity=CAPACITY))
    for _ in range(100):
        made.worked(0.03)
    made.received_messages(LoadKind.RING, 1, 1.0)
    made.worked(0.02)
    assert made.use(1.0) is None


def test_an_overloaded_site_hands_the_smallest_stream_over_that_is_enough() -> None:
    made, said = site_with({HEAVY: 60, LIGHT: 36})
    requests = [each for each in said if isinstance(each.message, OffloadRequest)]
    assert {each.site for each in requests} == {B}
    amount = requests[-1].message
    assert isinstance(amount, OffloadRequest)
    assert amount.amount == pytest.approx(36, rel=0.2)
    assert made.hand_over() == []  # nobody has accepted
    made.received(B, OffloadAccept(CLUSTER, amount.amount, 30.0), 31.0)
    assert made.hand_over() == [(LIGHT, B)]
    assert made.hand_over() == []


def test_a_stream_stays_where_less_was_accepted_than_it_has() -> None:
    made, _ = site_with({HEAVY: 60, LIGHT: 36})
    made.received(B, OffloadAccept(CLUSTER, 20.0, 30.0), 31.0)
    assert made.hand_over() == []


def test_a_stream_that_fits_nowhere_stays() -> None:
    made, said = site_with({HEAVY: 95}, others=40.0)
    assert not [each for each in said if isinstance(each.message, OffloadRequest)]
    assert not made.accepts_streams


def test_nobody_is_asked_who_refuses_streams_itself() -> None:
    made, _ = site_with({HEAVY: 60, LIGHT: 36})
    for site in (B, C):
        made.heard(site, figures(10.0, acceptance=0.02), 40.0)
    for second in range(40, 55):
        made.received_messages(LoadKind.RING, 96, second)
        assert not made.tick(second)


def test_an_overloaded_site_takes_streams_again_when_it_has_less_to_do() -> None:
    made, _ = site_with({HEAVY: 95})
    assert not made.accepts_streams
    assert made.loads(30.0).acceptance < 1
    for second in range(31, 60):
        made.tick(second)
    assert made.accepts_streams
    assert made.loads(60.0).acceptance == 1


def test_a_helper_accepts_until_it_has_as_much_as_a_relieved_site() -> None:
    made, _ = site_with({HEAVY: 20})
    ((site, first),) = made.received(B, OffloadRequest(CLUSTER, 30.0), 30.0)
    assert (site, first) == (B, OffloadAccept(CLUSTER, 30.0, 30.0))
    ((_, second),) = made.received(C, OffloadRequest(CLUSTER, 30.0), 30.0)
    assert isinstance(second, OffloadAccept)
    assert second.amount == pytest.approx(10.0, abs=4.0)  # its figures do not show the first yet
    ((_, third),) = made.received(C, OffloadRequest(CLUSTER, 30.0), 30.0)
    assert isinstance(third, OffloadAccept)
    assert third.amount == pytest.approx(0.0, abs=1e-6)


def test_an_overloaded_site_accepts_nothing() -> None:
    made, _ = site_with({HEAVY: 95})
    assert made.received(B, OffloadRequest(CLUSTER, 1.0), 30.0) == [
        SendLoadMessage(B, OffloadAccept(CLUSTER, 0.0, 30.0))
    ]


def test_origins_prefer_their_contact_unless_that_has_too_much_to_do() -> None:
    made, _ = site_with({}, others=10.0)
    assert made.preferred([B, C]) == [B, C]
    made.heard(B, figures(95.0), 30.0)
    assert made.preferred([B, C]) == [C, B]
    made.heard(B, figures(40.0, acceptance=0.02), 30.0)
    assert made.preferred([B, C]) == [C, B]
    assert made.preferred([B, "unknown"]) == ["unknown", B]


def test_figures_go_to_a_site_once_a_second() -> None:
    made, _ = site_with({HEAVY: 40})
    assert made.figures_for(B, 30.0) == made.loads(30.0)
    assert made.figures_for(B, 30.9) is None
    assert made.figures_for(C, 30.9) is not None
    assert made.figures_for(B, 31.0) is not None


def test_a_site_with_too_many_subscriptions_has_the_others_keep_theirs() -> None:
    made, _ = site_with({HEAVY: 60})
    for second in range(30, 40):
        made.received_messages(LoadKind.RING, 60, second)
        made.received_messages(LoadKind.SUBSCRIPTION, 50, second)
        said = made.tick(second)
        if said:
            break
    assert {each.site for each in said if isinstance(each.message, HoldBack)} == {B, C}
    made.received(B, HoldBack(5.0), 40.0)
    assert made.holds_back(B, 44.0)
    assert not made.holds_back(B, 46.0)


def test_a_stream_goes_only_to_a_site_that_is_in_its_cluster() -> None:
    made, said = site_with({HEAVY: 60, LIGHT: 36}, may_carry={(*LIGHT, C)})
    requests = [each for each in said if isinstance(each.message, OffloadRequest)]
    assert {each.site for each in requests} == {C}
    made.received(C, OffloadAccept(CLUSTER, 50.0, 30.0), 31.0)
    assert made.hand_over() == [(LIGHT, C)]
