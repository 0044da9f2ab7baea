"""Nodes under what the simulation leaves out: several links between two sites, and broadcasts."""

from hypothesis import given, settings, strategies as st

from culver.overlay import NodeSettings
from support.linked_nodes import BONN, LYON, OSLO, PARIS, LinkedNodes, gaps, is_packet, predicate

SITES = (PARIS, LYON, BONN, OSLO)
sites = st.sampled_from(SITES)
steps = st.one_of(
    st.tuples(st.just("publish"), sites, st.integers(1, 3)),
    st.tuples(st.just("link"), sites, sites, st.integers(1, 3)),
    st.tuples(st.just("unlink"), st.integers(0, 5)),
    st.tuples(st.just("restart"), sites),
    st.tuples(st.just("advertise"), sites, st.integers(0, 63)),
    st.tuples(st.just("lose packets"), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 15)),
)


@given(st.lists(steps, max_size=25), st.sampled_from([0.3, 1.0]))
@settings(max_examples=40, deadline=None)
def test_every_event_reaches_every_site_once_and_in_order(
    script: list[tuple[object, ...]], threshold: float
) -> None:
    nodes = LinkedNodes(NodeSettings(broadcast_threshold=threshold))
    nodes.add(*SITES)
    boots = dict.fromkeys(SITES, 1)
    published: dict[str, list[bytes]] = {site: [] for site in SITES}
    links = [nodes.link(PARIS, LYON), nodes.link(LYON, BONN), nodes.link(BONN, OSLO)]
    wanted = {site: predicate(place) for place, site in enumerate(SITES)}
    for site in SITES:
        nodes.advertise(site, wanted[site])
    nodes.pass_time(1.0)
    for step in script:
        match step:
            case "publish", str(site), int(count):
                for _ in range(count):
                    published[site].append(b"%s %d" % (site.encode(), len(published[site])))
                    nodes.publish(site, published[site][-1])
            case "link", str(one), str(other), int(cost) if one != other:
                links.append(nodes.link(one, other, cost))
            case "unlink", int(place) if links:
                nodes.unlink(links.pop(place % len(links)))
            case "restart", str(site):
                boots[site] += 1000
                nodes.restart(site, boots[site])
                nodes.advertise(site, wanted[site])
            case "advertise", str(site), int(bit):
                wanted[site] = predicate(bit)
                nodes.advertise(site, wanted[site])
            case "lose packets", bool(loses):
                nodes.loses = is_packet if loses else lambda message: False
            case "wait", int(tenths):
                nodes.pass_time(tenths / 10)
        nodes.settle()
    nodes.loses = lambda message: False
    nodes.link(PARIS, BONN)
    nodes.link(LYON, OSLO)
    nodes.link(OSLO, PARIS)
    nodes.pass_time(40.0)
    for site in SITES:
        assert not gaps(nodes[site])
        for origin in SITES:
            if origin != site:
                assert nodes[site].imported(origin) == published[origin]
                assert nodes[origin].mailboxes[site].predicate == wanted[site]
                assert nodes[site].node.book.is_answered(origin)
