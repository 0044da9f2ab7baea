"""Which categories a clause asks for."""

import pytest
from hypothesis import given, settings, strategies as st

from culver.matching.encoded.constraint_options import category_sets
from culver.matching.encoded.forms import categories_of_event
from culver.model.event import Event
from culver.model.language import Between, constraint_holds_for_value, matching_clause, parse
from culver.model.values import Timestamp, Value, domain_of
from support.events import events
from support.filters import filter_texts


def described(text: str, encoding: str = "cells") -> list[str]:
    """Each set of each clause, as sorted texts of its categories."""
    return [
        " + ".join(sorted(form.text if value is None else f"{form.text}={value!r}" for form, value in each))
        for clause in parse(text).clauses
        for each in sorted(category_sets(clause, encoding), key=repr)
    ]


@pytest.mark.parametrize(
    ("text", "cells", "paper"),
    [
        ("stock = 'XYZ' AND price > 20",
         ["equal:string:stock=b'XYZ' + least:number:price:25"],
         ["equal:string:stock=b'XYZ' + exists:number:price"]),
        ("x = 5.0", ["equal:number:x=5"], ["equal:number:x=5"]),
        ("x = 0.5", ["equal:number:x=0.5"], ["equal:number:x=0.5"]),
        ("x IN (1, 2)", ["equal:number:x=1", "equal:number:x=2"], ["equal:number:x=1", "equal:number:x=2"]),
        ("x <> 1", ["exists:number:x"], ["exists:number:x"]),
        ("f", ["equal:boolean:f=1"], ["equal:boolean:f=1"]),
        ("NOT f", ["equal:boolean:f=0"], ["equal:boolean:f=0"]),
        ("x BETWEEN 10 AND 19", ["cell:number:x:4=0", "cell:number:x:4=1"], ["exists:number:x"]),
        ("x >= 16 AND x < 32", ["cell:number:x:4=1"], ["exists:number:x"]),
        ("x > -3 AND x < 1e300", ["least:number:x:-23"], ["exists:number:x"]),
        ("x < -3", ["most:number:x:-22"], ["exists:number:x"]),
        ("x < 1e300", ["exists:number:x"], ["exists:number:x"]),
        ("at = TIMESTAMP '1970-01-01T00:00:01Z'", ["equal:timestamp:at=1000000"], ["equal:timestamp:at=1000000"]),
        ("at > TIMESTAMP '1970-01-01T00:00:01Z'", ["exists:timestamp:at"], ["exists:timestamp:at"]),
        ("at BETWEEN TIMESTAMP '1970-01-01T00:00:01Z' AND TIMESTAMP '1970-01-01T00:00:02Z'",
         ["cell:timestamp:at:20=0", "cell:timestamp:at:20=1"], ["exists:timestamp:at"]),
        ("s LIKE 'abc%'", ["prefix:string:s:2=b'ab'"], ["exists:string:s"]),
        ("s LIKE '%abcde'", ["suffix:string:s:4=b'bcde'"], ["exists:string:s"]),
        ("s LIKE '%abc%'", ["exists:string:s"], ["exists:string:s"]),
        ("s LIKE 'a_c%de'", ["prefix:string:s:1=b'a' + suffix:string:s:2=b'de'"], ["exists:string:s"]),
        ("s NOT LIKE 'abc%'", ["exists:string:s"], ["exists:string:s"]),
        ("s >= 'ab' AND s < 'ac'", ["prefix:string:s:2=b'ab'"], ["exists:string:s"]),
        ("s BETWEEN 'abx' AND 'aby'", ["prefix:string:s:2=b'ab'"], ["exists:string:s"]),
        ("s > 'b'", ["exists:string:s"], ["exists:string:s"]),
        ("'red' IN tags", ["holds:list:tags=b'red'"], ["holds:list:tags=b'red'"]),
        ("NOT ('red' IN tags)", ["exists:list:tags"], ["exists:list:tags"]),
        ("x IS NOT NULL", ["exists:any:x"], ["exists:any:x"]),
        ("x IS NULL", [""], [""]),
        ("x IS NULL AND y = 1", ["equal:number:y=1"], ["equal:number:y=1"]),
        ("x < y", ["exists:any:x + exists:any:y"], ["exists:any:x + exists:any:y"]),
        ("x + y > 3", ["exists:number:x + exists:number:y"], ["exists:number:x + exists:number:y"]),
        ("TRUE", [""], [""]),
        ("FALSE", [], []),
    ],
)  # fmt: skip
def test_constraints_become_categories(text: str, cells: list[str], paper: list[str]) -> None:
    assert described(text) == cells
    assert described(text, "paper") == paper


def test_many_alternatives_become_existence() -> None:
    values = ", ".join(map(str, range(17)))
    assert described(f"x IN ({values})") == ["exists:number:x"]
    assert len(described("x IN (1, 2, 3, 4) AND y IN (1, 2, 3, 4)")) == 16
    assert len(described("x IN (1, 2, 3, 4) AND y IN (1, 2, 3, 4, 5)")) == 4


@settings(max_examples=250, deadline=None, derandomize=True)
@given(filter_texts(), st.lists(events(), min_size=1, max_size=5), st.sampled_from(["cells", "paper"]))
def test_an_event_that_satisfies_a_clause_has_all_categories_of_a_set(
    text: str, drawn: list[Event], encoding: str
) -> None:
    predicate = parse(text)
    for event in drawn:
        place = matching_clause(predicate, event)
        if place is not None:
            sets = category_sets(predicate.clauses[place], encoding)
            forms = {form for each in sets for form, _ in each}
            own = set(categories_of_event(event, forms))
            assert any(each <= own for each in sets)


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-300, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-300, 300),
    st.builds(lambda sign, power: sign * 2.0**power, st.sampled_from([-1, 1]), st.integers(-30, 90)),
)
texts = st.text(st.sampled_from("abé\U0001f600"), max_size=5)
moments = st.integers(-(2**40), 2**50).map(Timestamp)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.one_of(*(st.tuples(each, each, each) for each in (numbers, texts, moments))),
    st.booleans(),
    st.booleans(),
)
def test_whatever_lies_in_a_range_has_a_category_of_it(
    drawn: tuple[Value, Value, Value], low_closed: bool, high_closed: bool
) -> None:
    low, value, high = sorted(drawn)
    for bounds in ((low, high), (low, None), (None, high)):
        if low == high and None not in bounds:
            continue
        interval = Between("x", domain_of(low), bounds[0], low_closed, bounds[1], high_closed)
        for inside in (value, low, high):
            if constraint_holds_for_value(interval, inside):
                sets = category_sets((interval,), "cells")
                own = set(
                    categories_of_event(Event({}, {"x": inside}, b"{}"), {f for s in sets for f, _ in s})
                )
                assert any(each <= own for each in sets)
