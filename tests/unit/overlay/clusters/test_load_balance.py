import math
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.clusters.load.load_balance import LoadBalance
from culver.overlay.clusters.load.load_messages import (
    HoldBack,
    LoadFigures,
    LoadKind,
    LoadMessage,
    OffloadAccept,
    OffloadRequest,
    ResumeSubscriptions,
    SendLoadMessage,
)

RING, CLUSTER, SUBSCRIPTION, CLIENT = LoadKind
OWN, B, C, D = "own", "b", "c", "d"
CAPACITY = 100.0
SETTINGS = LoadSettings(first_capacity=CAPACITY)


def figures(load: float, acceptance: float = 1.0, ring_use: float = 0.0) -> LoadFigures:
    return LoadFigures(load, 0, 0, 0, 0, 0, 0, CAPACITY, ring_use, acceptance)


def broker(own: str = OWN, settings: LoadSettings = SETTINGS) -> LoadBalance:
    made = LoadBalance(own, Random(1), 0.0, settings)
    made.arrange([OWN, B, C, D], ["r1", "r2"])
    return made


def run_own_load(
    balance: LoadBalance, publications: int, sends: int, seconds: int, others: float, start: int = 0
) -> tuple[list[str | None], list[SendLoadMessage]]:
    """Publish so much in every second, each with so many messages, beside others with a load; who helps, and what is
    sent. Whoever is asked accepts all."""
    helpers: list[str | None] = []
    said: list[SendLoadMessage] = []
    for second in range(start, start + seconds):
        for turn in range(publications):
            now = second + turn / publications
            helper = balance.ring_helper(now)
            helpers.append(helper)
            if helper is None:
                balance.sent(RING, sends, now)
        now = second + 1.0
        for site in (B, C, D):
            balance.heard(site, figures(others), now)
        for instruction in balance.tick(now):
            said.append(instruction)
            if isinstance(instruction.message, OffloadRequest):
                accept = OffloadAccept(instruction.message.kind, instruction.message.amount, 30.0)
                balance.received(instruction.site, accept, now)
    return helpers, said


def test_a_broker_below_nine_tenths_of_its_capacity_helps_itself() -> None:
    balance = broker()
    helpers, said = run_own_load(balance, 8, 10, 60, others=0.0)
    assert set(helpers) == {None}
    assert said == []
    assert balance.loads(60.0).total == pytest.approx(80, rel=0.05)


def test_an_overloaded_broker_comes_down_to_the_mean_of_its_cluster() -> None:
    balance = broker()
    helpers, said = run_own_load(balance, 12, 10, 120, others=20.0)
    assert {each.site for each in said if isinstance(each.message, OffloadRequest)} == {B, C, D}
    late = helpers[-12 * 40 :]
    kept = late.count(None) / len(late)
    # Without helpers 120 messages a second; the others stay at 20, so the mean is near 30.
    assert balance.loads(120.0).total < 60
    assert kept < 0.4
    shares = [late.count(site) for site in (B, C, D)]
    assert max(shares) - min(shares) <= 3


def test_shares_come_evenly_over_time() -> None:
    balance = broker()
    helpers, _ = run_own_load(balance, 12, 10, 120, others=20.0)
    late = helpers[-120:]
    longest = max(len(run) for run in _runs(late))
    assert longest <= 4


def test_help_ends_when_the_load_does() -> None:
    balance = broker()
    run_own_load(balance, 12, 10, 60, others=20.0)
    helpers, said = run_own_load(balance, 2, 10, 60, others=20.0, start=60)
    assert OffloadRequest(RING, 0.0) in [each.message for each in said]
    assert set(helpers[-40:]) == {None}
    assert balance.loads(120.0).acceptance == 1.0


def test_leases_end_unless_they_are_renewed() -> None:
    balance = broker()
    run_own_load(balance, 12, 10, 30, others=20.0)
    assert any(balance.ring_helper(30.0 + turn / 12) for turn in range(12))
    balance.tick(100.0)
    assert not any(balance.ring_helper(100.0 + turn / 12) for turn in range(12))


def test_a_helper_accepts_within_its_room_and_no_more() -> None:
    balance = broker()
    for site in (B, C, D):
        balance.heard(site, figures(80.0), 1.0)
    assert _accepted(balance, B, 1000.0) == pytest.approx(60.0)  # the mean of 80, 80, 80 and 0
    assert _accepted(balance, C, 1000.0) == 0.0  # it is promised already


def test_a_helper_never_fills_up_to_the_overload() -> None:
    balance = broker()
    for site in (B, C, D):
        balance.heard(site, figures(1000.0), 1.0)
    assert _accepted(balance, B, 1000.0) == pytest.approx(90.0)


def test_a_broker_that_is_relieved_helps_nobody() -> None:
    balance = broker()
    run_own_load(balance, 12, 10, 20, others=20.0)
    assert _accepted(balance, B, 10.0, now=20.0) == 0.0


def test_a_helper_whose_ring_is_overloaded_takes_no_ring_load() -> None:
    balance = broker()
    for site in (B, C, D, "r1", "r2"):
        balance.heard(site, figures(95.0), 1.0)
    assert _accepted(balance, B, 10.0) == 0.0
    assert _accepted(balance, B, 10.0, kind=CLUSTER) == 10.0


def test_a_helper_that_becomes_overloaded_gives_back_before_it_asks() -> None:
    balance = broker()
    balance.heard(B, figures(95.0), 0.0)
    assert _accepted(balance, B, 30.0, now=0.5) == 30.0
    said: list[LoadMessage] = []
    for second in range(1, 8):
        balance.sent(RING, 120, float(second))
        balance.heard(B, figures(20.0), float(second))
        said += [each.message for each in balance.tick(float(second))]
    assert said[0] == OffloadAccept(RING, 0.0, 0.0)
    assert not any(isinstance(each, OffloadRequest) for each in said)


def test_the_carrier_is_the_contact_unless_it_is_lost_or_refuses() -> None:
    balance = broker()
    contacts = ["r1", "x", "y"]
    assert balance.carrier(1, contacts) == "r1"
    balance.heard("r1", figures(95.0, acceptance=0.25), 0.0)
    balance.heard("x", figures(20.0), 0.0)
    balance.heard("y", figures(40.0), 0.0)
    chosen = [balance.carrier(1, contacts) for _ in range(400)]
    assert chosen.count("r1") == 100
    assert chosen.count("x") > chosen.count("y") > 0
    balance.lost("r1")
    assert balance.carrier(1, contacts) == "x"
    balance.heard("r1", figures(10.0), 1.0)
    assert balance.carrier(1, contacts) == "r1"
    for site in contacts:
        balance.lost(site)
    assert balance.carrier(1, contacts) == "r1"
    assert balance.carrier(1, []) is None


def test_content_of_the_ring_is_refused_by_share() -> None:
    balance = broker()
    for second in range(40):
        for turn in range(40):
            now = second + turn / 40
            balance.received_messages(RING, 1, now)
            assert balance.cluster_helper(now) is None or second > 5
            balance.sent(CLUSTER, 2, now)
        for site in (B, C, D):
            balance.heard(site, figures(20.0), second + 1.0)
        balance.tick(second + 1.0)
    share = balance.loads(40.0).acceptance
    assert share < 0.5
    accepted = sum(balance.accepts_ring_content(40.0) for _ in range(1000))
    assert accepted == pytest.approx(1000 * share, abs=2)


def test_content_that_comes_all_the_same_is_matched_by_others() -> None:
    balance = broker()
    helpers: list[str | None] = []
    for second in range(120):
        for turn in range(40):
            now = second + turn / 40
            balance.received_messages(RING, 1, now)
            helpers.append(balance.cluster_helper(now))
            if helpers[-1] is None:
                balance.sent(CLUSTER, 4, now)
        for site in (B, C, D):
            balance.heard(site, figures(20.0), second + 1.0)
        for site, message in balance.tick(second + 1.0):
            if isinstance(message, OffloadRequest):
                balance.received(site, OffloadAccept(message.kind, message.amount, 30.0), second + 1.0)
    assert set(helpers[-400:]) >= {B, C, D}
    assert balance.loads(120.0).total < 0.6 * 200


def test_subscriptions_are_held_back_and_taken_again() -> None:
    balance = broker()
    balance.received_messages(SUBSCRIPTION, 120, 1.0)
    held = [each for each in balance.tick(1.0) if isinstance(each.message, HoldBack)]
    assert {each.site for each in held} == {B, C, D}
    assert len({each.message for each in held}) == 3
    assert {balance.cluster_helper(2.0) for _ in range(50)} == {B, C, D}
    later = [each for second in range(2, 20) for each in balance.tick(float(second))]
    assert [each for each in later if isinstance(each.message, ResumeSubscriptions)] == [
        SendLoadMessage(site, ResumeSubscriptions()) for site in (B, C, D)
    ]
    assert balance.cluster_helper(20.0) is None


def test_a_subscriber_holds_back_until_told_or_the_time_is_over() -> None:
    balance = broker()
    balance.received(B, HoldBack(10.0), 0.0)
    balance.received(C, HoldBack(10.0), 0.0)
    balance.received(D, HoldBack(3600.0), 0.0)
    balance.received(C, ResumeSubscriptions(), 1.0)
    assert [balance.holds_back(site, 2.0) for site in (B, C, D)] == [True, False, True]
    assert [balance.holds_back(site, 61.0) for site in (B, C, D)] == [False, False, False]


def test_the_capacity_is_measured_while_the_broker_is_busy() -> None:
    balance = broker()
    assert balance.loads(0.0).capacity == CAPACITY
    for _ in range(100):
        balance.worked(0.5, 250)
    assert balance.loads(0.0).capacity == pytest.approx(500, rel=0.01)
    for _ in range(1000):
        balance.worked(0.0, 0)
    for busy in (math.nan, -1.0, math.inf):
        balance.worked(busy, 10)
    balance.worked(1.0, -5)
    assert balance.loads(0.0).capacity == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf, 1e300])
@pytest.mark.parametrize("field", LoadFigures.__struct_fields__)
def test_hostile_figures_are_refused(field: str, bad: float) -> None:
    balance = broker()
    made = msgspec.structs.replace(figures(1.0), **{field: bad})
    assert not balance.heard(B, made, 0.0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=LoadFigures)


@pytest.mark.parametrize(
    "message",
    [
        OffloadRequest(RING, math.nan),
        OffloadRequest(RING, -5.0),
        OffloadRequest(SUBSCRIPTION, 5.0),
        OffloadAccept(RING, math.inf, 10.0),
        OffloadAccept(CLIENT, 5.0, 10.0),
        OffloadAccept(RING, 5.0, math.nan),
        HoldBack(-1.0),
        HoldBack(math.inf),
    ],
)
def test_hostile_messages_change_nothing(message: LoadMessage) -> None:
    balance = broker()
    assert balance.received(B, message, 0.0) == []
    assert balance.ring_helper(0.1) is None
    assert not balance.holds_back(B, 0.1)


def test_strangers_and_unasked_offers_draw_no_publications() -> None:
    balance = broker()
    assert balance.received("stranger", OffloadRequest(RING, 5.0), 0.0) == []
    balance.received(B, OffloadAccept(RING, 1e9, 3600.0), 0.0)
    assert {balance.ring_helper(turn / 10) for turn in range(20)} == {None}


def test_a_helper_gets_no_more_than_it_was_asked_to_take() -> None:
    balance = broker()
    for second in range(60):
        for turn in range(12):
            if balance.ring_helper(second + turn / 12) is None:
                balance.sent(RING, 10, second + turn / 12)
        for site in (B, C, D):
            balance.heard(site, figures(20.0), second + 1.0)
        for site, message in balance.tick(second + 1.0):
            if isinstance(message, OffloadRequest):
                amount = 1e9 if site == B else message.amount
                balance.received(site, OffloadAccept(message.kind, amount, 30.0), second + 1.0)
    chosen = [balance.ring_helper(60.0 + turn / 12) for turn in range(120)]
    assert chosen.count(B) <= chosen.count(C) + 2


def test_figures_of_a_flood_of_sites_are_bounded() -> None:
    balance = broker(settings=LoadSettings(most_sites=10))
    heard = [balance.heard(f"site-{number}", figures(1.0), 0.0) for number in range(50)]
    assert heard.count(True) == 10


def _accepted(
    balance: LoadBalance, site: str, amount: float, now: float = 1.0, kind: LoadKind = RING
) -> float:
    (answer,) = balance.received(site, OffloadRequest(kind, amount), now)
    assert isinstance(answer.message, OffloadAccept)
    assert answer.site == site
    return answer.message.amount


def _runs(helpers: list[str | None]) -> Iterator[list[str | None]]:
    run: list[str | None] = []
    for helper in helpers:
        if run and run[-1] != helper:
            yield run
            run = []
        run.append(helper)
    yield run
