"""Sites that meet again: after restarts, on older copies of their data directories, and after they were forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from culver.overlay import (
    AnnounceGap,
    Append,
    LeaveOverlay,
    Packet,
    Refuse,
    StreamAcknowledgement,
    Unregister,
    site_key,
)
from culver.overlay.core.overlay_messages import (
    AdvertisementApplied,
    LinkState,
    OverlayMessage,
    StreamAnswer,
    StreamBeginning,
    StreamQuestion,
)
from culver.overlay.core.replaced_sites import FORGOTTEN
from support.linked_nodes import BONN, EVERYTHING, LYON, PARIS, LinkedNodes, gaps, predicate

LYON_2 = site_key("lyon", bytes([2] * 8))
PARIS_2 = site_key("paris", bytes([2] * 8))


@pytest.fixture
def pair() -> LinkedNodes:
    """Paris and Lyon, linked; Lyon wants everything of Paris, and has three events."""
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    nodes.publish(PARIS, b"0", b"1", b"2")
    return nodes


def restore(nodes: LinkedNodes, key: str, length: int, boot: int, *, with_mailboxes: bool = True) -> None:
    """Start a site on a copy of its data directory from when its log had that length."""
    old = nodes[key]
    del old.log[length:]
    if not with_mailboxes:
        old.mailboxes.clear()
    floors, promised = old.node.floors(), old.node.promised_ends()
    for mailbox in old.mailboxes.values():
        mailbox.offsets = [offset for offset in mailbox.offsets if offset < length]
    nodes.restart(key, boot)
    nodes[key].node.restore_meetings(promised, floors)


@contextmanager
def losing(nodes: LinkedNodes, *kinds: type[OverlayMessage]) -> Iterator[None]:
    nodes.loses = lambda message: isinstance(message, kinds)
    yield
    nodes.loses = lambda message: False


def leaves(nodes: LinkedNodes, key: str) -> list[int]:
    """The offsets from which on a site says that it has given them anew."""
    return [each.given_anew for each in nodes[key].of(LeaveOverlay)]


@pytest.mark.parametrize("lost", [StreamQuestion, StreamAnswer, StreamBeginning, StreamAcknowledgement])
def test_nothing_is_sent_before_the_two_have_met(pair: LinkedNodes, lost: type[OverlayMessage]) -> None:
    pair.restart(PARIS, boot=9)
    with losing(pair, lost):
        pair.link(PARIS, LYON)
        pair.publish(PARIS, b"3")
        pair.pass_time(1.2)
        assert pair[PARIS].sent(Packet) == []
    pair.pass_time(1.2)
    assert pair[LYON].imported(PARIS) == [b"0", b"1", b"2", b"3"]
    assert not gaps(pair[LYON])


@pytest.mark.parametrize("lost", [StreamQuestion, StreamBeginning])
def test_nobody_hears_what_is_in_effect_before_the_two_have_met(lost: type[OverlayMessage]) -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.link(PARIS, LYON)
    with losing(nodes, lost):
        nodes.advertise(LYON, EVERYTHING)
        assert nodes[PARIS].sent(AdvertisementApplied) == []
    nodes.pass_time(1.2)
    assert nodes[LYON].node.book.in_effect_from(PARIS, 2) == 0


def test_an_answer_to_another_meeting_counts_for_nothing(pair: LinkedNodes) -> None:
    pair.restart(PARIS, boot=9)
    with losing(pair, StreamQuestion):
        link = pair.link(PARIS, LYON)
        pair.settle()
    pair.receive(PARIS, link, StreamAnswer(LYON, PARIS, 0, 8, 3))
    pair.receive(PARIS, link, StreamAnswer(LYON, PARIS, 0, 0, 3))
    pair.receive(PARIS, link, StreamAcknowledgement(LYON, PARIS, 0, 3, False, 8))
    pair.receive(PARIS, link, StreamAcknowledgement(LYON, PARIS, 0, 3, False))
    pair.publish(PARIS, b"3")
    assert pair[PARIS].sent(Packet, StreamBeginning) == []


def test_a_question_to_an_earlier_run_gets_no_answer(pair: LinkedNodes) -> None:
    before = len(pair[LYON].sent(StreamAnswer))
    pair.receive(LYON, 1, StreamQuestion(PARIS, LYON, 0, 99, 77))
    assert len(pair[LYON].sent(StreamAnswer)) == before


def test_a_beginning_of_an_earlier_meeting_changes_nothing(pair: LinkedNodes) -> None:
    before = len(pair[LYON].sent(StreamAcknowledgement))
    pair.receive(LYON, 1, StreamBeginning(PARIS, LYON, 0, 0, 50, "full", 1, goes_on=True))
    assert len(pair[LYON].sent(StreamAcknowledgement)) == before
    assert not gaps(pair[LYON])
    assert pair[LYON].node.incoming.durable(PARIS) == 3


def test_an_origin_on_an_older_copy_leaves_before_it_sends_anything(pair: LinkedNodes) -> None:
    restore(pair, PARIS, 1, boot=9)
    pair.publish(PARIS, b"1 anew")
    pair.link(PARIS, LYON)
    pair.settle()
    text = "lyon has its log up to 3, and this copy of it ended at 1"
    assert pair[PARIS].of(LeaveOverlay) == [LeaveOverlay(1, text)]
    assert pair[PARIS].sent(Packet, StreamBeginning) == []
    assert pair[LYON].imported(PARIS) == [b"0", b"1", b"2"]


def test_a_site_under_a_new_key_has_lost_its_directory_to_the_others(pair: LinkedNodes) -> None:
    restore(pair, PARIS, 1, boot=9)
    pair.publish(PARIS, b"1 anew", b"2 anew")
    pair.link(PARIS, LYON)
    pair.settle()
    pair.renew(PARIS, PARIS_2, boot=19)
    pair.link(PARIS_2, LYON)
    pair.pass_time(2.0)
    # Lyon has everything below 3, but not the events that have the offsets 1 and 2 now.
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 1, 3, FORGOTTEN)]
    pair.publish(PARIS_2, b"3")
    assert pair[LYON].imported(PARIS_2) == [b"3"]
    assert (leaves(pair, PARIS_2), pair[LYON].reasons) == ([], [])


def test_a_site_that_never_met_the_older_copy_misses_nothing_in_silence() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, BONN)
    nodes.link(PARIS, LYON)
    nodes.link(PARIS, BONN)
    for site in (LYON, BONN):
        nodes.advertise(site, EVERYTHING)
    nodes.publish(PARIS, b"0", b"1", b"2")
    restore(nodes, PARIS, 1, boot=9)
    nodes.publish(PARIS, b"1 anew")
    nodes.link(PARIS, LYON)
    nodes.settle()
    nodes.renew(PARIS, PARIS_2, boot=19)
    nodes.link(PARIS_2, BONN)
    nodes.pass_time(2.0)
    assert gaps(nodes[BONN]) == [AnnounceGap(PARIS, 1, 3, FORGOTTEN)]


def test_a_site_under_a_new_key_announces_what_it_does_not_have(pair: LinkedNodes) -> None:
    pair.advertise(PARIS, EVERYTHING)
    for number in (b"a", b"b"):
        pair.publish(LYON, number)
    # The copy of paris has its own events and the first one of lyon.
    restore(pair, PARIS, 4, boot=9, with_mailboxes=False)
    pair[LYON].node.incoming.skip(PARIS, 0, 5)
    with losing(pair, StreamBeginning):
        pair.link(PARIS, LYON)
        pair.advertise(PARIS, EVERYTHING)
        pair.pass_time(1.2)
    pair.renew(PARIS, PARIS_2, boot=19)
    pair.link(PARIS_2, LYON)
    pair.advertise(PARIS_2, EVERYTHING)
    pair.pass_time(2.0)
    assert gaps(pair[PARIS_2]) == [AnnounceGap(LYON, 4, 5, FORGOTTEN)]
    pair.publish(LYON, b"c")
    assert pair[PARIS_2].imported(LYON) == [b"a", b"c"]
    assert leaves(pair, LYON) == []


def test_a_site_under_a_new_key_that_lost_a_stream_announces_all_of_it(pair: LinkedNodes) -> None:
    pair.advertise(PARIS, EVERYTHING)
    pair.publish(LYON, b"a", b"b")
    # The copy of paris is from before it had anything of lyon.
    restore(pair, PARIS, 2, boot=9)
    with losing(pair, StreamBeginning):
        pair.link(PARIS, LYON)
        pair.settle()
    pair.renew(PARIS, PARIS_2, boot=19)
    pair.link(PARIS_2, LYON)
    pair.advertise(PARIS_2, EVERYTHING)
    pair.pass_time(2.0)
    assert gaps(pair[PARIS_2]) == [AnnounceGap(LYON, 0, 5, FORGOTTEN)]


def test_an_older_copy_that_has_caught_up_before_the_two_meet_is_noticed(pair: LinkedNodes) -> None:
    restore(pair, PARIS, 1, boot=9)
    pair.publish(PARIS, b"1 anew", b"2 anew", b"3", b"4")
    pair.link(PARIS, LYON)
    pair.settle()
    assert leaves(pair, PARIS) == [1]


def test_an_older_copy_that_starts_twice_before_the_two_meet_is_noticed(pair: LinkedNodes) -> None:
    restore(pair, PARIS, 1, boot=9)
    pair.publish(PARIS, b"1 anew", b"2 anew", b"3", b"4")
    restore(pair, PARIS, 5, boot=19)
    pair.link(PARIS, LYON)
    pair.settle()
    assert leaves(pair, PARIS) == [1]


def test_an_older_copy_that_does_not_know_a_site_is_noticed(pair: LinkedNodes) -> None:
    restore(pair, PARIS, 1, boot=9, with_mailboxes=False)
    pair.publish(PARIS, b"1 anew", b"2 anew", b"3", b"4")
    pair.link(PARIS, LYON)
    pair.settle()
    assert leaves(pair, PARIS) == [1]


def test_an_older_copy_is_noticed_by_a_site_that_starts_before_it_hears_more(pair: LinkedNodes) -> None:
    restore(pair, PARIS, 1, boot=9, with_mailboxes=False)
    pair.publish(PARIS, b"1 anew", b"2 anew", b"3", b"4")
    with losing(pair, StreamAnswer):
        pair.link(PARIS, LYON)
        pair.pass_time(1.2)
    pair.restart(LYON, boot=9)
    pair.link(PARIS, LYON)
    pair.pass_time(1.2)
    assert leaves(pair, PARIS) == [1]


def test_a_promise_is_enough_to_notice_an_older_copy() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.publish(PARIS, b"0", b"1", b"2")
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    assert nodes[LYON].node.promised_ends() == {PARIS: 3}
    restore(nodes, PARIS, 1, boot=9, with_mailboxes=False)
    nodes.publish(PARIS, b"1 anew")
    nodes.link(PARIS, LYON)
    nodes.pass_time(2.0)
    assert leaves(nodes, PARIS) == [1]


@pytest.mark.parametrize("lost", [StreamAnswer, StreamAcknowledgement])
def test_a_site_that_answered_in_vain_and_started_again_is_no_alarm(lost: type[OverlayMessage]) -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.link(PARIS, LYON)
    nodes.publish(PARIS, b"0")
    with losing(nodes, lost):
        nodes.advertise(LYON, EVERYTHING)
        nodes.pass_time(1.2)
    position = nodes[LYON].node.incoming.durable(PARIS)
    nodes.restart(LYON, boot=9)
    nodes[LYON].node.incoming.skip(PARIS, 0, position)
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    nodes.pass_time(1.2)
    assert not gaps(nodes[LYON])
    assert leaves(nodes, PARIS) == []


def test_a_forged_acknowledgement_moves_nothing(pair: LinkedNodes) -> None:
    pair.receive(PARIS, 1, StreamAcknowledgement(LYON, PARIS, 0, 1 << 60, False))
    assert pair[PARIS].reasons == ["an acknowledgement of what does not exist"]
    pair.publish(PARIS, b"3")
    assert pair[LYON].imported(PARIS) == [b"0", b"1", b"2", b"3"]


def test_packets_from_before_a_meeting_are_dropped(pair: LinkedNodes) -> None:
    old = pair[PARIS].sent(Packet)[-1]
    assert isinstance(old, Packet)
    pair.restart(LYON, boot=9)
    pair.restart(PARIS, boot=900)
    with losing(pair, StreamQuestion):
        link = pair.link(PARIS, LYON)
        pair.settle()
        pair[LYON].node.incoming.skip(PARIS, 0, 2)
        pair.receive(LYON, link, old)
    pair.pass_time(1.2)
    pair.receive(LYON, link, old)
    assert pair[LYON].of(Append) == []


def test_an_older_copy_of_a_receiver_announces_what_it_has_lost(pair: LinkedNodes) -> None:
    restore(pair, LYON, 0, boot=9)
    pair.link(PARIS, LYON)
    pair.advertise(LYON, EVERYTHING)
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 0, 3, "acknowledged before, and missing since")]
    assert leaves(pair, PARIS) == []


def test_a_forgotten_site_leaves_nothing_but_its_position(pair: LinkedNodes) -> None:
    pair.unlink(1)
    pair.do(PARIS, pair[PARIS].node.forget(LYON))
    assert pair[PARIS].of(Unregister) == [Unregister(LYON)]
    assert (LYON in pair[PARIS].node.outgoing, LYON in pair[PARIS].node.book.sites) == (False, False)
    assert pair[PARIS].node.is_forgotten(LYON)


def test_a_forgotten_site_that_others_tell_of_stays_forgotten() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, BONN)
    link = nodes.link(LYON, PARIS)
    nodes.advertise(LYON, EVERYTHING)
    other = nodes.link(BONN, PARIS)
    nodes.settle()
    nodes.unlink(link)
    nodes.settle()
    nodes.do(PARIS, nodes[PARIS].node.forget(LYON))
    nodes.unlink(other)
    nodes.link(BONN, PARIS)
    nodes.pass_time(31.0)
    assert LYON not in nodes[PARIS].mailboxes
    assert LYON in nodes[BONN].mailboxes


def test_a_forgotten_site_that_comes_back_hears_of_a_gap(pair: LinkedNodes) -> None:
    pair.unlink(1)
    pair.publish(PARIS, b"3", b"4")
    pair.do(PARIS, pair[PARIS].node.forget(LYON))
    pair.publish(PARIS, b"5")
    pair.link(PARIS, LYON)
    pair.pass_time(2.0)
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 3, 6, "this site was forgotten there")]
    pair.publish(PARIS, b"6")
    assert pair[LYON].imported(PARIS) == [b"0", b"1", b"2", b"6"]
    assert not pair[PARIS].node.is_forgotten(LYON)
    assert pair[PARIS].node.troubles() == []


def test_a_site_that_an_earlier_run_has_forgotten_announces_a_gap_by_itself(pair: LinkedNodes) -> None:
    pair.unlink(1)
    pair.do(PARIS, pair[PARIS].node.forget(LYON))
    pair.publish(PARIS, b"3")
    pair.restart(PARIS, boot=9)
    pair.link(PARIS, LYON)
    pair.pass_time(2.0)
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 3, 4, "the site has begun the stream anew")]


def test_the_successor_of_a_forgotten_site_hears_of_the_gap(pair: LinkedNodes) -> None:
    pair.unlink(1)
    pair.publish(PARIS, b"3")
    pair.do(PARIS, pair[PARIS].node.forget(LYON))
    pair.add(LYON_2, boot=9)
    pair.link(PARIS, LYON_2)
    pair.advertise(LYON_2, EVERYTHING)
    pair.pass_time(2.0)
    (gap,) = gaps(pair[LYON_2])
    assert gap == AnnounceGap(PARIS, 3, 4, "this site was forgotten there")


def test_a_site_that_was_let_go_by_mistake_goes_on_from_where_it_was() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON_2, LYON, boot=5)
    nodes.link(PARIS, LYON)
    nodes.advertise(PARIS, EVERYTHING)
    nodes.publish(LYON, b"0", b"1")
    nodes.unlink(1)
    other = nodes.link(PARIS, LYON_2)
    nodes.settle()
    assert [each.origin for each in nodes[PARIS].of(AnnounceGap) if isinstance(each, AnnounceGap)] == [LYON]
    nodes.unlink(other)
    nodes.link(PARIS, LYON)
    nodes.publish(LYON, b"2")
    nodes.pass_time(2.0)
    assert nodes[PARIS].imported(LYON) == [b"0", b"1", b"2"]
    reasons = {each.reason for each in nodes[PARIS].of(AnnounceGap) if isinstance(each, AnnounceGap)}
    assert reasons == {"the site has lost its data directory"}


def test_two_sites_with_one_name_are_named_once() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, LYON_2, boot=5)
    nodes.link(PARIS, LYON)
    second = nodes.link(PARIS, LYON_2)
    nodes.pass_time(9.0)
    assert nodes[PARIS].of(Refuse) == []
    nodes.pass_time(20.0)
    text = f"several sites are called lyon ({LYON}, {LYON_2}): give each a name of its own"
    for site in (PARIS, LYON, LYON_2):
        assert nodes[site].of(Refuse) == [Refuse("lyon", text, severe=True)]
        assert nodes[site].node.troubles() == [text]
    nodes.unlink(second)
    nodes.pass_time(2.0)
    assert nodes[PARIS].node.troubles() == []


def test_a_successor_that_comes_while_the_old_site_seems_to_be_there_is_no_trouble() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, LYON_2, boot=5)
    first = nodes.link(PARIS, LYON)
    nodes.link(PARIS, LYON_2)
    nodes.pass_time(4.0)
    nodes.unlink(first)
    nodes.pass_time(20.0)
    assert nodes[PARIS].of(Refuse) == []


def test_a_meeting_has_one_number_until_a_site_starts_again(pair: LinkedNodes) -> None:
    def numbers() -> set[int]:
        return {each.meeting for each in pair[PARIS].sent(StreamQuestion) if isinstance(each, StreamQuestion)}

    pair.restart(PARIS, boot=9)
    with losing(pair, StreamQuestion):
        pair.link(PARIS, LYON)
        pair.pass_time(3.0)
    pair.pass_time(1.2)
    assert len(numbers()) == 1
    pair.restart(LYON, boot=9)
    pair.link(PARIS, LYON)
    pair.settle()
    assert len(numbers()) == 2


def test_a_floor_belongs_to_a_name(pair: LinkedNodes) -> None:
    pair.restart(PARIS, boot=9)
    pair[PARIS].node.restore_meetings({}, {"lyon": 2})
    assert pair[PARIS].node.floors() == {"lyon": 2}
    pair.add(LYON_2, boot=9)
    pair.link(PARIS, LYON_2)
    pair.advertise(LYON_2, EVERYTHING)
    assert (pair[PARIS].node.floors(), leaves(pair, PARIS)) == ({}, [])


def test_link_states_tell_the_run(pair: LinkedNodes) -> None:
    assert {each.run for each in pair[PARIS].sent(LinkState) if isinstance(each, LinkState)} == {1}


def test_a_copy_from_before_a_subscription_is_noticed_though_the_log_is_as_long(pair: LinkedNodes) -> None:
    before = replace(pair[PARIS].mailboxes[LYON])
    pair.advertise(LYON, predicate(5))
    assert pair[LYON].node.book.in_effect_from(PARIS, pair[LYON].node.book.version) == 3
    pair[PARIS].mailboxes[LYON] = before
    restore(pair, PARIS, 3, boot=9)
    pair.publish(PARIS, b"3")
    pair.link(PARIS, LYON)
    pair.settle()
    assert leaves(pair, PARIS) == [3]
    assert pair[LYON].imported(PARIS) == [b"0", b"1", b"2"]
