import pytest

from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import Refuse, SendMessage
from culver.overlay.core.outgoing_streams import WindowPacket
from culver.overlay.core.overlay_messages import MOST_HOPS, LinkState, Packet, SiteNumbers, StreamPart
from culver.overlay.core.packet_forwarding import PacketForwarding, PacketRefused
from support.linked_nodes import BONN, LYON, OSLO, PARIS

# oslo - paris - lyon - bonn
LINKS = {PARIS: (LYON, OSLO), LYON: (BONN, PARIS), BONN: (LYON,), OSLO: (PARIS,)}
PART = StreamPart(0, 10, 1)


def forwarding_at(own: str, threshold: float = 1.0) -> tuple[PacketForwarding, Neighbours]:
    """The links of a site have numbers from 1 on, in the order of LINKS."""
    states, neighbours = LinkStates(own), Neighbours()
    for site, links in LINKS.items():
        states.take(LinkState(site, 1, tuple((other, 1) for other in links), 0), 0.0)
    for number, other in enumerate(LINKS[own], 1):
        neighbours.open(number, other, 1)
    return PacketForwarding(states, neighbours, threshold), neighbours


def window(*sites: str) -> WindowPacket:
    return WindowPacket(5, dict.fromkeys(sites, PART), (9,), (b"e",))


def packet(origin: str, *, hops: int = 1, bits: int, sites: int, broadcast: bool = False) -> Packet:
    return Packet(origin, 5, hops, bytes([bits]), (PART,) * sites, (9,), (b"e",), broadcast)


def test_a_packet_is_divided_by_the_next_hop() -> None:
    forwarding, _ = forwarding_at(PARIS)
    assert forwarding.send(window(BONN, LYON, OSLO)) == [
        SendMessage(1, SiteNumbers(0, (BONN, LYON))),
        SendMessage(1, packet(PARIS, bits=0b11, sites=2)),
        SendMessage(2, SiteNumbers(0, (OSLO,))),
        SendMessage(2, packet(PARIS, bits=0b1, sites=1)),
    ]
    assert forwarding.send(window(LYON)) == [SendMessage(1, packet(PARIS, bits=0b10, sites=1))]


def test_a_packet_goes_on_to_the_rest_of_its_destinations() -> None:
    forwarding, neighbours = forwarding_at(LYON)
    neighbours[2].numbers.learn(SiteNumbers(0, (BONN, LYON)))
    came = packet(PARIS, bits=0b11, sites=2)
    streams = forwarding.destinations(2, came)
    assert streams == {BONN: PART, LYON: PART}
    del streams[LYON]
    assert forwarding.forward(2, came, streams) == [
        SendMessage(1, SiteNumbers(0, (BONN,))),
        SendMessage(1, packet(PARIS, hops=2, bits=0b1, sites=1)),
    ]


def test_a_packet_does_not_go_back_where_it_came_from() -> None:
    forwarding, _ = forwarding_at(LYON)
    assert forwarding.forward(2, packet(BONN, bits=1, sites=1), {OSLO: PART}) == [
        Refuse(BONN, "no way to a destination")
    ]


def test_a_packet_for_more_than_the_threshold_goes_to_every_site() -> None:
    forwarding, _ = forwarding_at(PARIS, threshold=0.5)
    assert [each.link for each in forwarding.send(window(BONN)) if isinstance(each, SendMessage)] == [1, 1]
    assert forwarding.send(window(BONN, LYON)) == [
        SendMessage(1, SiteNumbers(1, (LYON,))),
        SendMessage(1, packet(PARIS, bits=0b11, sites=2, broadcast=True)),
        SendMessage(2, SiteNumbers(0, (BONN, LYON))),
        SendMessage(2, packet(PARIS, bits=0b11, sites=2, broadcast=True)),
    ]


def test_a_broadcast_goes_on_along_the_tree_only() -> None:
    forwarding, _ = forwarding_at(LYON)
    came = packet(PARIS, bits=0b1, sites=1, broadcast=True)
    sends = forwarding.forward(2, came, {OSLO: PART})
    assert [each.link for each in sends if isinstance(each, SendMessage)] == [1, 1]
    assert forwarding.forward(1, came, {OSLO: PART}) == [
        Refuse(PARIS, "a broadcast packet that came another way")
    ]


def test_a_broadcast_gives_no_numbers_to_sites_that_are_made_up() -> None:
    forwarding, neighbours = forwarding_at(LYON)
    made_up = {f"x{number}~{'0' * 16}": PART for number in range(100)}
    came = packet(PARIS, bits=0b1, sites=1, broadcast=True)
    forwarding.forward(2, came, {**made_up, OSLO: PART})
    assert neighbours[1].numbers.number([BONN]) == SiteNumbers(1, (BONN,))


@pytest.mark.parametrize(
    ("wrong", "source", "reason"),
    [
        (packet(PARIS, bits=0b100, sites=1), PARIS, "never told"),
        (packet(PARIS, bits=0b1, sites=2), PARIS, "do not fit"),
        (Packet(PARIS, 5, 1, b"\x01", (PART,), (9,), ()), PARIS, "do not fit"),
        (packet(LYON, bits=0b1, sites=1), PARIS, "own came back"),
        (packet(f"x~{'0' * 16}", bits=0b1, sites=1), PARIS, "unknown origin"),
        (packet(OSLO, hops=MOST_HOPS, bits=0b1, sites=1), OSLO, "in a loop"),
    ],
)
def test_a_wrong_packet_is_refused(wrong: Packet, source: str, reason: str) -> None:
    forwarding, neighbours = forwarding_at(LYON)
    neighbours[2].numbers.learn(SiteNumbers(0, (BONN, LYON)))
    with pytest.raises(PacketRefused, match=reason) as refused:
        forwarding.destinations(2, wrong)
    assert refused.value.source == source


def test_a_packet_that_a_site_carries_for_another_follows_the_tree_of_the_carrier() -> None:
    forwarding, neighbours = forwarding_at(LYON)
    carried = Packet(OSLO, 5, 1, b"\1", (PART,), (9,), (b"e",), carrier=LYON)
    assert forwarding.send(window(BONN), OSLO) == [
        SendMessage(1, SiteNumbers(0, (BONN,))),
        SendMessage(1, carried),
    ]
    neighbours[2].numbers.learn(SiteNumbers(0, (BONN,)))
    with pytest.raises(PacketRefused, match="this site's own came back"):
        forwarding.destinations(2, carried)


def test_a_packet_of_this_site_that_another_one_carries_may_pass_through() -> None:
    forwarding, neighbours = forwarding_at(LYON)
    neighbours[2].numbers.learn(SiteNumbers(0, (BONN,)))
    carried = Packet(LYON, 5, 1, b"\1", (PART,), (9,), (b"e",), carrier=PARIS)
    streams = forwarding.destinations(2, carried)
    assert [each for each in forwarding.forward(2, carried, streams) if isinstance(each, Refuse)] == []
