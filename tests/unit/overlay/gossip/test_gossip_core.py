"""Each step of the protocol, with time passed in and messages by hand."""

from random import Random

import pytest

from culver.overlay.gossip.gossip_core import GossipCore
from culver.overlay.gossip.gossip_instructions import (
    FactsChanged,
    GossipInstruction,
    MemberChanged,
    RefusedGossip,
    SendGossip,
)
from culver.overlay.gossip.gossip_messages import (
    FactsNews,
    GossipMessage,
    IndirectProbe,
    MemberFacts,
    MemberStatus,
    News,
    NewsMessage,
    Probe,
    ProbeAnswer,
    StatusNews,
    TableDigest,
    TablePiece,
)
from culver.overlay.gossip.gossip_settings import GossipSettings
from culver.overlay.site_keys import site_key

A, B, C, D, E, STRANGER = (site_key(name, bytes(8)) for name in ("a", "b", "c", "d", "e", "stranger"))
ALIVE, SUSPECT, DEAD, LEFT = MemberStatus
SETTINGS = GossipSettings(second_opinions=0.0)


def member(*others: str, settings: GossipSettings = SETTINGS, key: str = A) -> GossipCore:
    """A member in good health that knows others, which know it."""
    core = GossipCore(key, 100, settings, Random(1))
    core.restore([StatusNews(other, 100, ALIVE) for other in others], 0.0)
    for record in core.members():
        record.knows_us = True
    core._health.failing_share = 0.0
    core.tick(0.0)
    return core


def status(core: GossipCore, key: str) -> MemberStatus | None:
    record = core.member(key)
    return None if record is None else record.status


def sent(instructions: list[GossipInstruction]) -> list[tuple[str, GossipMessage]]:
    return [(each.destination, each.message) for each in instructions if isinstance(each, SendGossip)]


def run_until(core: GossipCore, end: float) -> list[GossipInstruction]:
    """All instructions of a member that hears nothing."""
    out: list[GossipInstruction] = []
    while core.next_due() <= end:
        out += core.tick(core.next_due())
    return out


def suspicions_of(instructions: list[GossipInstruction]) -> list[MemberChanged]:
    return [each for each in instructions if isinstance(each, MemberChanged) and each.status is SUSPECT]


def test_everybody_is_probed_once_in_each_pass() -> None:
    core = member(B, C, D, E)
    probed: list[str] = []
    for _ in range(8):
        (probe,) = sent(core.tick(core.next_due()))
        assert isinstance(probe[1], Probe)
        probed.append(probe[0])
        core.received(probe[0], ProbeAnswer(probe[1].sequence), core._ticked_at or 0.0)
    assert sorted(probed[:4]) == sorted(probed[4:]) == [B, C, D, E]


def test_a_probe_is_answered_with_its_number() -> None:
    assert member(B).received(B, Probe(7), 0.5) == [SendGossip(B, ProbeAnswer(7))]


def test_without_an_answer_in_time_others_are_asked_to_probe() -> None:
    core = member(B, C, D, E)
    ((target, probe),) = sent(core.tick(core.next_due()))
    assert isinstance(probe, Probe)
    asked = sent(core.tick(core.next_due()))
    assert {relay for relay, _ in asked} == {B, C, D, E} - {target}
    assert {message for _, message in asked} == {IndirectProbe(probe.sequence, target)}


def test_a_relay_probes_and_passes_the_answer_on_with_the_number_of_the_asker() -> None:
    core = member(B, C)
    ((target, probe),) = sent(core.received(B, IndirectProbe(7, C), 0.1))
    assert target == C
    assert isinstance(probe, Probe)
    assert core.received(C, ProbeAnswer(probe.sequence), 0.2) == [SendGossip(B, ProbeAnswer(7))]
    assert core.received(C, ProbeAnswer(probe.sequence), 0.3) == []


def test_an_answer_through_a_relay_keeps_a_member_alive() -> None:
    core = member(B, C)
    ((target, probe),) = sent(core.tick(core.next_due()))
    assert isinstance(probe, Probe)
    core.tick(core.next_due())
    core.received({B: C, C: B}[target], ProbeAnswer(probe.sequence), 0.9)
    assert status(core, target) is ALIVE
    assert target not in {each.key for each in suspicions_of(run_until(core, 1.9))}


def test_a_silent_member_is_suspected_and_told_so_and_then_dead() -> None:
    core = member(B)
    out = run_until(core, 30.0)
    changes = [each for each in out if isinstance(each, MemberChanged)]
    assert changes == [MemberChanged(B, SUSPECT), MemberChanged(B, DEAD)]
    accusation = StatusNews(B, 100, SUSPECT, A)
    assert (B, NewsMessage((accusation,))) in sent(out)


def test_one_failed_probe_does_not_make_a_member_suspicious_whose_probes_fail_everywhere() -> None:
    core = member(B, C, D, E)
    core._health.failing_share = 0.4
    assert suspicions_of(run_until(core, 2.5)) == []
    assert suspicions_of(run_until(core, 9.0))


def test_independent_accusers_shorten_the_time_of_a_suspect() -> None:
    def time_of_death(*accusers: str) -> float:
        core = member(B, C, D, E)
        for accuser in accusers:
            core.received(C, NewsMessage((StatusNews(B, 100, SUSPECT, accuser),)), 0.0)
        return core._suspicions.next_end

    alone, twice, confirmed = time_of_death(C), time_of_death(C, C), time_of_death(C, D, E, STRANGER)
    assert alone == twice == pytest.approx(24.0)
    assert time_of_death(C, D) < alone
    assert confirmed == pytest.approx(4.0)


def test_a_suspect_objects_with_a_higher_incarnation() -> None:
    core = member(B)
    ((_, answer),) = sent(core.received(B, Probe(1, (StatusNews(A, 100, SUSPECT, B),)), 0.1))
    assert core.incarnation == 101
    assert answer == ProbeAnswer(1, (StatusNews(A, 101, ALIVE),))


def test_an_objection_ends_the_suspicion() -> None:
    core = member(B, C)
    core.received(C, NewsMessage((StatusNews(B, 100, SUSPECT, C),)), 0.0)
    assert core.received(C, NewsMessage((StatusNews(B, 101, ALIVE),)), 0.1) == [MemberChanged(B, ALIVE)]
    assert core._suspicions.next_end == float("inf")


def test_a_suspect_hears_of_it_first_in_every_message_to_it() -> None:
    core = member(B, C)
    core.received(C, NewsMessage((StatusNews(B, 100, SUSPECT, C),)), 0.0)
    ((_, answer),) = sent(core.received(B, Probe(1), 0.1))
    assert answer.news[0] == StatusNews(B, 100, SUSPECT, A)


def test_news_is_passed_on_a_limited_number_of_times() -> None:
    core = member(B, C)
    core.received(C, NewsMessage((StatusNews(D, 1, ALIVE),)), 0.0)
    copies = SETTINGS.copies_of_news(4)
    answers = [sent(core.received(B, Probe(number), 0.1))[0][1] for number in range(copies + 3)]
    assert sum(bool(answer.news) for answer in answers) == copies


def test_after_a_pause_of_its_own_a_member_accuses_nobody_for_it() -> None:
    core = member(B, C)
    core.received(C, NewsMessage((StatusNews(B, 100, SUSPECT, C),)), 0.0)
    core.tick(0.5)
    core.tick(500.0)
    assert status(core, B) is SUSPECT
    assert status(core, C) is ALIVE


def test_a_newcomer_asks_its_seed_again_until_it_answers() -> None:
    core = GossipCore(A, 100, SETTINGS, Random(1))
    core.tick(0.0)
    ((seed, first),) = sent(core.join([B], 0.0))
    assert seed == B
    assert isinstance(first, TableDigest)
    assert [message for _, message in sent(run_until(core, 2.9))] == [first] * 3
    core.received(B, TablePiece(b"", (StatusNews(B, 100, ALIVE),)), 2.9)
    assert not any(isinstance(message, TableDigest) for _, message in sent(run_until(core, 5.0)))


def test_an_exchange_makes_two_tables_equal_with_the_dead_among_them() -> None:
    one, other = member(B, C, D), member(A, C, key=B)
    other.received(C, NewsMessage((StatusNews(C, 105, ALIVE), StatusNews(E, 7, ALIVE))), 0.0)
    one.received(B, NewsMessage((StatusNews(D, 100, DEAD, B),)), 0.0)
    out: list[GossipInstruction] = []
    one._exchange(B, out)
    cores = {A: one, B: other}
    waiting = [(A, *each) for each in sent(out)]
    while waiting:
        source, destination, message = waiting.pop(0)
        if destination in cores:
            answers = cores[destination].received(source, message, 0.1)
            waiting += [(destination, *each) for each in sent(answers)]
    assert {record.key: record.incarnation for record in one.members() if record.is_living} == {
        record.key: record.incarnation for record in other.members() if record.is_living
    }
    assert status(one, E) is ALIVE


def test_a_death_from_an_exchange_is_a_suspicion_at_first() -> None:
    core = member(B, C)
    core.received(B, TablePiece(b"", (StatusNews(C, 100, DEAD),)), 0.1)
    assert status(core, C) is SUSPECT


def test_a_dead_member_is_probed_now_and_then_and_comes_back() -> None:
    core = member(B, C)
    core.received(C, NewsMessage((StatusNews(B, 100, DEAD, C),)), 0.0)
    assert status(core, B) is DEAD
    probes = [message for key, message in sent(run_until(core, 200.0)) if key == B]
    assert probes
    assert StatusNews(B, 100, DEAD, A) in probes[0].news
    core.received(B, ProbeAnswer(99, (StatusNews(B, 101, ALIVE),)), 201.0)
    assert status(core, B) is ALIVE


def test_one_that_leaves_says_farewell_and_falls_silent() -> None:
    core = member(B, C)
    farewells = sent(core.leave(1.0))
    assert {key for key, _ in farewells} == {B, C}
    assert {message for _, message in farewells} == {NewsMessage((StatusNews(A, 100, LEFT),))}
    assert core.received(B, Probe(1), 1.1) == []
    other = member(A, C, key=B)
    assert other.received(A, farewells[0][1], 1.2) == [MemberChanged(A, LEFT)]


def test_facts_travel_and_are_reported_once() -> None:
    core, other = member(B), member(A, key=B)
    core.publish_facts(("10.0.0.1:7401",), {"cpu": 0.5}, {}, 0.0)
    ((_, answer),) = sent(core.received(B, Probe(1), 0.1))
    (news,) = answer.news
    assert isinstance(news, FactsNews)
    assert other.received(A, answer, 0.2) == [FactsChanged(A, news.facts)]
    assert other.received(A, answer, 0.3) == []


def test_new_loads_alone_are_held_back_and_other_facts_are_not() -> None:
    core = member(B, C, settings=GossipSettings(loads_per_second=0.1))

    def published() -> MemberFacts | None:
        own = core.member(A)
        return None if own is None else own.facts

    core.publish_facts(("x",), {"cpu": 0.1}, {}, 0.0)
    core.publish_facts(("x",), {"cpu": 0.2}, {}, 0.1)
    core.publish_facts(("x",), {"cpu": 0.3}, {}, 0.2)
    first = published()
    assert first is not None
    assert first.loads == {"cpu": 0.1}
    run_until(core, 33.0)
    later = published()
    assert later is not None
    assert later.loads == {"cpu": 0.3}
    core.publish_facts(("y",), {"cpu": 0.4}, {}, 34.0)
    last = published()
    assert last is not None
    assert (last.addresses, last.loads) == (("y",), {"cpu": 0.4})


def test_a_restarted_member_rises_above_what_its_earlier_run_has_said() -> None:
    core = member(B)
    core.publish_facts(("new",), {}, {}, 0.0)
    core.received(B, NewsMessage((FactsNews(A, 250, MemberFacts(900, ("old",))),)), 0.1)
    own = core.member(A)
    assert own is not None
    assert own.facts == MemberFacts(901, ("new",))
    assert own.incarnation == core.incarnation == 251


def test_a_restored_member_probes_each_living_one_once_a_pass() -> None:
    core = GossipCore(A, 100, SETTINGS, Random(1))
    core.restore([StatusNews(B, 1, ALIVE), StatusNews(B, 2, ALIVE), StatusNews(C, 1, DEAD)], 0.0)
    core.tick(0.0)
    assert {key for key, _ in sent(run_until(core, 0.99))} == {B}
    assert core.living_count() == 2


def test_a_doubtful_member_is_probed_at_once_and_nobody_probes_itself() -> None:
    core = member(B)
    assert [key for key, _ in sent(core.doubt(B, 0.0))] == [B]
    assert core.doubt(A, 0.0) == core.doubt(STRANGER, 0.0) == []


def test_large_facts_are_not_published() -> None:
    with pytest.raises(ValueError, match="512 bytes"):
        member(B).publish_facts(("x" * 250, "y" * 250, "z" * 250), {}, {}, 0.0)


FAR = 1 << 50


@pytest.mark.parametrize(
    ("source", "message", "reason"),
    [
        (A, Probe(1), "claims to come from this member"),
        (STRANGER, Probe(1), "no known member"),
        (STRANGER, Probe(1, (StatusNews(B, 200, ALIVE),)), "no known member"),
        (B, NewsMessage((StatusNews(A, FAR, SUSPECT, B),)), "far above"),
        (B, NewsMessage((StatusNews(C, 101, ALIVE), StatusNews(C, FAR, DEAD, B))), "far above"),
        (B, NewsMessage((StatusNews("nonsense", 1, ALIVE),)), "not the key of a site"),
        (B, NewsMessage((StatusNews(C, 101, SUSPECT, "nonsense"),)), "accuser"),
        (B, TableDigest(bytes(12)), "power of 2"),
        (B, TablePiece(b"\x40", ()), "buckets"),
        (B, NewsMessage((FactsNews(C, 101, MemberFacts(1, ("x" * 600,))),)), "512 bytes"),
        (
            B,
            NewsMessage(tuple(StatusNews(site_key(f"m{n}", bytes(8)), 1, ALIVE) for n in range(8))),
            "more members",
        ),
    ],
)
def test_a_refused_message_is_reported_and_changes_nothing(
    source: str, message: GossipMessage, reason: str
) -> None:
    core = member(B, C, settings=GossipSettings(most_members=10))
    before: tuple[News, ...] = core.snapshot()
    (refusal,) = core.received(source, message, 0.1)
    assert isinstance(refusal, RefusedGossip)
    assert reason in refusal.reason
    assert core.snapshot() == before
    assert len(core._news) == 0
    assert core.incarnation == 100
