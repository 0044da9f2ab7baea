"""A member's streams: which parts it takes, and what it says that it has."""

import pytest

from culver.overlay.clusters.cluster_instructions import ClusterOutbox
from culver.overlay.clusters.cluster_messages import (
    ANY_VERSION,
    Claim,
    ClaimAnswer,
    ClusterBody,
    MemberGap,
    MemberPosition,
    StreamNews,
)
from culver.overlay.clusters.member_streams import BEGUN_ANEW, MemberClaims, MemberStreams
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import AnnounceGap, Append
from culver.overlay.core.overlay_messages import StreamPart
from support.linked_nodes import LYON, PARIS, predicate


class Member:
    """Lyon, which carries for itself here: so what it says to the carrier stays at hand."""

    def __init__(self, positions: dict[str, int] | None = None) -> None:
        self.claims = MemberClaims(10)
        self.out = ClusterOutbox(LinkStates(LYON), Neighbours())
        self.streams = MemberStreams(positions or {}, self.claims, self.out)

    def answer(
        self,
        version: int = 10,
        position: int = 0,
        *,
        before: int = 0,
        begun: int = 0,
        missing_from: int | None = None,
        reason: str = "",
    ) -> None:
        answer = ClaimAnswer(version, before, position, begun, 2, missing_from, reason)
        self.streams.on_answer(PARIS, answer)

    def part(self, previous: int, end: int, *offsets: int, version: int = 10) -> list[int]:
        """Take a part in one packet; returns the offsets that are appended, which the disk has at once."""
        self.out.take()
        payloads = tuple(b"%d" % offset for offset in offsets)
        self.streams.on_part(PARIS, LYON, end, StreamPart(previous, end, 1, version), offsets, payloads, 1.0)
        found = [each for each in self.out.take() if isinstance(each, Append)]
        for append in found:
            self.streams.appended(PARIS, append.end)
        return [offset for append in found for offset, _ in append.events]

    def said(self) -> list[ClusterBody]:
        said, self.out.local = self.out.local, []
        return said

    def gaps(self) -> list[AnnounceGap]:
        return [each for each in self.out.take() if isinstance(each, AnnounceGap)]


def test_nothing_is_taken_before_the_origin_has_answered_a_claim_of_this_run() -> None:
    member = Member({PARIS: 3})
    assert member.part(3, 5, 4) == []
    member.answer()
    assert member.part(3, 5, 4) == [4]
    assert member.said() == [MemberPosition(PARIS, 5, False)]


def test_a_part_behind_a_missing_one_is_asked_for() -> None:
    member = Member()
    member.answer()
    assert member.part(4, 9, 8) == []
    assert member.said() == [MemberPosition(PARIS, 0, True)]


def test_what_the_member_has_is_dropped_and_acknowledged() -> None:
    member = Member()
    member.answer()
    assert member.part(0, 5, 2, 4) == [2, 4]
    assert member.part(0, 8, 2, 4, 7) == [7]
    assert member.part(0, 5, 2, 4) == []
    assert member.said()[-1] == MemberPosition(PARIS, 8, False)


def test_a_part_of_an_older_version_counts_up_to_where_the_newer_one_is_in_effect() -> None:
    member = Member()
    member.answer(10)
    member.claims.change(predicate(1))
    member.answer(11, 5)
    assert member.part(0, 9, 2, 4, 6, 8, version=10) == [2, 4]
    assert member.part(5, 9, 6, version=10) == []
    assert member.part(5, 9, 5, 6, 8, version=11) == [5, 6, 8]


def test_a_version_is_in_effect_behind_what_was_taken_with_an_older_one() -> None:
    member = Member()
    member.answer(10)
    member.claims.change(predicate(1))
    assert member.part(0, 9, 8, version=10) == [8]
    member.answer(11, 5)
    assert member.claims.in_effect_from(PARIS, 11) == 9


def test_parts_of_versions_before_the_last_one_of_an_earlier_run_are_not_taken() -> None:
    member = Member({PARIS: 3})
    member.answer(10, 7, before=5)
    assert member.part(3, 5, 4, version=4) == []
    assert member.part(3, 5, 4, version=5) == [4]


def test_answers_to_other_runs_are_ignored() -> None:
    member = Member()
    member.answer(9)
    assert PARIS not in member.claims.sites


def test_a_first_claim_begins_without_a_gap() -> None:
    member = Member()
    member.answer(begun=50, position=50)
    assert member.gaps() == []
    assert member.streams.incoming.durable(PARIS) == 50


@pytest.mark.parametrize("promised", [False, True])
def test_a_stream_that_has_begun_anew_leaves_a_gap(promised: bool) -> None:
    member = Member({} if promised else {PARIS: 7})
    member.streams.promised_ends.update({PARIS: 2} if promised else {})
    member.answer(begun=50, position=50)
    assert member.gaps() == [AnnounceGap(PARIS, 0 if promised else 7, 50, BEGUN_ANEW)]
    member.answer(begun=50, position=50)
    assert member.gaps() == []


def test_a_successor_announces_what_its_predecessor_was_owed() -> None:
    member = Member()
    member.answer(begun=50, position=50, missing_from=30, reason="lost")
    assert member.gaps() == [AnnounceGap(PARIS, 30, 50, "lost")]


def test_news_takes_the_member_on_where_it_has_what_they_build_on() -> None:
    member = Member({PARIS: 7})
    member.answer()
    member.streams.on_news(LYON, StreamNews(PARIS, ANY_VERSION, 8, 20))
    assert member.said() == [MemberPosition(PARIS, 7, False)]
    member.streams.on_news(LYON, StreamNews(PARIS, ANY_VERSION, 7, 20))
    assert member.said() == [MemberPosition(PARIS, 20, False)]


def test_news_of_an_older_version_counts_up_to_where_the_newer_one_is_in_effect() -> None:
    member = Member({PARIS: 7})
    member.answer(10)
    member.claims.change(predicate(1))
    member.answer(11, 15)
    member.streams.on_news(LYON, StreamNews(PARIS, 10, 0, 20))
    assert member.said() == [MemberPosition(PARIS, 15, False)]


def test_news_is_not_answered_before_the_origin_has_answered() -> None:
    member = Member({PARIS: 7})
    member.streams.on_news(LYON, StreamNews(PARIS, ANY_VERSION, 0, 20))
    assert member.said() == []


def test_a_gap_is_announced_and_the_stream_goes_on_behind_it() -> None:
    member = Member({PARIS: 7})
    member.answer()
    member.streams.on_gap(LYON, MemberGap(PARIS, 5, 20, "full"))
    assert member.gaps() == [AnnounceGap(PARIS, 7, 20, "full")]
    assert member.said() == [MemberPosition(PARIS, 20, False)]
    member.streams.on_gap(LYON, MemberGap(PARIS, 5, 20, "full"))
    assert member.gaps() == []


def test_after_a_refusing_disk_the_part_comes_again() -> None:
    member = Member()
    member.answer()
    member.streams.on_part(PARIS, LYON, 1, StreamPart(0, 5, 1, 10), (4,), (b"a",), 1.0)
    member.streams.append_failed(PARIS)
    assert member.said() == []
    assert member.part(0, 5, 4) == [4]


def test_a_member_goes_beyond_versions_of_an_earlier_run() -> None:
    claims = MemberClaims(10)
    claims.go_beyond(99)
    assert claims.version == 100
    assert not claims.is_own(99)


def test_a_forgotten_stream_goes_on_from_where_it_was() -> None:
    member = Member({PARIS: 7})
    member.answer()
    member.streams.forget(PARIS)
    assert member.part(7, 9, 8) == []
    member.answer()
    assert member.streams.incoming.durable(PARIS) == 7


def test_a_late_answer_to_an_earlier_claim_does_not_move_the_site_back() -> None:
    member = Member()
    for cluster, number in ((2, 12), (0, 11)):
        member.streams.on_answer(PARIS, ClaimAnswer(10, 0, 0, 0, cluster, None, "", number))
    assert member.claims.is_answered(PARIS, Claim(10, 2, active=True, number=12))
    assert not member.claims.is_answered(PARIS, Claim(10, 0, active=True, number=13))
