"""Interval compilation against exact comparison in Python."""

import math
import random

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from culver.matching.index.compile.key_lines import (
    HIGHEST_KEY,
    LOWEST_KEY,
    KeyLine,
    after_prefix,
    lower_keys,
    move_string_bounds,
    number_intervals,
    number_lines,
    real_key,
    real_keys,
    string_interval,
    upper_keys,
    used_literals,
)

MAX_REAL = math.nextafter(math.inf, 0.0)
EDGES: list[int | float] = [
    *(sign * 2**power + step for power in (0, 52, 53, 54, 62, 63, 64) for sign in (-1, 1) for step in (-1, 0, 1)),
    0.0, -0.0, 0.5, -0.5, 1.5, 5e-324, -5e-324, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e300, -1e300,
    MAX_REAL, -MAX_REAL, math.nextafter(2.0**63, 0.0), 10**400, -(10**400),
]  # fmt: skip

numbers = st.one_of(
    st.sampled_from(EDGES),
    st.integers(LOWEST_KEY, HIGHEST_KEY),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**54), 2**54).map(float),
)
event_integers = numbers.filter(lambda n: isinstance(n, int) and LOWEST_KEY <= n <= HIGHEST_KEY)
event_reals = numbers.filter(lambda n: isinstance(n, float))


def near(value: int | float) -> list[int | float]:
    """The value, its neighbours, and the number of the other type beside it."""
    try:
        real = float(value)
    except OverflowError:
        real = MAX_REAL if value > 0 else -MAX_REAL
    integer = int(value)
    reals = [real, math.nextafter(real, math.inf), math.nextafter(real, -math.inf)]
    candidates = [*reals, *(integer + step for step in (-2, -1, 0, 1, 2))]
    return [
        n
        for n in candidates
        if (math.isfinite(n) if isinstance(n, float) else LOWEST_KEY <= n <= HIGHEST_KEY)
    ]


def inside(value: int | float, intervals: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    low, high = intervals[isinstance(value, float)]
    return low <= (real_key(value) if isinstance(value, float) else value) <= high


def holds(
    value: int | float, low: int | float | None, low_closed: bool, high: int | float | None, high_closed: bool
) -> bool:
    above = low is None or value > low or (low_closed and value == low)
    return above and (high is None or value < high or (high_closed and value == high))


@pytest.mark.slow(seconds=3)
@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    low=st.none() | numbers,
    low_closed=st.booleans(),
    high=st.none() | numbers,
    high_closed=st.booleans(),
    others=st.lists(event_integers | event_reals, max_size=4),
)
@example(low=2**53 + 1, low_closed=False, high=None, high_closed=False, others=[2**53 + 1])
@example(low=-0.0, low_closed=False, high=0.0, high_closed=True, others=[0.0, -0.0, 0])
@example(low=MAX_REAL, low_closed=False, high=None, high_closed=False, others=[MAX_REAL, HIGHEST_KEY])
def test_an_interval_holds_exactly_what_its_bounds_allow(
    low: int | float | None,
    low_closed: bool,
    high: int | float | None,
    high_closed: bool,
    others: list[int | float],
) -> None:
    intervals = number_intervals(low, low_closed, high, high_closed)
    for low_key, high_key in intervals:
        assert LOWEST_KEY <= low_key <= HIGHEST_KEY
        assert LOWEST_KEY <= high_key <= HIGHEST_KEY
    candidates = [*others, *EDGES, *([] if low is None else near(low)), *([] if high is None else near(high))]
    for value in candidates:
        if isinstance(value, int) and not LOWEST_KEY <= value <= HIGHEST_KEY:
            continue
        assert inside(value, intervals) is holds(value, low, low_closed, high, high_closed), value


def on_lines(value: int | float, lines: list[tuple[KeyLine, tuple[int, int]]]) -> bool:
    """Whether the value's key lies in one of the intervals, as events are given keys."""
    for line, (low, high) in lines:
        if line is KeyLine.NUMBERS or (line is KeyLine.REALS and isinstance(value, float)):
            key = real_key(float(value))
        elif line is KeyLine.INTEGERS and isinstance(value, int):
            key = value
        else:
            continue
        if low <= key <= high:
            return True
    return False


def test_a_point_holds_exactly_its_equals() -> None:
    for value in EDGES:
        point = number_lines(value, True, value, True)
        for other in (each for edge in EDGES for each in near(edge)):
            assert on_lines(other, point) is (other == value), (value, other)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(low=st.none() | numbers, low_closed=st.booleans(), high=st.none() | numbers, high_closed=st.booleans())
def test_lines_hold_exactly_what_their_bounds_allow(
    low: int | float | None, low_closed: bool, high: int | float | None, high_closed: bool
) -> None:
    lines = number_lines(low, low_closed, high, high_closed)
    edges = [each for bound in (low, high, *EDGES) if bound is not None for each in near(bound)]
    for value in edges:
        assert on_lines(value, lines) is holds(value, low, low_closed, high, high_closed), value


@settings(derandomize=True)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2))
def test_keys_of_reals_keep_their_order(pair: list[float]) -> None:
    first, second = pair
    assert (real_key(first) < real_key(second)) is (first < second)
    assert (real_key(first) == real_key(second)) is (first == second)


def test_keys_of_an_array_are_those_of_its_members() -> None:
    values = np.array([n for n in EDGES if isinstance(n, float)])
    assert real_keys(values).tolist() == [real_key(value) for value in values.tolist()]


@settings(derandomize=True)
@given(st.text(min_size=1), st.text())
def test_everything_with_a_prefix_lies_below_its_end_and_nothing_else_between(
    prefix: str, other: str
) -> None:
    start = prefix.encode()
    for text in (other, prefix + other):
        assert (start <= text.encode() < after_prefix(start)) is text.startswith(prefix)


def test_string_bounds_keep_their_meaning_when_literals_move() -> None:
    rng = random.Random(7)
    words = sorted({"".join(rng.choices("abc", k=rng.randrange(4))) for _ in range(40)})
    kept, probes = words[::3], words
    place = {word: i for i, word in enumerate(words)}
    moved = np.array([place[word] for word in kept])
    for _ in range(300):
        low, high = (rng.choice([None, *range(len(kept))]) for _ in range(2))
        closed = rng.random() < 0.5, rng.random() < 0.5
        interval = string_interval(low, closed[0], high, closed[1])
        lows, highs = move_string_bounds(np.array([interval[0]]), np.array([interval[1]]), moved)
        for word in probes:
            above = low is None or word > kept[low] or (closed[0] and word == kept[low])
            below = high is None or word < kept[high] or (closed[1] and word == kept[high])
            assert (lows[0] <= 2 * place[word] + 1 <= highs[0]) == (above and below)
        used = used_literals(np.array([interval[0]]), np.array([interval[1]]))
        assert set(used.tolist()) == {low, high} - {None}


def test_many_bounds_become_the_same_keys_as_one() -> None:
    bounds = [float(n) for edge in EDGES for n in near(edge) if -(2**53) < n < 2**53]
    for closed in (True, False):
        lows = [number_intervals(bound, closed, None, False)[1][0] for bound in bounds]
        highs = [number_intervals(None, False, bound, closed)[1][1] for bound in bounds]
        both = np.full(len(bounds), closed)
        assert lower_keys(np.array(bounds), both).tolist() == lows
        assert upper_keys(np.array(bounds), closed).tolist() == highs
    nothing = np.array([math.nan])
    assert (lower_keys(nothing, True)[0], upper_keys(nothing, True)[0]) == (LOWEST_KEY, HIGHEST_KEY)
