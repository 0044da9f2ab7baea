"""Each origin has a number of clusters of its own: how it is found, told and changed."""

import pytest

from culver.overlay.clusters.cluster_messages import CarrierRefusal, CarrierTerms, TermsMember
from culver.overlay.clusters.layout.cluster_count import MeasuredTraffic, expected_traffic, revise
from culver.overlay.clusters.origin_clustering import ClusterSettings, MeasuringSettings, OriginClustering
from culver.overlay.core.overlay_messages import LinkState
from support.linked_clusters import LinkedClusters
from support.linked_nodes import BONN, LYON, OSLO, PARIS, predicate

SITES = PARIS, LYON, BONN, OSLO
MEASURING = ClusterSettings(measuring=MeasuringSettings())


def states(*published: int, run: int = 1) -> dict[str, LinkState]:
    """The link states of paris and the others, which have published so many events in that run."""
    told = zip(SITES, published, strict=False)
    return {site: LinkState(site, 1, (), 0, run, published=count) for site, count in told}


def publish(clustering: OriginClustering, count: int, first: int = 0) -> None:
    clustering.offered(range(first, first + count))


# --- one origin -----------------------------------------------------------------------------------------


def test_a_number_in_the_settings_stays() -> None:
    clustering = OriginClustering(PARIS, ClusterSettings(3), 0)
    publish(clustering, 1000)
    assert not clustering.look(states(0, 0), 100, 0, 0.0, 0.0)
    assert not clustering.look(states(0, 0), 100, 50, 50.0, 9999.0)
    clustering.restore(7)
    assert clustering.told == (3, 1000)


def test_an_event_counts_once_however_often_it_is_offered() -> None:
    clustering = OriginClustering(PARIS, MEASURING, position=10)
    publish(clustering, 20)  # those below 10 are of an earlier run
    publish(clustering, 5, first=12)
    publish(clustering, 5, first=18)
    assert clustering.published == 13


def test_the_number_is_revised_slowly_and_from_what_was_measured_since() -> None:
    clustering = OriginClustering(PARIS, MEASURING, 0)
    publish(clustering, 7000)
    assert not clustering.look(states(0, 4000), 64, 900, 8.0, 0.0)
    publish(clustering, 1000, first=7000)
    assert not clustering.look(states(0, 7000), 64, 1140, 6.3, 599.0)
    assert clustering.measured is None
    assert clustering.look(states(0, 7000), 64, 1140, 15.75, 600.0)
    # A quarter of all publications is its own, and so is a quarter of the changes.
    expected = MeasuredTraffic(publications=1000, subscriptions=60, matching_ratio=0.25, brokers=64)
    assert clustering.measured == expected
    assert clustering.count == revise(8, expected) == 2
    assert not clustering.look(states(0, 9000), 64, 9999, 6.3, 1199.0)
    # Half of what was counted before still counts.
    clustering.look(states(0, 7000), 64, 1140, 31.5, 1200.0)
    assert clustering.measured == MeasuredTraffic(500, 30, 0.5, 64)


def test_a_site_that_has_started_again_counts_from_its_start() -> None:
    clustering = OriginClustering(PARIS, MEASURING, 0)
    clustering.look(states(0, 5000), 9, 0, 0.0, 0.0)
    publish(clustering, 100)
    clustering.look(states(0, 300, run=2), 9, 40, 2.0, 600.0)
    assert clustering.measured == MeasuredTraffic(100, 10, 0.25, 9)


def test_an_origin_that_publishes_little_has_about_as_many_clusters_as_the_root_of_the_sites() -> None:
    clustering = OriginClustering(PARIS, MEASURING, 0)
    clustering.look(states(0, 0), 100, 0, 0.0, 0.0)
    publish(clustering, 99)
    assert clustering.count == 0
    assert clustering.look(states(0, 0), 100, 5000, 100.0, 600.0)
    assert clustering.count == 8
    assert clustering.measured is None


def test_a_quiet_night_changes_nothing() -> None:
    clustering = OriginClustering(PARIS, MEASURING, 0)
    clustering.look(states(0, 0), 100, 0, 0.0, 0.0)
    publish(clustering, 1000)
    assert clustering.look(states(0, 0), 100, 0, 5.0, 600.0)
    assert clustering.count == 1
    for revision in range(2, 50):
        assert not clustering.look(states(0, 0), 100, 0, 0.0, 600.0 * revision)
    assert clustering.count == 1


def test_origins_that_share_the_subscriptions_by_their_publications_find_the_best_common_number() -> None:
    """A hundred origins alike: what each of them finds is what the equation gives for all of them together."""
    everything = MeasuredTraffic(publications=20_000, subscriptions=2000, matching_ratio=0.2, brokers=100)
    clustering = OriginClustering(PARIS, MEASURING, 0)
    others = {f"site{place}": LinkState(f"site{place}", 1, (), 0, 1) for place in range(99)}
    clustering.look({**others, **states(0)}, 100, 0, 0.0, 0.0)
    publish(clustering, 200)
    others = {site: LinkState(site, 2, (), 0, 1, published=200) for site in others}
    clustering.look({**others, **states(0)}, 100, 2000, 0.2 * 99, 600.0)
    powers = (1, 2, 4, 8, 16, 32, 64)
    assert clustering.count == min(powers, key=lambda count: expected_traffic(count, everything)) == 4


# --- several ---------------------------------------------------------------------------------------------


def linked(**own: ClusterSettings) -> LinkedClusters:
    """Four sites of which some have settings of their own, by their names."""
    nodes = LinkedClusters(2)
    nodes.own_settings = {next(each for each in SITES if each.startswith(name)): own[name] for name in own}
    nodes.mesh(*SITES)
    return nodes


def changing(*numbers: int) -> ClusterSettings:
    """Those of a site that has the next number every second, and then the last one."""
    left = iter(numbers)
    return ClusterSettings(measuring=MeasuringSettings(1.0, 0, lambda current, measured: next(left, current)))


def clusters_at(nodes: LinkedClusters, origin: str) -> list[int | None]:
    return [nodes[site].node.membership.cluster_at(origin) for site in SITES]


def test_every_origin_has_its_own_clusters_and_everything_arrives() -> None:
    nodes = linked(paris=ClusterSettings(1), lyon=ClusterSettings(4))
    for site in SITES:
        nodes.advertise(site, predicate(1))
    nodes.pass_time(2.0)
    assert clusters_at(nodes, PARIS) == [0, 0, 0, 0]
    assert sorted(each for each in clusters_at(nodes, LYON) if each is not None) == [0, 1, 2, 3]
    assert len(set(clusters_at(nodes, BONN))) == 2
    for origin, streams in ((PARIS, 1), (LYON, 3), (BONN, 2)):
        nodes.publish(origin, b"1 a", b"2 b", b"1 c")
        nodes.pass_time(1.0)
        assert len(nodes[origin].node.origin.streams.streams) == streams
        for site in SITES:
            assert nodes[site].imported(origin) == ([] if site == origin else [b"1 a", b"1 c"])


def test_the_mates_are_those_of_all_layouts_that_some_origin_has() -> None:
    nodes = linked(lyon=ClusterSettings(4))
    for site in SITES:
        membership = nodes[site].node.membership
        layout = membership.layout_of(BONN)
        assert layout is not None
        assert set(membership.mates) == set(layout.mates(site))
    nodes = linked(lyon=ClusterSettings(1))
    for site in SITES:
        assert set(nodes[site].node.membership.mates) == set(SITES) - {site}


def test_a_site_carries_a_cluster_of_an_origin_by_the_numbers_of_that_origin() -> None:
    nodes = linked(paris=ClusterSettings(4), lyon=ClusterSettings(1))
    carrier, cluster = next(
        (site, cluster)
        for site, cluster in zip(SITES, clusters_at(nodes, PARIS), strict=True)
        if cluster and site != PARIS
    )
    members = (TermsMember(next(each for each in (BONN, OSLO) if each != carrier), 1, 0, 0, 0),)
    nodes.say(PARIS, carrier, CarrierTerms(1 << 50, cluster, 0, 0, members))
    assert (PARIS, cluster) in nodes[carrier].node.table.carriages
    nodes.say(PARIS, carrier, CarrierTerms(1 << 50, 0, 0, 0, members))
    assert nodes[carrier].said(CarrierRefusal) == [CarrierRefusal(1 << 50, 0)]


@pytest.mark.parametrize("numbers", [(1, 4, 1, 2), (4, 3, 2, 1), (3, 1, 3, 1, 3, 4)])
def test_a_change_of_the_number_moves_members_and_nothing_is_lost_or_doubled(
    numbers: tuple[int, ...],
) -> None:
    nodes = linked(paris=changing(*numbers))
    for site in SITES[1:]:
        nodes.advertise(site, predicate(1))
    expected = []
    for number in range(80):
        expected.append(b"1 %d" % number)
        nodes.publish(PARIS, expected[-1])
        nodes.pass_time(0.1)
    assert nodes[PARIS].node.clustering.count == numbers[-1]
    nodes.pass_time(8.0)
    expected.append(b"1 last")
    nodes.publish(PARIS, expected[-1])
    nodes.pass_time(1.0)
    for site in SITES[1:]:
        assert nodes[site].imported(PARIS) == expected[-len(nodes[site].imported(PARIS)) :]
        assert len(nodes[site].imported(PARIS)) > 60
        assert not nodes[site].gaps
    claims = nodes[PARIS].node.origin.ledger.claims
    assert [claims[site].cluster for site in SITES[1:]] == clusters_at(nodes, PARIS)[1:]
    assert all(claim.leaving is None for claim in claims.values())


def test_moves_are_no_subscriptions() -> None:
    nodes = linked(paris=changing(1, 4, 2))
    nodes.advertise(LYON, predicate(1))
    nodes.pass_time(1.0)
    before = nodes[PARIS].node.origin.ledger.changes
    for number in range(60):
        nodes.publish(PARIS, b"1 %d" % number)
        nodes.pass_time(0.1)
    assert nodes[PARIS].node.clustering.count == 2
    assert nodes[PARIS].node.origin.ledger.changes == before
    nodes.advertise(LYON, predicate(2))
    nodes.pass_time(1.0)
    assert nodes[PARIS].node.origin.ledger.changes == before + 1


def test_a_site_that_starts_again_goes_on_with_its_number() -> None:
    nodes = linked(paris=changing(4))
    nodes.advertise(LYON, predicate(1))
    for number in range(40):
        nodes.publish(PARIS, b"1 %d" % number)
        nodes.pass_time(0.1)
    assert nodes[PARIS].node.clustering.count == 4
    nodes.start(PARIS, nodes.stop(PARIS), boot=1_000_000)
    nodes.link(PARIS, LYON)
    nodes.settle()
    assert nodes[LYON].node.states.states[PARIS].clusters == 4


def test_a_restored_number_outlasts_quiet_hours() -> None:
    clustering = OriginClustering(PARIS, MEASURING, 0)
    clustering.restore(1)
    for revision in range(4):
        assert not clustering.look(states(0), 100, 0, 0.0, 600.0 * revision)
    assert clustering.count == 1


def test_an_origin_knows_how_many_members_an_event_is_for() -> None:
    nodes = linked(paris=ClusterSettings(2))
    for site in SITES[1:]:
        nodes.advertise(site, predicate(1))
    nodes.pass_time(2.0)
    nodes.advertise(OSLO, predicate(2))
    nodes.pass_time(2.0)
    nodes.publish(PARIS, *[b"1 a"] * 30, *[b"2 a"] * 10)
    nodes.pass_time(2.0)
    assert nodes[PARIS].node.origin.streams.taken() == pytest.approx((30 * 2 + 10) / 40, abs=0.01)
