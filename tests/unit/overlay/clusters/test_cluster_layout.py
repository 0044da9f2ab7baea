from collections import Counter
from random import Random

import pytest
from hypothesis import assume, given, settings, strategies as st

from culver.overlay.clusters.layout.cluster_layout import ClusterLayout, moved_brokers

MEMBERSHIPS = st.sets(st.text("abcdef~0123456789", min_size=1, max_size=8), min_size=1, max_size=40)


def drawn(number: int, seed: int) -> list[str]:
    random = Random(seed)
    return [f"site-{place}~{random.getrandbits(64):016x}" for place in range(number)]


@given(MEMBERSHIPS, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_every_broker_is_in_one_cluster_and_sizes_differ_by_at_most_one(
    brokers: set[str], clusters: int
) -> None:
    layout = ClusterLayout(brokers, clusters)
    rows = [layout.members(cluster) for cluster in range(layout.clusters)]
    assert sorted(broker for row in rows for broker in row) == sorted(brokers)
    assert layout.clusters == min(clusters, len(brokers))
    sizes = [len(row) for row in rows]
    assert max(sizes) - min(sizes) <= 1
    for cluster, row in enumerate(rows):
        assert {layout.cluster_of(broker) for broker in row} == {cluster}
        assert [layout.ring(broker) for broker in row] == list(range(len(row)))


@given(MEMBERSHIPS, st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_all_work_out_the_same_layout_whatever_the_order(
    brokers: set[str], clusters: int, random: Random
) -> None:
    shuffled = list(brokers)
    random.shuffle(shuffled)
    one, other = ClusterLayout(brokers, clusters), ClusterLayout(shuffled, clusters)
    assert moved_brokers(one, other) == set()
    assert all(one.ring_of(broker) == other.ring_of(broker) for broker in brokers)


@given(MEMBERSHIPS, st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_contacts_are_the_whole_cluster_and_begin_with_the_ring(brokers: set[str], clusters: int) -> None:
    layout = ClusterLayout(brokers, clusters)
    for broker in brokers:
        for cluster in range(layout.clusters):
            contacts = layout.contacts(broker, cluster)
            assert contacts[0] == layout.contact(broker, cluster)
            assert sorted(contacts) == sorted(layout.members(cluster))
        assert layout.contact(broker, layout.cluster_of(broker)) == broker


def test_rings_spread_contacts_evenly() -> None:
    layout = ClusterLayout(drawn(100, 1), 10)
    asked = Counter(contact for broker in layout.brokers for contact in layout.ring_of(broker))
    assert set(asked.values()) == {9}
    uneven = ClusterLayout(drawn(104, 1), 10)
    asked = Counter(contact for broker in uneven.brokers for contact in uneven.ring_of(broker))
    assert max(asked.values()) <= 9 + 4


def test_a_dead_contact_is_replaced_by_many() -> None:
    layout = ClusterLayout(drawn(100, 1), 10)
    assert len({layout.contacts(broker, 0)[1] for broker in layout.brokers}) == 10


@pytest.mark.parametrize(
    ("brokers", "clusters", "mean", "worst"),
    [(9, 3, 1.2, 2), (30, 5, 1.6, 5), (100, 10, 2.5, 8), (100, 8, 3, 10)],
)
def test_a_join_and_a_leave_move_few_others(brokers: int, clusters: int, mean: float, worst: int) -> None:
    moves = []
    for seed in range(25):
        known = drawn(brokers + 1, seed)
        fewer, more = ClusterLayout(known[:-1], clusters), ClusterLayout(known, clusters)
        moves.append(len(moved_brokers(fewer, more)))
    assert sum(moves) / len(moves) <= mean
    assert max(moves) <= worst


def test_one_cluster_more_moves_little_more_than_it_must() -> None:
    for seed in range(8):
        known = drawn(100, seed)
        moved = len(moved_brokers(ClusterLayout(known, 10), ClusterLayout(known, 11)))
        assert 9 <= moved <= 20


@given(MEMBERSHIPS, st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=40, deadline=None)
def test_twice_as_many_clusters_divide_those_of_before(brokers: set[str], clusters: int) -> None:
    assume(len(brokers) >= 2 * clusters)
    few, many = ClusterLayout(brokers, clusters), ClusterLayout(brokers, 2 * clusters)
    for broker in brokers:
        assert many.cluster_of(broker) % clusters == few.cluster_of(broker)
        assert set(many.mates(broker)) <= set(few.mates(broker))


def test_a_layout_has_a_cluster_and_may_have_no_brokers() -> None:
    with pytest.raises(ValueError, match="at least one cluster"):
        ClusterLayout(["a"], 0)
    assert ClusterLayout([], 3).members(0) == ()
    with pytest.raises(KeyError):
        ClusterLayout(["a"], 1).cluster_of("b")
