import pytest

from culver.matching import NOTHING
from culver.overlay import (
    AnnounceGap,
    Append,
    CloseLink,
    HearGossip,
    MailboxGap,
    MoveCursor,
    NodeSettings,
    OverlayNode,
    Packet,
    Refuse,
    Register,
    Rewind,
    SendMessage,
    StreamAcknowledgement,
    Unregister,
    site_key,
)
from culver.overlay.core.overlay_messages import (
    MOST_HOPS,
    Advertisement,
    AdvertisementApplied,
    AdvertisementCheck,
    AdvertisementDigest,
    AdvertisementRequest,
    LinkState,
    OverlayMessage,
    SiteNumbers,
    StreamBeginning,
    StreamPart,
)
from culver.overlay.core.replaced_sites import FORGOTTEN
from support.linked_nodes import BONN, EVERYTHING, LYON, OSLO, PARIS, LinkedNodes, gaps, is_packet, predicate

LYON_2, LYON_3 = site_key("lyon", bytes([2] * 8)), site_key("lyon", bytes([3] * 8))
STRANGER = site_key("stranger", bytes(8))


@pytest.fixture
def pair() -> LinkedNodes:
    """Paris and Lyon, linked; Lyon wants everything of Paris."""
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    return nodes


@pytest.fixture
def line() -> LinkedNodes:
    """Paris - Lyon - Bonn; Bonn wants everything."""
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, BONN)
    nodes.link(PARIS, LYON)
    nodes.link(LYON, BONN)
    nodes.advertise(BONN, EVERYTHING)
    return nodes


def made_up(number: int) -> str:
    return f"x{number}~{number:016x}"


# --- from an advertisement to an acknowledgement ------------------------------------------------------


def test_an_event_reaches_the_site_that_advertised_for_it(pair: LinkedNodes) -> None:
    assert pair[PARIS].of(Register) == [Register(LYON, 2, EVERYTHING)]
    assert pair[LYON].node.book.in_effect_from(PARIS, 2) == 0
    pair.publish(PARIS, b"one", b"two")
    assert pair[LYON].of(Append) == [Append(PARIS, 2, ((0, b"one"), (1, b"two")))]
    assert pair[LYON].sent(StreamAcknowledgement)[-1] == StreamAcknowledgement(LYON, PARIS, 0, 2, False)
    assert pair[PARIS].of(MoveCursor) == [MoveCursor(LYON, 1)]
    assert pair[PARIS].node.outgoing.acknowledged_position(LYON) == 2


def test_a_subscription_is_in_effect_from_the_position_of_its_registration(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one", b"two", b"three")
    pair.advertise(LYON, predicate(1))
    assert pair[LYON].node.book.in_effect_from(PARIS, 2) == 0
    assert pair[LYON].node.book.in_effect_from(PARIS, 3) == 3


def test_a_new_stream_begins_at_the_end_of_the_log_without_a_gap() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.publish(PARIS, b"before", b"before")
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    nodes.publish(PARIS, b"after")
    assert nodes[LYON].imported(PARIS) == [b"after"]
    assert nodes[LYON].node.incoming.positions() == {PARIS: 3}
    assert not gaps(nodes[LYON])


def test_transit_keeps_nothing(line: LinkedNodes) -> None:
    line.publish(PARIS, b"one")
    assert line[BONN].imported(PARIS) == [b"one"]
    assert line[LYON].log == []
    assert line[LYON].of(Append) == []
    assert line[LYON].node.incoming.durable(PARIS) == 0


def test_an_event_from_elsewhere_is_not_sent_on(line: LinkedNodes) -> None:
    line.advertise(LYON, EVERYTHING)
    line.advertise(PARIS, EVERYTHING)
    line.publish(PARIS, b"one")
    assert [line[site].imported(PARIS) for site in (LYON, BONN)] == [[b"one"], [b"one"]]
    assert [len(line[site].log) for site in (PARIS, LYON, BONN)] == [1, 1, 1]


def test_gossip_travels_through_other_sites_and_is_heard_where_it_is_meant(line: LinkedNodes) -> None:
    line.do(PARIS, line[PARIS].node.gossip(BONN, b"how are you"))
    line.settle()
    assert line[BONN].of(HearGossip) == [HearGossip(PARIS, b"how are you")]
    assert line[LYON].of(HearGossip) == []
    line.do(PARIS, line[PARIS].node.gossip(OSLO, b"nobody knows this site"))
    assert not line.frames


def test_one_packet_serves_all_sites_behind_a_link(line: LinkedNodes) -> None:
    line.advertise(LYON, EVERYTHING)
    line.publish(PARIS, b"one")
    assert len(line[PARIS].sent(Packet)) == 1
    assert len(line[LYON].sent(Packet)) == 1


def test_a_packet_for_most_sites_is_broadcast() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, BONN, OSLO, settings=NodeSettings(broadcast_threshold=0.5))
    for other in (LYON, BONN, OSLO):
        nodes.link(PARIS, other)
    nodes.advertise(LYON, EVERYTHING)
    nodes.publish(PARIS, b"one")
    assert [each.broadcast for each in nodes[PARIS].sent(Packet) if isinstance(each, Packet)] == [False]
    nodes.advertise(BONN, EVERYTHING)
    nodes.publish(PARIS, b"two")
    assert [each.broadcast for each in nodes[PARIS].sent(Packet) if isinstance(each, Packet)] == [
        False, True, True, True,
    ]  # fmt: skip
    assert [nodes[site].imported(PARIS) for site in (LYON, BONN, OSLO)] == [[b"one", b"two"], [b"two"], []]


def test_lost_packets_come_again(pair: LinkedNodes) -> None:
    pair.loses = is_packet
    pair.publish(PARIS, b"one")
    pair.pass_time(0.9)
    pair.loses = lambda message: False
    assert pair[LYON].imported(PARIS) == []
    pair.pass_time(0.2)
    assert pair[PARIS].of(Rewind)[-1] == Rewind(LYON, -1)
    assert pair[LYON].imported(PARIS) == [b"one"]


def test_a_site_that_notices_a_hole_asks_at_once(pair: LinkedNodes) -> None:
    pair.loses = is_packet
    pair.publish(PARIS, b"one")
    pair.loses = lambda message: False
    pair.publish(PARIS, b"two")
    assert pair[LYON].sent(StreamAcknowledgement)[-2:] == [
        StreamAcknowledgement(LYON, PARIS, 0, 0, True),
        StreamAcknowledgement(LYON, PARIS, 0, 2, False),
    ]
    assert pair[LYON].imported(PARIS) == [b"one", b"two"]


def test_what_waits_for_an_acknowledgement_goes_without_another_offer(pair: LinkedNodes) -> None:
    node, large = pair[PARIS].node, bytes(40_000)
    node.position = 2
    node.offered(LYON, node.outgoing.generation(LYON), [(0, large), (1, large)])
    node.flush(0.0)
    node.received(1, StreamAcknowledgement(LYON, PARIS, 0, 1, False), 0.1)
    pair.do(PARIS, node.tick(0.2))
    (packet,) = pair[PARIS].sent(Packet)
    assert isinstance(packet, Packet)
    assert packet.offsets == (1,)


def test_a_disk_that_refuses_acknowledges_nothing(pair: LinkedNodes) -> None:
    pair[LYON].appends = False
    pair.publish(PARIS, b"one")
    pair.do(LYON, pair[LYON].node.append_failed(PARIS))
    assert pair[PARIS].of(MoveCursor) == []
    pair[LYON].appends = True
    pair.pass_time(1.5)
    assert pair[LYON].imported(PARIS) == [b"one"]


def test_a_gap_of_a_mailbox_is_announced_where_it_is_missing(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one")
    paris = pair[PARIS].node
    paris.position = 9
    paris.offered(LYON, paris.outgoing.generation(LYON), [MailboxGap(1, 9, "full")])
    pair.settle()
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 1, 9, "full")]
    assert paris.outgoing.acknowledged_position(LYON) == 9


def test_a_site_with_an_old_backup_hears_what_it_lost(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one", b"two", b"three")
    del pair[LYON].log[1:]
    pair.restart(LYON, boot=1000)
    pair.link(PARIS, LYON)
    pair.advertise(LYON, EVERYTHING)
    pair.publish(PARIS, b"four")
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 1, 3, "acknowledged before, and missing since")]
    assert pair[LYON].imported(PARIS) == [b"one", b"four"]


def test_a_stream_that_begins_anew_behind_what_the_site_has_is_a_gap(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one")
    (last,) = (each for each in pair[PARIS].sent(StreamBeginning) if isinstance(each, StreamBeginning))
    pair.receive(LYON, 1, StreamBeginning(PARIS, LYON, 0, 7, 7, "", last.meeting, goes_on=False))
    assert gaps(pair[LYON]) == [AnnounceGap(PARIS, 1, 7, "the site has begun the stream anew")]


# --- advertisements -----------------------------------------------------------------------------------


def test_checks_repeat_a_lost_answer(pair: LinkedNodes) -> None:
    pair.loses = lambda message: isinstance(message, AdvertisementApplied)
    pair.advertise(LYON, predicate(1))
    assert pair[LYON].node.book.in_effect_from(PARIS, 3) is None
    pair.loses = lambda message: False
    pair.pass_time(1.0)
    assert pair[LYON].node.book.in_effect_from(PARIS, 3) == 0
    checks = len(pair[LYON].sent(AdvertisementCheck))
    pair.pass_time(5.0)
    assert len(pair[LYON].sent(AdvertisementCheck)) == checks


def test_checks_repeat_a_lost_advertisement(line: LinkedNodes) -> None:
    line.loses = lambda message: isinstance(message, Advertisement)
    line.advertise(BONN, predicate(1))
    line.loses = lambda message: False
    line.pass_time(2.1)
    assert line[BONN].node.book.in_effect_from(PARIS, 3) == 0
    assert line[PARIS].mailboxes[BONN].predicate == predicate(1)


def test_a_registration_that_fails_is_tried_again(pair: LinkedNodes) -> None:
    pair[PARIS].registers = False
    pair.advertise(LYON, predicate(1))
    pair.do(PARIS, pair[PARIS].node.registration_failed(LYON))
    pair[PARIS].registers = True
    pair.pass_time(1.0)
    assert pair[LYON].node.book.in_effect_from(PARIS, 3) == 0


def test_a_refused_advertisement_tells_its_site_why_and_waits_for_room() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, settings=NodeSettings(open_limit=1))
    nodes.add(LYON, BONN)
    nodes.link(PARIS, LYON)
    nodes.link(PARIS, BONN)
    nodes.advertise(LYON, EVERYTHING)
    nodes.advertise(BONN, EVERYTHING)
    assert "overlay.open_limit" in nodes[BONN].node.book.sites[PARIS].own_refusal
    nodes.pass_time(5.0)
    assert len([each for each in nodes[PARIS].of(Refuse) if each.source == BONN]) == 1
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    assert nodes[BONN].node.book.sites[PARIS].own_refusal == ""
    assert nodes[BONN].node.book.in_effect_from(PARIS, 2) == 0


def test_a_lost_answer_after_a_refusal_is_asked_for_again() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, settings=NodeSettings(open_limit=0))
    nodes.add(LYON)
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    nodes.loses = lambda message: isinstance(message, AdvertisementApplied)
    nodes.advertise(LYON, predicate(1))
    nodes.loses = lambda message: False
    nodes.pass_time(1.0)
    assert nodes[LYON].node.book.in_effect_from(PARIS, 3) == 0
    assert nodes[LYON].node.book.sites[PARIS].own_refusal == ""


def test_an_advertisement_that_cannot_be_read_is_refused_once(pair: LinkedNodes) -> None:
    pair.receive(PARIS, 1, Advertisement(LYON, 9, 0, "rubbish", b""))
    assert "cannot be taken" in pair[PARIS].reasons[-1]
    answer = pair[PARIS].sent(AdvertisementApplied)[-1]
    assert isinstance(answer, AdvertisementApplied)
    assert (answer.destination, answer.version) == (LYON, 9)
    assert answer.refusal


def test_a_restarted_site_does_not_take_old_words_of_a_neighbour_for_new(line: LinkedNodes) -> None:
    """Lyon was cut off when Bonn widened its predicate, and tells Paris of the old one."""
    line.advertise(BONN, predicate(1))
    old = line[LYON].node.book.whole(BONN)
    assert old is not None
    line.advertise(BONN, EVERYTHING)
    line.restart(PARIS, boot=1000)
    line.loses = lambda message: isinstance(message, Advertisement | AdvertisementCheck)
    link = line.link(PARIS, LYON)
    line.settle()
    line.receive(PARIS, link, old)
    assert line[PARIS].of(Register) == []
    assert line[PARIS].mailboxes[BONN].predicate == EVERYTHING
    line.loses = lambda message: False
    line.advertise(BONN, predicate(2))
    line.pass_time(2.0)
    assert line[PARIS].mailboxes[BONN].predicate == predicate(2)


def test_an_answer_to_a_version_of_an_earlier_run_promises_nothing(pair: LinkedNodes) -> None:
    lyon = pair[LYON].node
    pair.receive(LYON, 1, AdvertisementApplied(PARIS, LYON, 0, 50, 7, ""))
    assert lyon.book.in_effect_from(PARIS, 50) is None
    pair.advertise(LYON, predicate(1))
    pair.pass_time(2.0)
    assert lyon.book.version == 51
    assert lyon.book.in_effect_from(PARIS, 3) == 0
    assert pair[PARIS].mailboxes[LYON].predicate == predicate(1)


def test_a_site_goes_on_above_the_version_of_an_earlier_run(pair: LinkedNodes) -> None:
    pair.receive(LYON, 1, AdvertisementDigest(((LYON, 70),)))
    pair.receive(LYON, 1, Advertisement(LYON, 80, 0, NOTHING.text, b""))
    pair.pass_time(1.0)
    assert pair[LYON].node.book.version == 81
    assert pair[PARIS].node.book.sites[LYON].heard == 81
    assert pair[PARIS].mailboxes[LYON].predicate == EVERYTHING


# --- routes -------------------------------------------------------------------------------------------


def test_a_stale_link_state_is_answered_with_the_newer_one(line: LinkedNodes) -> None:
    held = line[LYON].node.states.states[BONN]
    instructions = line[LYON].node.received(1, LinkState(BONN, 0, (), 0), 0.0)
    assert instructions == [SendMessage(1, held)]
    assert line[LYON].node.received(1, held, 0.0) == []


def test_a_site_goes_on_above_its_link_state_of_an_earlier_run(pair: LinkedNodes) -> None:
    pair.receive(LYON, 1, LinkState(LYON, 500, (), 0))
    pair.pass_time(1.0)
    assert pair[LYON].node.states.states[LYON].sequence > 500
    assert pair[PARIS].node.states.states[LYON] == pair[LYON].node.states.states[LYON]
    assert pair[PARIS].node.states.reaches(LYON)


def test_two_copies_of_a_data_directory_do_not_flood_the_overlay() -> None:
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON, BONN)
    nodes.link(PARIS, LYON)
    nodes.link(LYON, BONN)
    nodes.settle()
    copy = OverlayNode(PARIS, 40, 0, {}, NodeSettings())
    copy.link_opened(1, LYON, 1, 0.0)
    sent = 0
    for step in range(100):
        nodes.now = step / 10
        told = copy.tick(nodes.now)
        for states in (nodes[LYON].node.states, nodes[PARIS].node.states):
            told += copy.received(1, states.states[PARIS], nodes.now)
        for each in told:
            if isinstance(each, SendMessage) and isinstance(each.message, LinkState):
                sent += 1
                nodes.receive(PARIS, 1, each.message)
        nodes.do(PARIS, nodes[PARIS].node.tick(nodes.now))
        nodes.settle()
    assert 5 < sent < 20
    assert "a link state of this site that this run did not send" in nodes[PARIS].reasons


def test_the_cheapest_of_several_links_is_used_and_the_next_one_when_it_breaks(pair: LinkedNodes) -> None:
    cheap = pair.link(PARIS, LYON, cost=0)
    pair.settle()
    pair.publish(PARIS, b"one")
    assert [each.link for each in pair[PARIS].of(SendMessage) if is_packet(each.message)] == [cheap]
    pair.unlink(cheap)
    pair.settle()
    pair.publish(PARIS, b"two")
    assert [each.link for each in pair[PARIS].of(SendMessage) if is_packet(each.message)] == [cheap, 1]
    assert pair[LYON].imported(PARIS) == [b"one", b"two"]


def test_what_a_broken_link_took_with_it_is_told_on_the_next_one(pair: LinkedNodes) -> None:
    cheap = pair.link(PARIS, LYON, cost=0)
    pair.settle()
    pair.do(LYON, pair[LYON].node.advertise(predicate(1)))
    pair.unlink(cheap)
    pair.settle()
    assert pair[PARIS].mailboxes[LYON].predicate == predicate(1)


def test_a_site_without_a_way_waits_in_its_mailbox(line: LinkedNodes) -> None:
    line.unlink(2)
    line.settle()
    line.publish(PARIS, b"one")
    assert line[PARIS].sent(Packet) == []
    line.link(LYON, BONN)
    line.settle()
    assert line[BONN].imported(PARIS) == [b"one"]


def test_every_half_minute_neighbours_compare_what_they_have(pair: LinkedNodes) -> None:
    pair.pass_time(1.0)
    before = len(pair[PARIS].sent(AdvertisementDigest))
    pair.pass_time(30.0)
    assert len(pair[PARIS].sent(AdvertisementDigest)) == before + 1


def test_sites_that_are_no_more_are_not_told_of_and_then_forgotten(line: LinkedNodes) -> None:
    line.unlink(2)
    line.settle()
    line.now = 200.0
    line.add(OSLO)
    line.link(PARIS, OSLO)
    line.settle()
    assert BONN not in line[OSLO].node.states.states
    assert BONN in line[PARIS].node.states.states
    line.now = 4000.0
    line.pass_time(0.1)
    assert BONN not in line[PARIS].node.states.states
    assert BONN in line[PARIS].mailboxes


# --- lost data directories ----------------------------------------------------------------------------


def lose_lyon(nodes: LinkedNodes, successor: str = LYON_2) -> None:
    for key in (LYON, LYON_2):
        if key in nodes.sites:
            for link in list(nodes[key].links):
                nodes.unlink(link)
            del nodes.sites[key]
    nodes.add(successor, boot=1000)
    nodes.do(successor, nodes[successor].node.advertise(EVERYTHING))


def test_a_site_that_lost_its_data_directory_is_told_from_the_old_one(pair: LinkedNodes) -> None:
    pair.advertise(PARIS, EVERYTHING)
    pair.publish(LYON, b"from lyon")
    pair.publish(PARIS, b"one", b"two")
    lose_lyon(pair)
    pair.publish(PARIS, b"three")
    pair.link(PARIS, LYON_2)
    pair.settle()
    assert gaps(pair[PARIS]) == [AnnounceGap(LYON, 1, 1, FORGOTTEN)]
    assert pair[PARIS].of(Unregister) == [Unregister(LYON)]
    assert set(pair[PARIS].mailboxes) == {LYON_2}
    assert gaps(pair[LYON_2]) == [AnnounceGap(PARIS, 3, 4, FORGOTTEN)]
    pair.publish(PARIS, b"four")
    assert pair[LYON_2].imported(PARIS) == [b"four"]


def test_a_successor_hears_of_its_gap_although_the_first_word_is_lost(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one")
    lose_lyon(pair)
    pair.publish(PARIS, b"two")
    pair.loses = lambda message: isinstance(message, StreamBeginning)
    pair.link(PARIS, LYON_2)
    pair.settle()
    pair.loses = lambda message: False
    assert gaps(pair[LYON_2]) == []
    pair.pass_time(1.0)
    assert gaps(pair[LYON_2]) == [AnnounceGap(PARIS, 1, 2, FORGOTTEN)]
    starts = len(pair[PARIS].sent(StreamBeginning))
    pair.pass_time(3.0)
    assert len(pair[PARIS].sent(StreamBeginning)) == starts


def test_a_successor_hears_of_no_gap_where_its_predecessor_had_everything(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one")
    lose_lyon(pair)
    pair.link(PARIS, LYON_2)
    pair.settle()
    assert gaps(pair[LYON_2]) == []
    assert pair[LYON_2].node.incoming.durable(PARIS) == 1


def test_a_data_directory_that_is_lost_twice_leaves_one_gap_from_the_first_loss(pair: LinkedNodes) -> None:
    pair.publish(PARIS, b"one")
    lose_lyon(pair)
    pair.publish(PARIS, b"two")
    pair.loses = lambda message: isinstance(message, StreamBeginning)
    pair.link(PARIS, LYON_2)
    pair.settle()
    lose_lyon(pair, LYON_3)
    pair.loses = lambda message: False
    pair.link(PARIS, LYON_3)
    pair.settle()
    assert gaps(pair[LYON_3]) == [AnnounceGap(PARIS, 1, 2, FORGOTTEN)]


def test_the_gap_of_a_lost_directory_covers_what_an_earlier_run_was_promised() -> None:
    """Lyon restarts after it was promised events of Paris, and before it had any; then Paris is lost."""
    nodes = LinkedNodes()
    nodes.add(PARIS, LYON)
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, EVERYTHING)
    nodes.loses = is_packet
    nodes.publish(PARIS, b"one", b"two")
    nodes.restart(LYON, boot=1000)
    nodes.link(PARIS, LYON)
    nodes.advertise(LYON, predicate(1))
    assert nodes[LYON].node.book.in_effect_from(PARIS, 1001) == 2
    for link in list(nodes[PARIS].links):
        nodes.unlink(link)
    successor = site_key("paris", bytes([2] * 8))
    nodes.add(successor, boot=2000)
    nodes.link(successor, LYON)
    nodes.settle()
    (gap,) = gaps(nodes[LYON])
    assert isinstance(gap, AnnounceGap)
    assert (gap.origin, gap.start) == (PARIS, 0)


def test_late_words_of_a_site_that_was_replaced_are_dropped(pair: LinkedNodes) -> None:
    pair.advertise(PARIS, EVERYTHING)
    pair.publish(LYON, b"one")
    lose_lyon(pair)
    link = pair.link(PARIS, LYON_2)
    pair.settle()
    before = len(pair[PARIS].done)
    pair.receive(PARIS, link, SiteNumbers(0, (PARIS,)))
    pair.receive(PARIS, link, Packet(LYON, 2, 1, b"\x01", (StreamPart(0, 1, 1),), (0,), (b"one",)))
    pair.receive(PARIS, link, StreamBeginning(LYON, PARIS, 0, 0, 9, "full", 1, goes_on=True))
    pair.receive(PARIS, link, Advertisement(LYON, 99, 0, EVERYTHING.text, b""))
    assert pair[PARIS].done[before:] == []
    assert pair[PARIS].imported(LYON) == [b"one"]


# --- neighbours that lie ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Packet(PARIS, 1, 1, b"\x08", (StreamPart(0, 1, 1),), (0,), (b"e",)), "never told"),
        (Packet(STRANGER, 1, 1, b"", (), (), ()), "unknown origin"),
        (Packet(PARIS, 1, 1, b"", (), (), ()), "own came back"),
        (Packet(LYON, 1, MOST_HOPS, b"", (), (), ()), "a packet in a loop"),
        (StreamAcknowledgement(STRANGER, PARIS, 0, 0, False), "unknown source"),
        (StreamAcknowledgement(PARIS, LYON, 0, 0, False), "forged"),
        (StreamAcknowledgement(LYON, BONN, MOST_HOPS, 0, False), "a message in a loop"),
        (StreamAcknowledgement(LYON, PARIS, 0, 1000, False), "does not exist"),
        (LinkState("no key", 1, (), 0), "no site can have"),
        (LinkState(STRANGER, 1, (("no key", 1),), 0), "no site can have"),
        (LinkState(STRANGER, 1, tuple((made_up(each), 1) for each in range(2000)), 0), "no site can have"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_changes_nothing(
    pair: LinkedNodes, message: OverlayMessage, reason: str
) -> None:
    (refusal,) = pair[PARIS].node.received(1, message, 0.0)
    assert isinstance(refusal, Refuse)
    assert reason in refusal.reason
    assert pair[PARIS].node.outgoing.acknowledged_position(LYON) == 0
    assert set(pair[PARIS].node.states.states) == {PARIS, LYON}


def test_numbers_out_of_turn_close_the_link(pair: LinkedNodes) -> None:
    reason = "site numbers out of turn"
    assert pair[PARIS].node.received(1, SiteNumbers(5, (BONN,)), 0.0) == [
        Refuse(LYON, reason),
        CloseLink(1, reason),
    ]


def test_made_up_sites_fill_no_memory(pair: LinkedNodes) -> None:
    paris = pair[PARIS].node
    sites = [made_up(number) for number in range(3000)]
    for site in sites:
        pair.do(PARIS, paris.received(1, Advertisement(site, 1, 0, EVERYTHING.text, b""), 0.0))
    assert set(paris.book.sites) == {LYON}
    for site in sites:
        pair.do(PARIS, paris.received(1, LinkState(site, 1, ((LYON, 1),), 0), 0.0))
    assert len(paris.states.states) == 1024
    assert "more sites than overlay.most_sites" in pair[PARIS].reasons


def test_a_digest_of_a_hundred_thousand_sites_asks_for_none_that_is_unknown(pair: LinkedNodes) -> None:
    versions = tuple((made_up(number), 1) for number in range(100_000))
    assert pair[PARIS].node.received(1, AdvertisementDigest(versions), 0.0) == []
    news = AdvertisementDigest(((LYON, 99),) * 1000)
    assert pair[PARIS].node.received(1, news, 0.0) == [SendMessage(1, AdvertisementRequest(LYON))]


def test_a_request_for_what_is_unknown_has_no_answer(pair: LinkedNodes) -> None:
    assert pair[PARIS].node.received(1, AdvertisementRequest(STRANGER), 0.0) == []
    assert pair[PARIS].node.received(99, AdvertisementRequest(PARIS), 0.0) == []
