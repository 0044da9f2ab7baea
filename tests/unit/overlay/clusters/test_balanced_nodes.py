"""Nodes that have too much to do: others carry their streams, and everything arrives all the same."""

from culver.overlay.clusters.cluster_instructions import SendNote
from culver.overlay.clusters.cluster_messages import CarrierRefusal, CarrierTerms, TermsMember
from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.clusters.load.load_messages import OffloadAccept, OffloadRequest
from support.linked_clusters import LinkedClusters
from support.linked_nodes import BONN, LYON, OSLO, PARIS, predicate

SITES = PARIS, LYON, BONN, OSLO
SETTINGS = LoadSettings(window_seconds=1.0, revision_seconds=2.0, lease_seconds=3.0, first_capacity=20.0)


def cluster_of_four() -> LinkedClusters:
    """One cluster, in which lyon and bonn want something. Paris carries its own events."""
    nodes = LinkedClusters(1, SETTINGS)
    nodes.mesh(*SITES)
    nodes.advertise(LYON, predicate(1))
    nodes.advertise(BONN, predicate(1))
    nodes.pass_time(3.0)
    assert carrier(nodes) == PARIS
    return nodes


def carrier(nodes: LinkedClusters) -> str | None:
    return nodes[PARIS].node.origin.streams.streams[0].carrier


def publish(nodes: LinkedClusters, seconds: int, capacities: dict[str, float]) -> list[bytes]:
    """Publish twenty events at paris in every second, at sites that can bear so many messages."""
    published = []
    for _ in range(seconds):
        events = [
            b"1 %d" % number for number in range(nodes[PARIS].node.position, nodes[PARIS].node.position + 20)
        ]
        nodes.publish(PARIS, *events)
        published += events
        nodes.pass_time(1.0)
        for site, capacity in capacities.items():
            node = nodes[site].node
            node.worked(node.balance.handled / capacity)
    return published


def test_a_stream_moves_to_a_site_that_has_accepted_it_and_nothing_is_lost_or_doubled() -> None:
    nodes = cluster_of_four()
    published = publish(nodes, 15, {PARIS: 20.0, LYON: 30.0, BONN: 1000.0, OSLO: 30.0})
    assert carrier(nodes) == BONN
    assert nodes[PARIS].said(OffloadRequest)
    assert nodes[BONN].said(OffloadAccept)
    nodes.pass_time(5.0)
    for site in (LYON, BONN):
        assert nodes[site].imported(PARIS) == published


def test_nothing_moves_while_nobody_has_too_much_to_do() -> None:
    nodes = cluster_of_four()
    publish(nodes, 15, dict.fromkeys(SITES, 1000.0))
    assert carrier(nodes) == PARIS
    assert not any(nodes[site].said(OffloadRequest) for site in SITES)


def test_nothing_moves_where_no_site_says_how_busy_it_is() -> None:
    nodes = cluster_of_four()
    publish(nodes, 15, {})
    assert carrier(nodes) == PARIS
    assert all(each.note.load is None for site in SITES for each in nodes[site].of(SendNote))


def test_where_all_have_too_much_to_do_everything_arrives_all_the_same() -> None:
    nodes = cluster_of_four()
    published = publish(nodes, 15, dict.fromkeys(SITES, 2.0))
    nodes.pass_time(5.0)
    for site in (LYON, BONN):
        assert nodes[site].imported(PARIS) == published


def test_notes_carry_figures_to_whoever_sees_them() -> None:
    nodes = cluster_of_four()
    publish(nodes, 8, {PARIS: 20.0, LYON: 1000.0, BONN: 1000.0, OSLO: 1000.0})
    assert nodes[BONN].node.balance.preferred([PARIS, OSLO]) == [OSLO, PARIS]


def test_an_overloaded_site_refuses_a_stream_that_it_does_not_carry_unless_the_origin_insists() -> None:
    nodes = cluster_of_four()
    publish(nodes, 8, {PARIS: 20.0})
    assert not nodes[PARIS].node.balance.accepts_streams
    nodes[PARIS].done.clear()
    members = (TermsMember(BONN, 1, 0, 0, 0),)
    nodes.say(LYON, PARIS, CarrierTerms(5, 0, 0, 0, members))
    assert nodes[PARIS].said(CarrierRefusal) == [CarrierRefusal(5, 0, is_overloaded=True)]
    assert (LYON, 0) not in nodes[PARIS].node.table.carriages
    nodes.say(LYON, PARIS, CarrierTerms(5, 0, 0, 0, members, insists=True))
    assert (LYON, 0) in nodes[PARIS].node.table.carriages
