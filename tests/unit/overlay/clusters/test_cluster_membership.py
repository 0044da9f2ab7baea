"""Clusters as a site sees them, and the predicates that it knows."""

from random import Random

from culver.matching import NOTHING
from culver.overlay.clusters.cluster_instructions import ClusterOutbox, SendNote, StoreAdvertisement
from culver.overlay.clusters.cluster_membership import ClusterMembership, PredicateShelf
from culver.overlay.clusters.cluster_messages import (
    AdvertisementStored,
    Claim,
    ClusterBody,
    MemberAdvertisement,
)
from culver.overlay.clusters.layout.cluster_layout import ClusterLayout
from culver.overlay.clusters.load.load_messages import HoldBack, LoadKind
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.clusters.member_streams import ClaimedOrigin, MemberClaims
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.overlay_messages import LinkState
from support.linked_clusters import BitMatcher
from support.linked_nodes import BONN, LYON, OSLO, PARIS, predicate

SITES = frozenset({PARIS, LYON, BONN, OSLO})


class Sharer:
    """Paris, linked with all others."""

    def __init__(self, clusters: int = 1) -> None:
        self.states, neighbours = LinkStates(PARIS), Neighbours()
        others = sorted(SITES - {PARIS})
        for number, site in enumerate(others, 1):
            neighbours.open(number, site, 1)
            self.states.take(LinkState(site, 1, ((PARIS, 1),), 0, clusters=clusters), 0.0)
        links = tuple((site, 1) for site in others)
        self.states.take(LinkState(PARIS, 1, links, 0, clusters=clusters), 0.0)
        self.out = ClusterOutbox(self.states, neighbours)
        self.claims = MemberClaims(10)
        self.claims.change(NOTHING)
        self.balance = StreamBalance(PARIS, Random(1), 0.0)
        self.membership = ClusterMembership(self.states, self.claims, self.out, self.balance)
        self.matcher = BitMatcher()
        self.shelf = PredicateShelf(PARIS, self.matcher, self.out)

    def settle(self) -> None:
        self.membership.look(SITES, 0.0)
        assert self.membership.look(SITES, 1.0)

    def said(self) -> list[tuple[str, ClusterBody]]:
        notes = [each.note for each in self.out.take() if isinstance(each, SendNote)]
        return [(note.destination, note.body) for note in notes]


def test_a_layout_waits_until_the_known_sites_have_not_changed_for_a_second() -> None:
    sharer = Sharer()
    assert not sharer.membership.look(frozenset({PARIS}), 0.0)
    assert not sharer.membership.look(SITES, 0.9)
    assert not sharer.membership.look(SITES, 1.8)
    assert sharer.membership.cluster_at(PARIS) is None
    assert sharer.membership.look(SITES, 2.0)
    assert sharer.membership.cluster_at(PARIS) == 0
    assert not sharer.membership.look(SITES, 9.0)


def test_without_a_setting_there_are_about_as_many_clusters_as_the_square_root_of_the_sites() -> None:
    sharer = Sharer(clusters=0)
    sharer.settle()
    layout = sharer.membership.layout_of(PARIS)
    assert layout is not None
    assert layout.clusters == 2


def test_the_own_predicate_is_told_to_mates_until_they_have_stored_it() -> None:
    sharer = Sharer()
    sharer.settle()
    sharer.membership.share(1.0)
    assert {site for site, _ in sharer.said()} == SITES - {PARIS}
    sharer.membership.stored(LYON, 10)
    sharer.membership.share(1.5)
    assert sharer.said() == []
    sharer.membership.share(2.0)
    assert {site for site, _ in sharer.said()} == {BONN, OSLO}


def test_claims_are_made_when_the_mates_know_the_predicate() -> None:
    sharer = Sharer()
    sharer.settle()
    sharer.membership.claim([LYON], 1.0)
    assert sharer.said() == []
    for site in SITES:
        sharer.membership.stored(site, 10)
    sharer.membership.claim([LYON], 1.0)
    assert sharer.said() == [(LYON, Claim(10, 0, active=False, number=11))]
    sharer.membership.claim([LYON], 1.5)
    assert sharer.said() == []
    sharer.membership.claim([LYON], 2.0)
    assert len(sharer.said()) == 1


def test_a_site_that_goes_back_to_its_cluster_says_so_because_the_origin_may_have_moved_it() -> None:
    sharer = Sharer()
    sharer.settle()

    def move(clusters: int, now: float) -> list[tuple[str, ClusterBody]]:
        sequence = sharer.states.states[LYON].sequence + 1
        sharer.states.take(LinkState(LYON, sequence, ((PARIS, 1),), 0, clusters=clusters), now)
        sharer.membership.look(SITES, now)
        sharer.membership.claim([LYON], now + 2.0)
        return sharer.said()

    assert move(1, 1.0) == [(LYON, Claim(10, 0, active=False, number=11))]
    sharer.claims.sites[LYON] = ClaimedOrigin(applied=[(10, 0)], cluster=0, number=11)
    assert move(1, 4.0) == []
    away = next(count for count in (2, 3, 4) if ClusterLayout(SITES, count).cluster_of(PARIS))
    assert [body.number for _, body in move(away, 7.0) if isinstance(body, Claim)] == [12]
    assert move(1, 10.0) == [(LYON, Claim(10, 0, active=False, number=13))]


def test_numbers_of_claims_go_on_above_those_of_an_earlier_run() -> None:
    sharer = Sharer()
    sharer.settle()
    sharer.membership.claim([LYON], 3.0)
    assert sharer.said() == [(LYON, Claim(10, 0, active=False, number=11))]
    sharer.membership.answered(LYON, 40)
    sharer.membership.claim([LYON], 3.1)
    assert sharer.said() == [(LYON, Claim(10, 0, active=False, number=41))]


def test_mates_that_do_not_answer_are_not_waited_for_long() -> None:
    sharer = Sharer()
    sharer.settle()
    sharer.membership.claim([LYON], 3.0)
    assert len(sharer.said()) == 1


def test_nothing_is_claimed_before_it_is_known_what_subscribers_want() -> None:
    sharer = Sharer()
    sharer.claims.is_advertised = False
    sharer.settle()
    sharer.membership.claim([LYON], 3.0)
    assert sharer.said() == []


def test_carriers_come_from_the_layout_and_then_from_the_claims() -> None:
    sharer = Sharer()
    sharer.settle()
    assert sharer.membership.candidates(0, [])[0] == PARIS
    assert set(sharer.membership.candidates(0, [])) == SITES
    assert sharer.membership.candidates(5, [OSLO, BONN]) == [BONN, OSLO]


def test_a_predicate_is_stored_and_then_acknowledged() -> None:
    sharer = Sharer()
    message = MemberAdvertisement(LYON, 3, predicate(1).text)
    sharer.shelf.take(LYON, message)
    assert sharer.out.take() == [StoreAdvertisement(LYON, 3, predicate(1))]
    assert sharer.matcher.predicates == {LYON: predicate(1)}
    sharer.shelf.take(LYON, message)
    assert sharer.said() == []
    sharer.shelf.stored(LYON, 3)
    assert sharer.said() == [(LYON, AdvertisementStored(3))]
    sharer.shelf.take(LYON, message)
    assert sharer.said() == [(LYON, AdvertisementStored(3))]
    assert sharer.shelf.copy_for(LYON) == message
    assert sharer.shelf.copy_for(BONN) is None


def test_an_older_predicate_does_not_replace_a_newer_one() -> None:
    sharer = Sharer()
    sharer.shelf.restore(LYON, 5, predicate(5))
    sharer.shelf.take(LYON, MemberAdvertisement(LYON, 3, predicate(1).text))
    assert sharer.matcher.predicates == {LYON: predicate(5)}


def test_predicates_that_nobody_needs_any_more_are_dropped_after_a_while() -> None:
    sharer = Sharer()
    sharer.shelf.put_own(1, predicate(0))
    sharer.shelf.restore(LYON, 5, predicate(5))
    sharer.shelf.prune({LYON}, 0.0)
    sharer.shelf.prune(set(), 9.0)
    assert sharer.shelf.sites() == [LYON]
    sharer.shelf.prune(set(), 10.0)
    assert sharer.shelf.sites() == []
    assert sharer.out.take() == [StoreAdvertisement(LYON, 0, None)]
    assert set(sharer.matcher.predicates) == {PARIS}


def test_a_mate_with_too_many_subscriptions_hears_of_new_ones_later_and_claims_do_not_wait_for_it() -> None:
    sharer = Sharer()
    sharer.settle()
    sharer.balance.arrange(SITES, [])
    sharer.balance.received_messages(LoadKind.RING, 1, 1.0)
    sharer.balance.worked(0.001)
    sharer.balance.received(LYON, HoldBack(5.0), 1.0)
    sharer.claims.change(predicate(1))
    sharer.membership.changed(1.0)
    assert {site for site, _ in sharer.said()} == {BONN, OSLO}
    for site in (BONN, OSLO):
        sharer.membership.stored(site, sharer.claims.version)
    sharer.membership.claim([BONN], 1.1)
    assert [type(body) for _, body in sharer.said()] == [Claim]
    sharer.membership.share(5.9)
    assert sharer.said() == []
    sharer.membership.share(6.1)
    assert {site for site, _ in sharer.said()} == {LYON}
