from itertools import pairwise

from hypothesis import given, settings, strategies as st

from culver.overlay import site_key
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.overlay_messages import LinkState

A, B, C, D, E = (site_key(name, bytes(8)) for name in "abcde")
Graph = dict[tuple[str, str], int]


def states_at(own: str, links: Graph, sites: str = "abcde") -> LinkStates:
    """The view of a site on links that go both ways."""
    states = LinkStates(own)
    for name in sites:
        site = site_key(name, bytes(8))
        states.take(LinkState(site, 1, links_of(site, links), 0), now=0.0)
    return states


def links_of(site: str, links: Graph) -> tuple[tuple[str, int], ...]:
    ends = {
        (other if site == one else one): cost for (one, other), cost in links.items() if site in (one, other)
    }
    return tuple(sorted(ends.items()))


SQUARE = {(A, B): 1, (B, D): 1, (A, C): 1, (C, D): 1, (D, E): 2}


def test_the_shortest_way_wins_over_the_one_with_fewer_links() -> None:
    states = states_at(A, {(A, B): 9, (A, C): 1, (C, D): 1, (D, B): 1})
    assert states.path(B) == [C, D, B]
    assert states.next_hop(B) == C
    assert states.distance(B) == 3
    assert not states.reaches(E)
    assert sorted(states.reachable()) == [B, C, D]


def test_of_equal_ways_all_sites_take_the_one_with_the_smaller_keys() -> None:
    assert states_at(A, SQUARE).path(E) == [B, D, E]
    assert states_at(B, SQUARE).next_hop_of(A, E) == D
    assert states_at(C, SQUARE).children(A) == []
    assert states_at(D, SQUARE).children(A) == [E]


def test_a_link_counts_if_both_ends_tell_of_it() -> None:
    states = LinkStates(A)
    states.take(LinkState(A, 1, ((B, 1),), 0), now=0.0)
    assert not states.reaches(B)
    states.take(LinkState(B, 1, (), 0), now=0.0)
    assert not states.reaches(B)
    states.take(LinkState(B, 2, ((A, 1),), 0), now=0.0)
    assert states.reaches(B)


def test_an_older_state_and_the_same_one_again_change_nothing() -> None:
    states = states_at(A, SQUARE)
    changes = states.changes
    assert not states.take(LinkState(B, 1, (), 0), now=1.0)
    assert not states.take(LinkState(B, 0, (), 0), now=1.0)
    assert states.changes == changes
    assert states.reaches(B)


def test_a_refreshed_state_is_news_without_a_change_of_the_graph() -> None:
    states = states_at(A, SQUARE)
    changes = states.changes
    assert states.take(LinkState(B, 2, links_of(B, SQUARE), 77), now=1.0)
    assert states.changes == changes


def test_a_cost_below_one_counts_as_one() -> None:
    assert states_at(A, {(A, B): 0, (B, C): 0}).distance(C) == 2


def test_a_site_that_is_off_the_way_sends_a_packet_its_own_way() -> None:
    assert states_at(C, SQUARE).next_hop_of(A, E) == D


def test_the_parent_is_the_neighbour_before_a_site_in_the_tree() -> None:
    assert states_at(D, SQUARE).parent(A) == B
    assert states_at(A, SQUARE).parent(A) is None


def test_silent_sites_that_cannot_be_reached_are_forgotten() -> None:
    states = states_at(A, {(A, B): 1, (C, D): 1})
    states.take(LinkState(D, 2, (), 0), now=50.0)
    assert [each.site for each in states.taken_since(10.0)] == [A, D]
    states.forget(10.0)
    assert set(states.states) == {A, B, D}


graphs = st.dictionaries(
    st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] < pair[1]),
    st.integers(1, 4),
    max_size=14,
)
NAMES = "abcdefg"
SITES = [site_key(name, bytes(8)) for name in NAMES]


def named(graph: dict[tuple[int, int], int]) -> Graph:
    return {(SITES[one], SITES[other]): cost for (one, other), cost in graph.items()}


@given(graphs)
@settings(max_examples=60, deadline=None)
def test_distances_are_those_of_bellman_and_ford(graph: dict[tuple[int, int], int]) -> None:
    links = named(graph)
    distances = {SITES[0]: 0}
    for _ in SITES:
        for (one, other), cost in links.items():
            for here, there in ((one, other), (other, one)):
                if here in distances:
                    distances[there] = min(distances[here] + cost, distances.get(there, 99))
    states = states_at(SITES[0], links, NAMES)
    for site in SITES[1:]:
        assert states.distance(site) == distances.get(site)
        assert states.reaches(site) == (site in distances)
        costs = [
            links.get((one, other)) or links[other, one]
            for one, other in pairwise([SITES[0], *states.path(site)])
        ]
        assert sum(costs) == distances.get(site, 0)


@given(graphs)
@settings(max_examples=60, deadline=None)
def test_a_divided_packet_crosses_each_link_of_its_tree_once(graph: dict[tuple[int, int], int]) -> None:
    links = named(graph)
    views = {site: states_at(site, links, NAMES) for site in SITES}
    origin = SITES[0]
    crossed: list[tuple[str, str]] = []
    arrived: set[str] = set()

    def forward(here: str, sites: set[str]) -> None:
        parts: dict[str, set[str]] = {}
        for site in sites:
            hop = views[here].next_hop_of(origin, site)
            assert hop is not None
            parts.setdefault(hop, set()).add(site)
        for hop, behind in parts.items():
            crossed.append((here, hop))
            assert hop in views[here].children(origin)
            assert views[hop].parent(origin) == here
            arrived.update(behind & {hop})
            forward(hop, behind - {hop})

    reached = set(views[origin].reachable())
    forward(origin, reached)
    assert arrived == reached
    assert len(crossed) == len(set(crossed)) == len(reached)
