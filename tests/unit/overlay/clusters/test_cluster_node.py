"""Cluster nodes that are linked in memory: what reaches whom, and what survives."""

import pytest

from culver.matching import NOTHING
from culver.overlay import site_key
from culver.overlay.clusters.cluster_instructions import cluster_key
from culver.overlay.clusters.cluster_messages import (
    MOST_CLUSTER,
    CarriageReport,
    CarrierTerms,
    Claim,
    ClusterNote,
    MemberAdvertisement,
    TermsMember,
)
from culver.overlay.clusters.origin_clustering import ClusterSettings
from culver.overlay.core.node_instructions import SendMessage
from culver.overlay.core.outgoing_streams import MailboxGap
from culver.overlay.core.overlay_messages import (
    MOST_HOPS,
    AdvertisementRequest,
    LinkState,
    Packet,
    StreamPart,
)
from culver.overlay.core.replaced_sites import FORGOTTEN, REMOVED
from support.linked_clusters import LinkedClusters
from support.linked_nodes import BONN, LYON, OSLO, PARIS, predicate

SITES = PARIS, LYON, BONN, OSLO


def meshed(clusters: int = 2) -> LinkedClusters:
    nodes = LinkedClusters(clusters)
    nodes.mesh(*SITES)
    return nodes


def mates(nodes: LinkedClusters, site: str) -> tuple[str, ...]:
    return nodes[site].node.membership.mates


def stranger(nodes: LinkedClusters, site: str) -> str:
    """A site of another cluster."""
    return next(each for each in SITES if each != site and each not in mates(nodes, site))


@pytest.mark.parametrize("clusters", [1, 2, 4])
def test_an_event_reaches_exactly_the_sites_that_want_it_whatever_the_number_of_clusters(
    clusters: int,
) -> None:
    nodes = meshed(clusters)
    nodes.advertise(LYON, predicate(1))
    nodes.advertise(BONN, predicate(2))
    nodes.advertise(OSLO, predicate(1))
    nodes.pass_time(1.0)
    nodes.publish(PARIS, b"1 a", b"2 b", b"3 c")
    nodes.pass_time(1.0)
    assert nodes[LYON].imported(PARIS) == nodes[OSLO].imported(PARIS) == [b"1 a"]
    assert nodes[BONN].imported(PARIS) == [b"2 b"]


def test_the_predicate_of_a_site_is_known_in_its_cluster_only() -> None:
    nodes = meshed()
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(2.0)
    for site in SITES:
        knows = LYON in nodes[site].node.shelf
        assert knows == (site == LYON or site in mates(nodes, LYON))


def test_where_nobody_wants_anything_no_cluster_has_a_mailbox() -> None:
    nodes = meshed()
    assert not nodes[PARIS].mailboxes
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    assert nodes[PARIS].mailboxes
    nodes.advertise(LYON, NOTHING)
    nodes.pass_time(1.0)
    assert not nodes[PARIS].mailboxes


def test_a_member_knows_from_where_its_advertisement_is_in_effect() -> None:
    nodes = meshed()
    nodes.publish(PARIS, b"1 a", b"1 b")
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    node = nodes[LYON].node
    assert node.in_effect_from(PARIS, node.book.version) == 2
    assert node.in_effect_from(PARIS, node.book.version + 1) is None


def test_an_absent_member_holds_the_cursor_and_not_the_stream_to_its_mates() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(*SITES)
    nodes.advertise(LYON, predicate(1))
    nodes.advertise(BONN, predicate(1))
    nodes.pass_time(1.0)
    left = nodes.stop(LYON)
    nodes.pass_time(0.1)
    nodes.publish(PARIS, b"2 x", b"1 a", b"1 b")
    nodes.pass_time(5.0)
    assert nodes[BONN].imported(PARIS) == [b"1 a", b"1 b"]
    assert nodes[PARIS].mailboxes[cluster_key(0)].acknowledged == 1  # nothing was for it before
    nodes.start(LYON, left, boot=1_000_000)
    nodes.link(LYON, OSLO)
    nodes.pass_time(5.0)
    assert not nodes[LYON].imported(PARIS)  # its subscribers have not said yet what they want
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(5.0)
    assert nodes[LYON].imported(PARIS) == [b"1 a", b"1 b"]
    assert nodes[BONN].imported(PARIS) == [b"1 a", b"1 b"]
    assert nodes[PARIS].mailboxes[cluster_key(0)].acknowledged == 3


def test_where_the_carrier_dies_for_good_another_one_carries_what_it_had_taken() -> None:
    nodes = meshed()
    member = stranger(nodes, PARIS)
    (mate,) = mates(nodes, member)
    nodes.advertise(member, predicate(1))
    nodes.pass_time(1.0)
    cluster = nodes[member].node.membership.cluster_at(PARIS)
    assert cluster is not None
    carrier = nodes[PARIS].node.origin.streams.streams[cluster].carrier
    nodes.loses = lambda frame: isinstance(frame, Packet) and frame.carrier != ""
    nodes.publish(PARIS, b"1 a")
    if carrier == mate:
        nodes.stop(mate)
    nodes.loses = lambda frame: False
    nodes.pass_time(10.0)
    assert nodes[member].imported(PARIS) == [b"1 a"]


def test_an_origin_that_starts_again_goes_on_from_its_cursors_and_claims() -> None:
    nodes = meshed()
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    nodes.publish(PARIS, b"1 a")
    left = nodes.stop(PARIS)
    left.log.append((b"1 b", None, 0))
    for mailbox in left.mailboxes.values():
        mailbox.offsets.append(1)
    nodes.start(PARIS, left, boot=1_000_000)
    nodes.link(PARIS, BONN)
    nodes.pass_time(5.0)
    assert nodes[LYON].imported(PARIS) == [b"1 a", b"1 b"]
    assert not nodes[LYON].gaps


def test_an_origin_that_starts_again_does_not_send_what_only_an_absent_member_has_not() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(*SITES)
    nodes.advertise(LYON, predicate(1))
    nodes.advertise(BONN, predicate(1))
    nodes.pass_time(1.0)
    nodes.stop(LYON)
    for number in range(30):
        nodes.publish(PARIS, *(b"1 %0250d" % each for each in range(100 * number, 100 * number + 100)))
    nodes.pass_time(1.0)
    assert len(nodes[BONN].imported(PARIS)) == 3_000
    left = nodes.stop(PARIS)
    assert left.mailboxes[cluster_key(0)].acknowledged == 0
    nodes.start(PARIS, left, boot=1_000_000)
    nodes.link(PARIS, BONN)
    nodes.pass_time(5.0)
    nodes.publish(PARIS, b"1 new")
    nodes.pass_time(1.0)
    assert nodes[BONN].imported(PARIS)[3_000:] == [b"1 new"]
    packets = [each.message for each in nodes[PARIS].of(SendMessage)]
    sent = sum(len(each.offsets) for each in packets if isinstance(each, Packet))
    assert sent < 1_000, "what Bonn has does not cross the link again"


def test_a_site_that_joins_moves_others_and_nothing_is_lost_or_doubled() -> None:
    nodes = meshed()
    for site in SITES[1:]:
        nodes.advertise(site, predicate(1))
    nodes.pass_time(1.0)
    seen = set()
    count = 0
    for number in range(6):
        key = site_key(f"site{number}", bytes(8))
        nodes.add(key)
        nodes.link(key, PARIS)
        for _ in range(20):
            nodes.publish(PARIS, b"1 %d" % count)
            count += 1
            nodes.pass_time(0.2)
            seen.add(tuple(nodes[site].node.membership.cluster_at(PARIS) for site in SITES))
    assert len(seen) > 1
    nodes.pass_time(10.0)
    for site in SITES[1:]:
        assert nodes[site].imported(PARIS) == [b"1 %d" % number for number in range(count)]
        assert not nodes[site].gaps
    claims = nodes[PARIS].node.origin.ledger.claims.values()
    assert all(claim.leaving is None and not claim.since for claim in claims)


def test_a_forgotten_site_that_comes_back_announces_what_it_may_miss() -> None:
    nodes = meshed()
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    nodes.publish(PARIS, b"1 a")
    left = nodes.stop(LYON)
    nodes.pass_time(1.0)
    nodes.do(PARIS, nodes[PARIS].node.forget(LYON))
    assert nodes[PARIS].node.is_forgotten(LYON)
    nodes.publish(PARIS, b"1 b")
    nodes.pass_time(1.0)
    nodes.start(LYON, left, boot=1_000_000)
    nodes.advertise(LYON, predicate(1))
    nodes.link(LYON, PARIS)
    nodes.pass_time(5.0)
    nodes.publish(PARIS, b"1 c")
    assert nodes[LYON].imported(PARIS) == [b"1 a", b"1 c"]
    (gap,) = nodes[LYON].gaps
    assert (gap.origin, gap.start, gap.end, gap.reason) == (PARIS, 1, 2, REMOVED)


def test_a_member_claims_again_at_an_origin_that_may_have_forgotten_it_meanwhile() -> None:
    nodes = LinkedClusters(1)
    nodes.add(PARIS, LYON)
    link = nodes.link(PARIS, LYON)
    nodes.pass_time(4.0)
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    nodes.unlink(link)
    nodes.do(PARIS, nodes[PARIS].node.forget(LYON))
    nodes.link(PARIS, LYON)
    nodes.pass_time(3.0)
    nodes.publish(PARIS, b"1 a")
    assert nodes[LYON].imported(PARIS) == [b"1 a"]


def test_both_sides_announce_a_gap_where_a_site_has_lost_its_data_directory() -> None:
    nodes = meshed()
    for site in SITES:
        nodes.advertise(site, predicate(1))
    nodes.pass_time(1.0)
    nodes.stop(LYON)
    nodes.publish(PARIS, b"1 a")
    successor = site_key("lyon", bytes([1] * 8))
    nodes.add(successor, boot=1_000_000)
    nodes.link(successor, BONN)
    nodes.advertise(successor, predicate(1))
    nodes.pass_time(6.0)
    assert [gap.origin for gap in nodes[PARIS].gaps] == [LYON]
    assert (PARIS, 0, 1) in [(gap.origin, gap.start, gap.end) for gap in nodes[successor].gaps]
    assert LYON not in nodes[PARIS].node.origin.ledger.claims
    nodes.publish(PARIS, b"1 b")
    assert nodes[successor].imported(PARIS) == [b"1 b"]


def test_a_gap_is_announced_where_a_promise_was_not_on_disk_and_its_origin_has_lost_its_data_directory() -> (
    None
):
    nodes = meshed()
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    left = nodes.stop(LYON)
    assert left.node.in_effect_from(PARIS, left.node.book.version) == 0
    nodes.publish(PARIS, b"1 a")
    nodes.stop(PARIS)
    successor = site_key("paris", bytes([1] * 8))
    nodes.add(successor, boot=1_000_000)
    nodes.link(successor, BONN)
    nodes.pass_time(1.0)
    nodes.start(LYON, left, boot=2_000_000, promised_ends={})
    nodes.link(LYON, BONN)
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(6.0)
    assert [(gap.origin, gap.start, gap.reason) for gap in nodes[LYON].gaps] == [(PARIS, 0, FORGOTTEN)]


def test_a_gap_in_the_mailbox_reaches_the_members_that_have_less() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(PARIS, LYON)
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    (mailbox,) = nodes[PARIS].mailboxes.values()
    nodes[PARIS].log += [(b"1 a", None, 0), (b"1 b", None, 0)]
    nodes[PARIS].node.position = 2
    mailbox.gaps.append(MailboxGap(0, 2, "full"))
    nodes.settle()
    nodes.publish(PARIS, b"1 c")
    nodes.pass_time(1.0)
    (gap,) = nodes[LYON].gaps
    assert (gap.origin, gap.start, gap.end, gap.reason) == (PARIS, 0, 2, "full")
    assert nodes[LYON].imported(PARIS) == [b"1 c"]
    assert mailbox.acknowledged == 3


def test_lost_packets_come_again() -> None:
    nodes = meshed()
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    lost = iter([True, False, True, True])
    nodes.loses = lambda frame: isinstance(frame, Packet) and next(lost, False)
    nodes.publish(PARIS, b"1 a")
    nodes.publish(PARIS, b"1 b", b"1 c")
    nodes.pass_time(10.0)
    assert nodes[LYON].imported(PARIS) == [b"1 a", b"1 b", b"1 c"]


def test_a_site_goes_beyond_versions_of_an_earlier_run_whose_clock_was_ahead() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(PARIS, LYON)
    nodes.say(LYON, PARIS, Claim(500, 0, active=True, number=700))
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(3.0)
    assert nodes[LYON].node.book.version > 500
    nodes.publish(PARIS, b"1 a")
    nodes.pass_time(2.0)
    assert nodes[LYON].imported(PARIS) == [b"1 a"]


def test_mailboxes_of_another_way_of_routing_are_removed() -> None:
    nodes = LinkedClusters(1)
    nodes.add(PARIS)
    nodes[PARIS].node.restore(LYON, predicate(1), 0, 0)
    nodes.pass_time(0.1)
    assert "Unregister" in {type(each).__name__ for each in nodes[PARIS].done}


# --- wrong messages -----------------------------------------------------------------------------------

NOBODY = site_key("nobody", bytes(8))


@pytest.mark.parametrize(
    ("source", "body", "reason"),
    [
        (NOBODY, Claim(1, 0, active=True), "a message of a forged or unknown source"),
        (PARIS, Claim(1, 0, active=True), "a message of a forged or unknown source"),
        (LYON, Claim(9, MOST_CLUSTER, active=True), "a claim to a cluster that no overlay has"),
        (LYON, CarrierTerms(9, MOST_CLUSTER, 0, 0, ()), "terms that no cluster can have"),
        (LYON, CarrierTerms(9, 0, 0, 0, (TermsMember("x", 1, 0, 0, 0),)), "terms that no cluster can have"),
        (
            LYON,
            CarrierTerms(9, 0, 0, 0, (TermsMember(OSLO, 1, 0, 0, 0),) * 1025),
            "terms that no cluster can have",
        ),
        (
            LYON,
            CarrierTerms(9, 0, 0, 0, (TermsMember(LYON, 1, 0, 0, 0),)),
            "terms that contradict themselves",
        ),
        (LYON, CarrierTerms(9, 0, 3, 4, ()), "terms that contradict themselves"),
    ],
)
def test_wrong_notes_are_refused(source: str, body: Claim | CarrierTerms, reason: str) -> None:
    nodes = meshed()
    claims, carriages = dict(nodes[PARIS].node.origin.ledger.claims), dict(nodes[PARIS].node.table.carriages)
    nodes.say(source, PARIS, body)
    assert nodes[PARIS].reasons == [reason]
    assert nodes[PARIS].node.origin.ledger.claims == claims
    assert nodes[PARIS].node.table.carriages == carriages


def test_reports_that_cannot_be_true_are_refused_and_move_no_cursor() -> None:
    nodes = meshed()
    nodes.advertise(stranger(nodes, PARIS), predicate(1))
    nodes.pass_time(1.0)
    nodes.publish(PARIS, b"2 a")
    ((cluster, stream),) = nodes[PARIS].node.origin.streams.streams.items()
    carrier = stream.carrier
    assert carrier is not None
    other = next(site for site in SITES if site not in {PARIS, *stream.carriers})
    number = stream.number
    wrong = [
        (other, CarriageReport(number, cluster, 1, 1, None, ()), "a report of a site that carries nothing"),
        (
            carrier,
            CarriageReport(number + 99, cluster, 1, 1, None, ()),
            "a report under terms that do not exist",
        ),
        (carrier, CarriageReport(number, cluster, 7, 7, None, ()), "a report of what does not exist"),
        (carrier, CarriageReport(number, cluster, 1, 0, None, ()), "a report of what does not exist"),
        (carrier, CarriageReport(number, cluster, 1, 1, 9, ()), "a report of what does not exist"),
    ]
    cursor = nodes[PARIS].mailboxes[cluster_key(cluster)].acknowledged
    for source, report, _ in wrong:
        nodes.say(source, PARIS, report)
    assert nodes[PARIS].reasons == [reason for _, _, reason in wrong]
    assert nodes[PARIS].mailboxes[cluster_key(cluster)].acknowledged == cursor


def test_a_claim_beyond_the_limit_of_sites_is_refused() -> None:
    nodes = LinkedClusters(1)
    nodes.settings = ClusterSettings(1, most_sites=2)
    nodes.mesh(PARIS, LYON)
    for site in (OSLO, BONN):
        nodes[PARIS].node.states.take(LinkState(site, 1, (), 0), nodes.now)
        nodes.say(site, PARIS, Claim(1, 0, active=True))
        nodes.settle()
    assert nodes[PARIS].reasons == ["more claims than overlay.most_sites"]


def test_a_packet_for_which_a_site_is_no_destination_is_refused() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(PARIS, LYON)
    link = next(iter(nodes[LYON].links))
    numbers = nodes[PARIS].node._neighbours[link].numbers
    news = numbers.number([LYON])
    if news is not None:
        nodes.do(LYON, nodes[LYON].node.received(link, news, nodes.now))
    bits = numbers.bits([LYON])
    for part, carrier, reason in (
        (StreamPart(0, 1, 1, 1, 1), PARIS, "a packet that is not for this site"),
        (StreamPart(5, 1, 1), PARIS, "a packet whose parts do not fit together"),
        (StreamPart(5, 9, 1), PARIS, "a packet whose parts do not fit together"),
    ):
        packet = Packet(PARIS, 1, 1, bits, (part,), (0,), (b"1",), carrier=carrier)
        nodes[LYON].done.clear()
        nodes.do(LYON, nodes[LYON].node.received(link, packet, nodes.now))
        assert nodes[LYON].reasons == [reason]


def test_messages_in_a_loop_and_of_other_ways_of_routing_are_refused() -> None:
    nodes = meshed()
    link = next(iter(nodes[PARIS].links))
    note = ClusterNote(LYON, OSLO, MOST_HOPS, MemberAdvertisement(LYON, 1, ""))
    nodes.do(PARIS, nodes[PARIS].node.received(link, note, nodes.now))
    nodes.do(PARIS, nodes[PARIS].node.received(link, AdvertisementRequest(LYON), nodes.now))
    assert nodes[PARIS].reasons == ["a message in a loop", "a message of another way of routing"]


def test_an_advertisement_that_cannot_be_read_is_refused() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(PARIS, LYON)
    nodes.say(LYON, PARIS, MemberAdvertisement(LYON, 99, "nonsense"))
    assert nodes[PARIS].reasons[0].startswith("an advertisement that cannot be taken")
    assert nodes[PARIS].node.shelf.versions[LYON] < 99


def test_what_a_forgotten_site_had_said_is_ignored() -> None:
    nodes = LinkedClusters(1)
    nodes.mesh(PARIS, LYON, BONN)
    nodes.stop(LYON)
    nodes.pass_time(0.1)
    nodes.do(PARIS, nodes[PARIS].node.forget(LYON))
    nodes.say(LYON, PARIS, Claim(99, 0, active=True))
    nodes.settle()
    assert LYON not in nodes[PARIS].node.origin.ledger.claims
    assert not nodes[PARIS].reasons
