"""The contract of routing nodes, run on those of both ways to route, linked in memory."""

from typing import Any, Protocol

import pytest

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay import HearGossip, RoutingFrame, RoutingInstruction, RoutingNode
from culver.overlay.core.overlay_messages import LinkState, Packet
from culver.plugins import ROUTINGS
from support.linked_clusters import LinkedClusters
from support.linked_nodes import BONN, EVERYTHING, LYON, OSLO, PARIS, LinkedNodes


class Wired(Protocol):
    """What the two ways to wire nodes have in common."""

    def link(self, one: str, other: str) -> int: ...
    def unlink(self, link: int) -> None: ...
    def advertise(self, key: str, wanted: EncodedPredicate) -> None: ...
    def publish(self, key: str, *payloads: bytes) -> None: ...
    def pass_time(self, seconds: float) -> None: ...


class Overlay:
    """Three sites in a row: paris, lyon and bonn."""

    def __init__(self, wired: LinkedNodes | LinkedClusters) -> None:
        self.wired: Wired = wired
        self._made = wired
        wired.add(PARIS, LYON, BONN)
        self.links = [wired.link(PARIS, LYON), wired.link(LYON, BONN)]
        wired.pass_time(4.0)

    def node(self, key: str) -> RoutingNode:
        return self._made[key].node

    def imported(self, key: str) -> list[bytes]:
        return self._made[key].imported(PARIS)

    def done(self, key: str) -> list[RoutingInstruction]:
        return list(self._made[key].done)

    def lose_packets(self, count: int) -> None:
        left = [count]

        def loses(frame: RoutingFrame) -> bool:
            lost = isinstance(frame, Packet) and left[0] > 0
            left[0] -= lost
            return lost

        self._made.loses = loses

    def restart(self, key: str) -> None:
        """Begin a new run of a site, without links."""
        if isinstance(self._made, LinkedNodes):
            self._made.restart(key, boot=1_000)
        else:
            self._made.start(key, self._made.stop(key), boot=1_000)

    def do(self, key: str, instructions: Any) -> None:
        self._made.do(key, instructions)


@pytest.fixture(params=sorted(ROUTINGS))
def overlay(request: pytest.FixtureRequest) -> Overlay:
    wired = {"b-drp": LinkedNodes, "clusters": LinkedClusters}
    return Overlay(wired[request.param]())


def events(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_events_reach_whoever_asks_for_them_once_and_in_order(overlay: Overlay) -> None:
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.publish(PARIS, *events(0, 50))
    overlay.wired.pass_time(2.0)
    assert overlay.imported(BONN) == events(0, 50)
    assert overlay.imported(LYON) == []


def test_position_from_which_an_advertisement_is_in_effect_is_known(overlay: Overlay) -> None:
    overlay.wired.publish(PARIS, *events(0, 3))
    before = overlay.node(BONN).book.version
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    book = overlay.node(BONN).book
    assert book.predicate == EVERYTHING
    assert book.version > before
    assert book.in_effect_from(PARIS, book.version) == 3
    assert book.in_effect_from(OSLO, book.version) is None
    overlay.wired.publish(PARIS, *events(3, 5))
    overlay.wired.pass_time(2.0)
    assert overlay.imported(BONN) == events(3, 5)


def test_nothing_comes_after_the_last_wish_is_gone(overlay: Overlay) -> None:
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.advertise(BONN, NOTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.publish(PARIS, *events(0, 3))
    overlay.wired.pass_time(2.0)
    assert overlay.imported(BONN) == []


def test_site_that_was_cut_off_gets_what_it_missed_once(overlay: Overlay) -> None:
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.publish(PARIS, *events(0, 3))
    overlay.wired.unlink(overlay.links[1])
    overlay.wired.publish(PARIS, *events(3, 6))
    assert not overlay.node(PARIS).states.reaches(BONN)
    overlay.wired.link(LYON, BONN)
    overlay.wired.pass_time(4.0)
    assert overlay.imported(BONN) == events(0, 6)


def test_lost_packets_are_sent_again(overlay: Overlay) -> None:
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.lose_packets(2)
    overlay.wired.publish(PARIS, *events(0, 3))
    overlay.wired.publish(PARIS, *events(3, 6))
    overlay.wired.pass_time(20.0)
    assert overlay.imported(BONN) == events(0, 6)


@pytest.mark.parametrize("key", [PARIS, BONN])
def test_restarted_site_goes_on_where_it_was(overlay: Overlay, key: str) -> None:
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.publish(PARIS, *events(0, 3))
    overlay.restart(key)
    if key == BONN:
        overlay.wired.advertise(BONN, EVERYTHING)
    else:
        overlay.do(PARIS, overlay.node(PARIS).advertise(NOTHING))
    overlay.wired.publish(PARIS, *events(3, 6))
    overlay.wired.link(LYON, key)
    overlay.wired.pass_time(8.0)
    overlay.wired.publish(PARIS, *events(6, 9))
    overlay.wired.pass_time(8.0)
    assert overlay.imported(BONN) == events(0, 9)


def test_failed_append_comes_again(overlay: Overlay) -> None:
    assert overlay.node(BONN).append_failed(PARIS) == []
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.publish(PARIS, *events(0, 3))
    overlay.wired.pass_time(4.0)
    assert overlay.imported(BONN) == events(0, 3)


def test_gossip_reaches_a_site_behind_another(overlay: Overlay) -> None:
    overlay.do(PARIS, overlay.node(PARIS).gossip(BONN, b"news"))
    overlay.wired.pass_time(0.1)
    assert HearGossip(PARIS, b"news") in overlay.done(BONN)
    assert not any(isinstance(each, HearGossip) for each in overlay.done(LYON))


def test_forgotten_site_is_known_as_such(overlay: Overlay) -> None:
    overlay.wired.advertise(BONN, EVERYTHING)
    overlay.wired.pass_time(4.0)
    overlay.wired.unlink(overlay.links[1])
    overlay.wired.pass_time(1.0)
    overlay.do(PARIS, overlay.node(PARIS).forget(BONN))
    assert overlay.node(PARIS).is_forgotten(BONN)
    assert not overlay.node(PARIS).is_forgotten(LYON)


def test_message_on_an_unknown_link_is_ignored(overlay: Overlay) -> None:
    state = LinkState(OSLO, 7, (), 0)
    assert overlay.node(PARIS).received(99, state, 10.0) == []
    assert OSLO not in overlay.node(PARIS).states.states
