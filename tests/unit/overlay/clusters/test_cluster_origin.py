from random import Random

from culver.overlay.clusters.cluster_instructions import (
    ClusterOutbox,
    MemberClaim,
    cluster_key,
    cluster_of_key,
)
from culver.overlay.clusters.cluster_origin import ClusterOrigin
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.clusters.origin_clustering import ClusterSettings, OriginClustering
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import Register, Unregister
from culver.overlay.core.outgoing_streams import WindowPacket
from culver.overlay.core.overlay_messages import LinkState, StreamPart
from support.linked_nodes import BONN, LYON, PARIS


def origin_at_paris() -> tuple[ClusterOrigin, ClusterOutbox]:
    """Paris with lyon as the carrier of clusters 0 and 1, and itself as that of cluster 2."""
    states, neighbours = LinkStates(PARIS), Neighbours()
    neighbours.open(1, LYON, 1)
    states.take(LinkState(PARIS, 1, ((LYON, 1),), 0), 0.0)
    states.take(LinkState(LYON, 1, ((PARIS, 1),), 0), 0.0)
    out = ClusterOutbox(states, neighbours)
    balance = StreamBalance(PARIS, Random(1), 0.0)
    made = ClusterOrigin(
        states,
        out,
        1,
        10,
        lambda cluster, members: [PARIS if cluster == 2 else LYON],
        balance,
        OriginClustering(PARIS, ClusterSettings(), 0),
    )
    return made, out


def test_the_names_of_mailboxes_and_clusters_lead_to_one_another() -> None:
    assert [cluster_of_key(cluster_key(number)) for number in (0, 7, 4095)] == [0, 7, 4095]
    assert [cluster_of_key(text) for text in (PARIS, "cluster~", "cluster~01", "cluster~99999")] == [None] * 4


def test_a_site_that_carries_two_clusters_gets_two_packets_and_this_one_none() -> None:
    made, _ = origin_at_paris()
    for cluster in range(3):
        made.restore(cluster_key(cluster), 0, None)
    made.start(0.0)
    part = StreamPart(0, 5, 1)
    packet = WindowPacket(1, {cluster_key(cluster): part for cluster in range(3)}, (4,), (b"e",))
    sent = made._for_carriers(packet)
    assert [each.streams for each, _ in sent] == [
        {LYON: StreamPart(0, 5, 1, carries=1)},
        {LYON: StreamPart(0, 5, 1, carries=2)},
    ]
    assert [own for _, own in sent] == [StreamPart(0, 5, 1, carries=3), None]


def test_mailboxes_come_and_go_with_claims() -> None:
    made, out = origin_at_paris()
    made.ledger.restore([MemberClaim(BONN, 1, 0, 0, active=True, cluster=3, begun=0)])
    made.restore(cluster_key(1), 0, None)
    made.start(0.0)
    out.take()
    made.follow_up(5)
    found = out.take()
    assert Unregister(cluster_key(1)) in found
    assert [each.site for each in found if isinstance(each, Register)] == [cluster_key(3)]
    made.registration_failed(cluster_key(3))
    made.check()
    made.follow_up(5)
    assert [each.site for each in out.take() if isinstance(each, Register)] == [cluster_key(3)]


def test_what_a_member_is_owed_begins_at_the_lowest_cursor_of_its_clusters() -> None:
    made, _ = origin_at_paris()
    made.ledger.restore([MemberClaim(BONN, 1, 0, 0, True, 1, 0, since=9, leaving=0)])
    made.restore(cluster_key(0), 4, None)
    made.restore(cluster_key(1), 9, None)
    assert made.owed_position(BONN) == 4
    assert made.owed_position(LYON) is None
