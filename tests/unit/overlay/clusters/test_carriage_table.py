"""The carriages of a site among linked nodes."""

from culver.overlay.clusters.cluster_messages import (
    AdvertisementWanted,
    CarrierRefusal,
    CarrierTerms,
    TermsMember,
)
from support.linked_clusters import LinkedClusters
from support.linked_nodes import BONN, LYON, OSLO, PARIS, predicate


def linked(clusters: int) -> LinkedClusters:
    nodes = LinkedClusters(clusters)
    nodes.mesh(PARIS, LYON, BONN)
    return nodes


def test_a_site_does_not_carry_a_cluster_that_it_is_not_in() -> None:
    nodes = linked(3)
    cluster = nodes[LYON].node.membership.cluster_at(PARIS)
    assert cluster is not None
    nodes.say(PARIS, LYON, CarrierTerms(9, cluster + 5, 0, 0, (TermsMember(BONN, 1, 0, 0, 0),)))
    assert nodes[LYON].said(CarrierRefusal) == [CarrierRefusal(9, cluster + 5)]
    assert not nodes[LYON].node.table.carriages


def test_a_site_carries_a_cluster_in_which_the_terms_have_it() -> None:
    nodes = linked(3)
    cluster = nodes[LYON].node.membership.cluster_at(PARIS)
    assert cluster is not None
    nodes.say(PARIS, LYON, CarrierTerms(9, cluster + 5, 0, 0, (TermsMember(LYON, 1, 0, 0, 0),)))
    assert set(nodes[LYON].node.table.carriages) == {(PARIS, cluster + 5)}


def test_a_carrier_asks_a_member_for_its_predicate_and_serves_it_then() -> None:
    nodes = linked(3)
    cluster = nodes[LYON].node.membership.cluster_at(PARIS)
    assert cluster is not None
    members = TermsMember(LYON, 1, 0, 0, 0), TermsMember(BONN, 1, 0, 0, 0)
    nodes.say(PARIS, LYON, CarrierTerms(9, cluster, 0, 0, members))
    assert nodes[LYON].said(AdvertisementWanted) == [AdvertisementWanted(BONN)]
    nodes.settle()
    assert BONN in nodes[LYON].node.shelf


def test_a_carrier_asks_other_members_for_the_predicate_of_one_that_is_away() -> None:
    nodes = linked(3)
    cluster = nodes[LYON].node.membership.cluster_at(PARIS)
    assert cluster is not None
    nodes[BONN].node.restore_advertisement(OSLO, 7, predicate(1))
    members = TermsMember(LYON, 1, 0, 0, 0), TermsMember(BONN, 1, 0, 0, 0), TermsMember(OSLO, 7, 0, 0, 0)
    nodes.say(PARIS, LYON, CarrierTerms(9, cluster, 0, 0, members))
    assert AdvertisementWanted(OSLO) in nodes[LYON].said(AdvertisementWanted)
    nodes.settle()
    assert nodes[LYON].node.shelf.versions[OSLO] == 7


def test_carriages_of_which_nobody_tells_any_more_end() -> None:
    nodes = linked(1)
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(2.0)
    carrier = nodes[PARIS].node.origin.streams.streams[0].carrier
    assert carrier is not None
    nodes.pass_time(80.0)
    assert (PARIS, 0) in nodes[carrier].node.table.carriages
    nodes.stop(PARIS)
    nodes.pass_time(75.0)
    remaining = nodes.sites.get(carrier)
    assert remaining is None or (PARIS, 0) not in remaining.node.table.carriages
