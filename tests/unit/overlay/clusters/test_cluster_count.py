import math

import pytest
from hypothesis import given, strategies as st

from culver.overlay.clusters.layout.cluster_count import (
    WORTHWHILE_GAIN,
    MeasuredTraffic,
    best_count,
    expected_traffic,
    revise,
    usual_power,
)

MEASURED = st.builds(
    MeasuredTraffic,
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.floats(0, 1),
    st.integers(1, 120),
)


@given(MEASURED)
def test_no_other_number_of_clusters_has_less_traffic(measured: MeasuredTraffic) -> None:
    best = expected_traffic(best_count(measured), measured)
    sweep = [expected_traffic(clusters, measured) for clusters in range(1, measured.brokers + 1)]
    assert best == pytest.approx(min(sweep))


def test_the_root_has_the_number_of_brokers_under_it() -> None:
    measured = MeasuredTraffic(publications=100, subscriptions=50, matching_ratio=0.5, brokers=100)
    assert best_count(measured) == 10 == math.sqrt(50 * 100 / (100 * 0.5))


@pytest.mark.parametrize(
    ("publications", "subscriptions", "ratio", "expected"),
    [
        (0, 5, 0.5, 100),
        (5, 0, 0.5, 1),
        (5, 5, 1.0, 100),
        (0, 0, 0.0, 1),
        (1, 1e9, 0.0, 100),
        (1e9, 1, 0.0, 1),
    ],
)
def test_the_number_stays_within_one_and_all_brokers(
    publications: float, subscriptions: float, ratio: float, expected: int
) -> None:
    assert best_count(MeasuredTraffic(publications, subscriptions, ratio, 100)) == expected


@given(st.integers(1, 120), MEASURED)
def test_a_revision_takes_the_best_power_of_two_unless_that_saves_little(
    current: int, measured: MeasuredTraffic
) -> None:
    powers = [2**place for place in range(7) if 2**place <= measured.brokers]
    least = min(expected_traffic(power, measured) for power in powers)
    revised = revise(current, measured)
    assert revised in powers
    assert (1 - WORTHWHILE_GAIN) * expected_traffic(revised, measured) <= least * (1 + 1e-9)
    assert revise(revised, measured) == revised


def test_a_small_gain_changes_nothing() -> None:
    measured = MeasuredTraffic(100, 50, 0.5, 100)
    assert [revise(current, measured) for current in (2, 4, 8, 10, 16, 32)] == [8, 4, 8, 8, 16, 8]


def test_nobody_moves_for_nothing_where_nothing_is_measured() -> None:
    assert [usual_power(0, sites) for sites in (1, 4, 9, 30, 100, 200)] == [1, 2, 4, 4, 8, 16]
    assert [usual_power(current, 100) for current in (2, 5, 8, 10, 16, 32)] == [8, 8, 8, 8, 16, 8]


@pytest.mark.parametrize(
    "measured",
    [
        MeasuredTraffic(math.nan, 1, 0.5, 10),
        MeasuredTraffic(1, -1, 0.5, 10),
        MeasuredTraffic(1, math.inf, 0.5, 10),
        MeasuredTraffic(1, 1, 1.5, 10),
    ],
)
def test_measurements_that_make_no_sense_are_refused(measured: MeasuredTraffic) -> None:
    with pytest.raises(ValueError, match="make no sense"):
        best_count(measured)
