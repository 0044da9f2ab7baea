from culver.overlay.clusters.cluster_instructions import ClusterOutbox
from culver.overlay.core.link_flood import LinkFlood
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import Refuse, SendMessage
from culver.overlay.core.overlay_messages import LinkState
from support.linked_nodes import BONN, LYON, OSLO, PARIS


def flood_at_paris() -> tuple[LinkFlood, LinkStates, ClusterOutbox]:
    """Paris is linked with lyon and bonn, by links 1 and 2."""
    states, neighbours = LinkStates(PARIS), Neighbours()
    neighbours.open(1, LYON, 1)
    neighbours.open(2, BONN, 1)
    out = ClusterOutbox(states, neighbours)
    flood = LinkFlood(states, neighbours, out, 10, most_sites=3)
    flood.originate(0)
    out.take()
    return flood, states, out


def test_a_new_state_goes_to_all_neighbours_but_the_one_it_came_from() -> None:
    flood, states, out = flood_at_paris()
    state = LinkState(LYON, 5, ((PARIS, 1),), 0)
    assert flood.take(1, state, 0.0)
    assert out.take() == [SendMessage(2, state)]
    assert states.states[LYON] == state
    assert not flood.take(1, state, 0.0)
    assert out.take() == []


def test_who_tells_an_older_state_hears_the_newer_one() -> None:
    flood, _, out = flood_at_paris()
    newer = LinkState(LYON, 5, (), 0)
    flood.take(1, newer, 0.0)
    out.take()
    assert not flood.take(2, LinkState(LYON, 4, (), 0), 0.0)
    assert out.take() == [SendMessage(2, newer)]


def test_a_site_goes_on_above_what_an_earlier_run_has_said() -> None:
    flood, states, out = flood_at_paris()
    flood.refresh(0, 0.0)
    assert not flood.take(1, LinkState(PARIS, 99, (), 0), 0.0)
    flood.go_beyond(0)
    assert states.states[PARIS].sequence == 100
    assert any(isinstance(each, Refuse) for each in out.take())


def test_states_that_no_site_can_have_are_refused() -> None:
    flood, states, out = flood_at_paris()
    assert not flood.take(1, LinkState("x", 1, (), 0), 0.0)
    assert not flood.take(1, LinkState(LYON, 1, ((BONN, 1),) * 4, 0), 0.0)
    assert flood.take(1, LinkState(LYON, 1, (), 0), 0.0)
    assert flood.take(1, LinkState(BONN, 1, (), 0), 0.0)
    assert not flood.take(1, LinkState(OSLO, 1, (), 0), 0.0)
    reasons = [each.reason for each in out.take() if isinstance(each, Refuse)]
    assert reasons == ["a link state that no site can have"] * 2 + ["more sites than overlay.most_sites"]
    assert set(states.states) == {PARIS, LYON, BONN}


def test_a_neighbour_is_told_everything() -> None:
    flood, states, out = flood_at_paris()
    flood.take(1, LinkState(LYON, 1, (), 0), 0.0)
    out.take()
    flood.tell(2, 1.0)
    assert out.take() == [SendMessage(2, states.states[PARIS]), SendMessage(2, states.states[LYON])]
