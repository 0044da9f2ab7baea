"""A carriage, told what comes and who says what."""

from collections.abc import Sequence

from culver.overlay.clusters.carriage import Carriage
from culver.overlay.clusters.cluster_messages import (
    ANY_VERSION,
    CarriageReport,
    CarrierTerms,
    StreamNews,
    TermsMember,
)
from culver.overlay.clusters.window_parts import MemberShare
from support.linked_nodes import BONN, LYON, OSLO, PARIS

VERSIONS = {LYON: 1, BONN: 1, OSLO: 1}


def member(site: str, *, version: int = 1, position: int = 0, since: int = 0, until: int = 0) -> TermsMember:
    return TermsMember(site, version, position, since, until)


def terms(number: int, *members: TermsMember, start: int = 0, floor: int = 0) -> CarrierTerms:
    return CarrierTerms(number, 2, start, floor, members)


def carriage(*members: TermsMember, start: int = 0, floor: int = 0, away: str = "") -> Carriage:
    """All members but one can be reached, and have everything up to the start."""
    made = Carriage(PARIS, terms(1, *members, start=start, floor=floor))
    made.look(lambda site: site != away, 0.0)
    for each in members:
        if each.site != away:
            made.heard(each.site, start, False)
    return made


def process(
    made: Carriage, previous: int, end: int, wanted: dict[int, Sequence[str]], now: float = 1.0
) -> dict[str, MemberShare]:
    events = [(offset, b"e") for offset in wanted]
    return made.process(previous, end, events, [set(sites) for sites in wanted.values()], VERSIONS, now)


def reported(made: Carriage, now: float = 1.0) -> tuple[int, int, int | None]:
    report = made.report(now)
    assert report is not None
    return report.position, report.carried, report.again


def test_events_go_to_who_wants_them_and_a_part_reaches_back_to_the_last_one() -> None:
    made = carriage(member(LYON), member(BONN))
    assert process(made, 0, 4, {1: [LYON], 3: [BONN]}) == {
        LYON: MemberShare(0, 2, 1, [1]),
        BONN: MemberShare(0, 4, 1, [3]),
    }
    assert process(made, 4, 8, {6: [LYON]}) == {LYON: MemberShare(2, 7, 1, [6])}


def test_who_wants_nothing_counts_as_far_as_events_are_matched() -> None:
    made = carriage(member(LYON), member(BONN))
    process(made, 0, 9, {3: [LYON]})
    assert reported(made) == (0, 0, None)
    made.heard(LYON, 4, False)
    assert reported(made) == (9, 9, None)


def test_an_absent_member_holds_the_position_at_the_first_event_that_is_for_it() -> None:
    made = carriage(member(LYON), member(BONN), away=BONN)
    assert process(made, 0, 9, {3: [LYON], 5: [BONN, LYON], 7: [BONN]}) == {
        LYON: MemberShare(0, 6, 1, [3, 5])
    }
    made.heard(LYON, 6, False)
    assert reported(made) == (5, 9, None)


def test_a_member_that_is_back_is_asked_and_gets_what_it_missed_and_nobody_else_does() -> None:
    made = carriage(member(LYON), member(BONN), away=BONN)
    process(made, 0, 9, {3: [LYON], 5: [BONN, LYON]})
    made.heard(LYON, 6, False)
    made.report(1.0)
    made.look(lambda site: True, 2.0)
    assert dict(made.news(VERSIONS, 2.0))[BONN] == StreamNews(PARIS, 1, 0, 5)
    made.heard(BONN, 5, False)
    assert reported(made, 2.0) == (5, 5, 5)
    assert process(made, 5, 9, {5: [BONN, LYON]}, 2.1) == {BONN: MemberShare(5, 6, 1, [5])}
    made.heard(BONN, 6, False)
    assert reported(made, 2.2) == (9, 9, None)


def test_a_member_that_has_missed_a_part_gets_the_stream_again() -> None:
    made = carriage(member(LYON))
    process(made, 0, 4, {3: [LYON]})
    process(made, 4, 8, {6: [LYON]})
    made.heard(LYON, 0, True)
    assert reported(made) == (0, 0, 0)
    assert process(made, 8, 9, {8: [LYON]}) == {}  # not before what is missing
    assert process(made, 0, 9, {3: [LYON], 6: [LYON], 8: [LYON]}) == {LYON: MemberShare(0, 9, 1, [3, 6, 8])}


def test_what_the_origin_sends_again_goes_to_members_that_have_not_answered() -> None:
    made = carriage(member(LYON), member(BONN))
    process(made, 0, 4, {3: [LYON, BONN]})
    made.heard(BONN, 4, False)
    assert process(made, 0, 4, {3: [LYON, BONN]}) == {LYON: MemberShare(0, 4, 1, [3])}


def test_a_window_behind_a_missing_one_is_not_taken() -> None:
    made = carriage(member(LYON))
    assert process(made, 4, 8, {6: [LYON]}) == {}
    assert reported(made) == (0, 0, 0)


def test_a_report_is_repeated_when_the_origin_repeats_itself() -> None:
    made = carriage(member(LYON))
    process(made, 0, 4, {})
    assert reported(made) == (4, 4, None)
    assert made.report(1.0) is None
    process(made, 0, 4, {})
    assert reported(made) == (4, 4, None)


def test_a_new_version_is_matched_again_from_where_it_is_in_effect() -> None:
    made = carriage(member(LYON))
    process(made, 0, 9, {})
    made.take_terms(terms(2, member(LYON, version=2, position=5)))
    assert made.position == 5
    assert made.lacking(VERSIONS) == [LYON]
    assert made.news(VERSIONS, 2.0) == []  # its predicate is not at hand
    assert made.news({LYON: 2}, 2.0) == [(LYON, StreamNews(PARIS, 2, 0, 5))]
    made.heard(LYON, 5, False)
    assert reported(made, 2.0) == (5, 5, 5)


def test_a_member_whose_predicate_is_missing_holds_the_position_and_nothing_else() -> None:
    made = Carriage(PARIS, terms(1, member(LYON), member(OSLO, version=7)))
    made.look(lambda site: True, 0.0)
    made.heard(LYON, 0, False)
    process(made, 0, 9, {})
    assert reported(made) == (0, 9, None)


def test_older_terms_are_ignored() -> None:
    made = carriage(member(LYON))
    made.take_terms(terms(5, member(BONN)))
    made.take_terms(terms(4, member(LYON)))
    assert set(made.members()) == {BONN}


def test_a_carriage_goes_on_at_the_floor_where_that_is_beyond_what_it_has_matched() -> None:
    made = carriage(member(LYON))
    process(made, 0, 4, {})
    made.take_terms(terms(2, member(LYON, version=1), start=20, floor=20))
    assert made.processed == 20
    assert (
        process(made, 20, 21, {20: [LYON]}, 2.0) == {}
    )  # it must hear first that it has everything below 20
    assert made.news(VERSIONS, 2.0) == [(LYON, StreamNews(PARIS, ANY_VERSION, 0, 20))]


def test_a_member_that_leaves_gets_nothing_from_its_end_on_and_holds_nothing_back() -> None:
    made = carriage(member(LYON, until=5), member(BONN))
    assert process(made, 0, 9, {3: [LYON], 7: [LYON]}) == {LYON: MemberShare(0, 4, 1, [3])}
    made.heard(LYON, 4, False)
    report = made.report(1.0)
    assert report == CarriageReport(1, 2, 9, 9, None, (LYON,), taken=0)


def test_a_member_that_leaves_is_not_told_that_nothing_is_for_it_behind_its_end() -> None:
    made = carriage(member(LYON, until=5), member(BONN), away=BONN)
    process(made, 0, 9, {3: [BONN]})
    ((site, news),) = made.news(VERSIONS, 20.0)
    assert (site, news.position) == (LYON, 5)


def test_a_cursor_beyond_the_end_of_a_member_that_leaves_says_nothing_about_what_is_behind() -> None:
    made = Carriage(PARIS, terms(1, member(LYON, until=5), start=20, floor=20))
    made.look(lambda site: True, 0.0)
    assert made.news(VERSIONS, 1.0) == [(LYON, StreamNews(PARIS, ANY_VERSION, 0, 5))]


def test_where_one_is_away_the_others_learn_that_nothing_was_for_them() -> None:
    made = carriage(member(LYON), member(BONN), away=BONN)
    process(made, 0, 9, {3: [BONN]})
    assert made.news(VERSIONS, 20.0) == [(LYON, StreamNews(PARIS, 1, 0, 9))]
    assert made.news(VERSIONS, 21.0) == []


def test_a_member_that_does_not_answer_holds_up_the_others_for_a_while_only() -> None:
    made = carriage(member(LYON), member(BONN))
    process(made, 0, 9, {3: [LYON]}, now=1.0)
    assert made.carried == 0
    made.look(lambda site: True, 4.0)
    assert (made.position, made.carried) == (0, 9)
    assert LYON not in dict(made.news(VERSIONS, 4.5))
    assert LYON in dict(made.news(VERSIONS, 5.0))


def test_a_member_below_the_floor_is_not_served_before_it_has_caught_up_elsewhere() -> None:
    made = Carriage(PARIS, terms(1, member(LYON, since=8), start=8, floor=8))
    made.look(lambda site: True, 0.0)
    made.heard(LYON, 3, False)
    assert process(made, 8, 10, {9: [LYON]}) == {}
    assert made.position == 9
    made.heard(LYON, 8, False)
    assert reported(made) == (8, 8, 8)


def test_a_member_that_has_forgotten_that_it_had_everything_is_told_again() -> None:
    made = carriage(member(LYON), start=8, floor=8)
    assert made.news(VERSIONS, 1.0) == []
    made.heard(LYON, 3, True)
    assert made.news(VERSIONS, 2.0) == [(LYON, StreamNews(PARIS, ANY_VERSION, 0, 8))]


def test_a_gap_goes_to_members_that_have_less_and_counts_when_they_have_announced_it() -> None:
    made = carriage(member(LYON), member(BONN), away=BONN)
    process(made, 0, 4, {3: [BONN]})
    assert made.skip(4, 9, 1.0) == [LYON]
    assert made.carried == 0
    made.heard(LYON, 9, False)
    assert (made.position, made.carried) == (3, 9)


def test_a_gap_behind_a_missing_window_is_not_taken() -> None:
    made = carriage(member(LYON))
    assert made.skip(4, 9, 1.0) == []
    assert reported(made) == (0, 0, 0)


def test_what_all_who_can_be_reached_have_is_left_out_and_comes_again_for_who_was_away() -> None:
    made = Carriage(PARIS, terms(1, member(LYON), member(BONN), member(OSLO), start=40, floor=40))
    made.look(lambda site: site != OSLO, 0.0)
    made.heard(LYON, 6_000, False)
    made.go_ahead(9_000)
    assert reported(made) == (40, 40, None)  # Bonn has not said what it has
    made.heard(BONN, 5_000, False)
    made.go_ahead(4_500)
    assert reported(made) == (40, 4_500, None)
    assert process(made, 4_500, 7_000, {6_500: [LYON, BONN, OSLO]}) == {
        LYON: MemberShare(6_000, 6_501, 1, [6_500]),
        BONN: MemberShare(5_000, 6_501, 1, [6_500]),
    }
    for site in (LYON, BONN):
        made.heard(site, 6_501, False)
    made.look(lambda site: True, 2.0)
    made.heard(OSLO, 40, False)
    assert reported(made, 2.0) == (40, 40, 40)
    assert process(made, 40, 7_000, {50: [OSLO], 6_500: [LYON, BONN, OSLO]}, 2.1) == {
        OSLO: MemberShare(40, 6_501, 1, [50, 6_500])
    }


def test_a_little_is_matched_again_so_that_who_is_away_holds_back_no_more_than_it_must() -> None:
    made = carriage(member(LYON), member(BONN), away=BONN)
    made.heard(LYON, 900, False)
    made.go_ahead(900)
    assert reported(made) == (0, 0, None)
    process(made, 0, 900, {3: [LYON], 700: [BONN]})
    assert reported(made) == (700, 900, None)
