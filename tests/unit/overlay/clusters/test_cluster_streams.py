"""An origin's streams: who carries them, and how far a report moves a cursor."""

from random import Random

from culver.overlay.clusters.cluster_claims import ClaimLedger
from culver.overlay.clusters.cluster_instructions import ClusterOutbox, MemberClaim, SendNote, cluster_key
from culver.overlay.clusters.cluster_messages import CarriageReport, CarrierRefusal, CarrierTerms
from culver.overlay.clusters.cluster_streams import ClusterStreams
from culver.overlay.clusters.load.load_messages import LoadFigures
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import MoveCursor, Rewind
from culver.overlay.core.outgoing_streams import OutgoingStreams
from culver.overlay.core.overlay_messages import LinkState
from support.linked_nodes import BONN, LYON, OSLO, PARIS

KEY = cluster_key(0)


class Origin:
    """Paris, linked with all others, with lyon and bonn in cluster 0 and a log that ends at 100."""

    def __init__(self) -> None:
        self.states, neighbours = LinkStates(PARIS), Neighbours()
        self.others: dict[str, int] = {}
        for number, site in enumerate((LYON, BONN, OSLO), 1):
            neighbours.open(number, site, 1)
            self.others[site] = 1
        self.link_all(1)
        self.out = ClusterOutbox(self.states, neighbours)
        self.outgoing = OutgoingStreams()
        self.ledger = ClaimLedger()
        self.ledger.restore(
            MemberClaim(site, 1, 0, 0, active=True, cluster=0, begun=0) for site in (LYON, BONN)
        )
        self.candidates = [LYON, BONN]
        self.balance = StreamBalance(PARIS, Random(1), 0.0)
        self.streams = ClusterStreams(
            self.states,
            self.outgoing,
            self.ledger,
            self.out,
            1000,
            lambda cluster, members: self.candidates,
            self.balance,
        )
        self.outgoing.open(KEY, 10, 1000)
        self.streams.open(0, 10)
        self.streams.renew_terms(0, 0.0)

    def link_all(self, sequence: int, *, without: str = "", run: int = 1) -> None:
        links = tuple((site, 1) for site in self.others if site != without)
        self.states.take(LinkState(PARIS, sequence, links, 0), 0.0)
        for site in self.others:
            self.states.take(LinkState(site, sequence, ((PARIS, 1),), 0, run), 0.0)

    def terms(self) -> list[tuple[str, CarrierTerms]]:
        notes = [each.note for each in self.out.take() if isinstance(each, SendNote)]
        return [(note.destination, note.body) for note in notes if isinstance(note.body, CarrierTerms)]

    def report(
        self,
        carrier: str,
        position: int,
        carried: int,
        *,
        number: int | None = None,
        again: int | None = None,
        finished: tuple[str, ...] = (),
        now: float = 1.0,
    ) -> str | None:
        number = self.streams.streams[0].number if number is None else number
        report = CarriageReport(number, 0, position, carried, again, finished)
        return self.streams.on_report(carrier, report, 100, now)

    @property
    def cursor(self) -> int:
        return self.outgoing.acknowledged_position(KEY)


def test_nothing_is_sent_before_the_carrier_has_reported_where_to_go_on() -> None:
    origin = Origin()
    ((carrier, terms),) = origin.terms()
    assert (carrier, terms.floor, terms.start) == (LYON, 10, 10)
    assert {member.site for member in terms.members} == {LYON, BONN}
    assert origin.outgoing.wanted_bytes(KEY) == 0
    assert origin.report(LYON, 10, 25) is None
    assert origin.outgoing.wanted_bytes(KEY) > 0
    assert origin.out.take() == [Rewind(KEY, 24)]


def test_a_report_moves_the_cursor() -> None:
    origin = Origin()
    origin.report(LYON, 30, 40)
    assert origin.cursor == 30
    assert MoveCursor(KEY, 29) in origin.out.take()


def test_a_report_under_older_terms_moves_the_cursor_to_where_the_newer_ones_matter() -> None:
    origin = Origin()
    number = origin.streams.streams[0].number
    origin.streams.expect_terms(0, 50)  # the claims are on their way to the disk
    origin.report(LYON, 80, 80, number=number)
    assert origin.cursor == 50
    origin.streams.renew_terms(0, 1.0)
    origin.report(LYON, 90, 90, number=number)
    assert origin.cursor == 50
    origin.report(LYON, 90, 90)
    assert origin.cursor == 90


def test_terms_that_wait_for_the_disk_cannot_be_reported_under() -> None:
    origin = Origin()
    origin.streams.expect_terms(0, 50)
    number = origin.streams.streams[0].starts[-1][0]
    assert origin.report(LYON, 80, 80, number=number) == "a report under terms that do not exist"


def test_a_report_under_terms_of_an_earlier_run_counts_for_nothing() -> None:
    origin = Origin()
    assert origin.report(LYON, 80, 80, number=7) is None
    assert origin.cursor == 10


def test_where_the_carrier_cannot_be_reached_another_one_goes_on_from_what_was_carried() -> None:
    origin = Origin()
    origin.report(LYON, 30, 40)
    origin.out.take()
    origin.link_all(2, without=LYON)
    origin.streams.look(2.0)
    ((carrier, terms),) = origin.terms()
    assert (carrier, terms.floor, terms.start) == (BONN, 30, 40)
    assert origin.outgoing.wanted_bytes(KEY) == 0
    origin.report(LYON, 35, 38)  # late, and true
    assert origin.cursor == 35
    assert origin.outgoing.wanted_bytes(KEY) == 0


def test_a_carrier_that_has_started_again_gets_the_terms_again() -> None:
    origin = Origin()
    origin.report(LYON, 30, 40)
    origin.out.take()
    origin.link_all(2, run=2)
    origin.streams.look(2.0)
    assert [carrier for carrier, _ in origin.terms()] == [LYON]
    assert origin.outgoing.wanted_bytes(KEY) == 0


def test_a_site_that_refuses_or_stays_silent_is_left_alone_for_a_while() -> None:
    origin = Origin()
    origin.out.take()
    origin.streams.refused(LYON, CarrierRefusal(1000, 0), 1.0)
    assert [carrier for carrier, _ in origin.terms()] == [BONN]
    origin.streams.tick(5.5)
    assert origin.terms() == []
    assert origin.streams.streams[0].carrier is None
    origin.streams.tick(12.0)
    assert [carrier for carrier, _ in origin.terms()] == [LYON]


def overloaded(instead: str = "") -> CarrierRefusal:
    return CarrierRefusal(1000, 0, is_overloaded=True, instead=instead)


def test_a_stream_goes_to_whom_an_overloaded_carrier_has_found() -> None:
    origin = Origin()
    origin.candidates = [LYON, BONN, OSLO]
    origin.out.take()
    origin.streams.refused(LYON, overloaded(OSLO), 1.0)
    ((carrier, terms),) = origin.terms()
    assert (carrier, terms.insists) == (OSLO, False)
    origin.streams.refused(LYON, overloaded(BONN), 1.0)  # it came twice
    assert origin.terms() == []


def test_an_overloaded_carrier_cannot_send_a_stream_out_of_its_cluster() -> None:
    origin = Origin()
    origin.out.take()
    origin.streams.refused(LYON, overloaded(OSLO), 1.0)
    assert [carrier for carrier, _ in origin.terms()] == [BONN]


def test_where_all_have_too_much_to_do_the_origin_insists() -> None:
    origin = Origin()
    assert [terms.insists for _, terms in origin.terms()] == [False]
    origin.streams.refused(LYON, overloaded(), 1.0)
    origin.streams.refused(BONN, overloaded(), 1.0)
    assert [(carrier, terms.insists) for carrier, terms in origin.terms()] == [(BONN, False), (LYON, True)]
    origin.streams.refused(LYON, CarrierRefusal(1000, 0), 1.0)  # it is in another cluster now
    assert [(carrier, terms.insists) for carrier, terms in origin.terms()] == [(BONN, True)]


def test_the_contact_is_passed_over_while_it_has_too_much_to_do() -> None:
    origin = Origin()
    busy = LoadFigures(95.0, 0, 0, 0, 0, 0, 0, 100.0)
    origin.balance.heard(LYON, busy, 0.0)
    origin.out.take()
    origin.link_all(2, without=LYON)
    origin.streams.look(1.0)
    origin.link_all(3, without=BONN)
    origin.streams.look(2.0)
    origin.link_all(4)
    origin.balance.heard(BONN, busy, 2.0)
    origin.balance.heard(LYON, LoadFigures(5.0, 0, 0, 0, 0, 0, 0, 100.0), 2.0)
    origin.streams.refused(LYON, overloaded(), 2.0)
    assert [carrier for carrier, _ in origin.terms()] == [BONN, LYON, BONN]


def test_terms_are_repeated_until_the_carrier_reports_under_them() -> None:
    origin = Origin()
    origin.report(LYON, 30, 40)
    origin.out.take()
    origin.streams.expect_terms(0, 50)
    origin.streams.renew_terms(0, 2.0)
    assert len(origin.terms()) == 1
    origin.streams.tick(3.1)
    assert len(origin.terms()) == 1
    origin.report(LYON, 30, 40, now=3.2)
    origin.out.take()
    origin.streams.tick(4.5)
    assert origin.terms() == []


def test_the_stream_comes_again_from_where_the_carrier_wants_it() -> None:
    origin = Origin()
    origin.report(LYON, 10, 60)
    origin.out.take()
    origin.report(LYON, 10, 60, again=20)
    assert origin.out.take() == [Rewind(KEY, 19)]
    origin.report(LYON, 10, 60, again=70)  # that comes anyway
    assert origin.out.take() == []


def test_who_asks_for_something_before_the_cursor_hears_of_the_cursor() -> None:
    origin = Origin()
    origin.report(LYON, 40, 60)
    origin.out.take()
    origin.report(LYON, 40, 60, again=20)
    found = origin.out.take()
    assert Rewind(KEY, 39) in found
    (terms,) = [each.note.body for each in found if isinstance(each, SendNote)]
    assert isinstance(terms, CarrierTerms)
    assert terms.floor == 40


def test_a_member_has_left_when_a_report_under_terms_that_name_its_end_says_so() -> None:
    origin = Origin()
    before = origin.streams.streams[0].number
    origin.ledger.restore([MemberClaim(LYON, 1, 0, 0, active=True, cluster=1, begun=0, since=50, leaving=0)])
    origin.streams.expect_terms(0, 50)
    origin.streams.renew_terms(0, 1.0)
    origin.report(LYON, 20, 20, number=before, finished=(LYON,))
    assert origin.ledger.next_store(60, {}) is None
    origin.report(LYON, 20, 20, finished=(LYON,))
    assert origin.ledger.next_store(60, {}) is not None
