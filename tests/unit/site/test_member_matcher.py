"""A carrier finds the members whose predicates match an event: exactly where they are told exactly."""

from culver.matching import ExactPredicate, PredicateSummary
from culver.model.language import parse
from culver.site.wide_area.routing.member_matcher import MemberMatcher
from support.linked_nodes import BONN, EVERYTHING, LYON, OSLO


def exact(text: str) -> ExactPredicate:
    return ExactPredicate.of(parse(text).clauses)


def test_members_are_found_exactly() -> None:
    matcher = MemberMatcher()
    assert matcher.match([b'{"a": 1001}']) == [frozenset()]
    matcher.change(LYON, exact("a > 1000"))
    matcher.change(BONN, exact("a > 1000 AND b = 'x' OR a = 7"))
    payloads = [b'{"a": 1000}', b'{"a": 1001}', b'{"a": 1001, "b": "x"}', b'{"a": 7}']
    assert matcher.match(payloads) == [
        frozenset(),
        frozenset({LYON}),
        frozenset({LYON, BONN}),
        frozenset({BONN}),
    ]
    matcher.change(LYON, exact("a = 1000"))
    matcher.change(BONN, None)
    assert matcher.match(payloads) == [frozenset({LYON}), *[frozenset[str]()] * 3]


def test_encoded_members_are_found_beside_them() -> None:
    matcher = MemberMatcher()
    summary = PredicateSummary()
    summary.add(1, parse("symbol = 'ABC'").clauses)
    matcher.change(LYON, summary.encode())
    matcher.change(BONN, exact("price > 5"))
    matcher.change(OSLO, EVERYTHING)
    assert matcher.match([b'{"symbol": "ABC", "price": 6}', b'{"symbol": "XYZ", "price": 5}']) == [
        frozenset({LYON, BONN, OSLO}),
        frozenset({OSLO}),
    ]


def test_event_that_cannot_be_read_is_for_everybody() -> None:
    matcher = MemberMatcher()
    matcher.change(LYON, exact("a = 1"))
    matcher.change(BONN, exact("a = 2"))
    assert matcher.match([b'{"a": 1}', b"{", b'{"a": 2}']) == [
        frozenset({LYON}),
        frozenset({LYON, BONN}),
        frozenset({BONN}),
    ]
