import math

import pytest
from hypothesis import given, strategies as st

from culver.overlay.clusters.layout.cluster_count import (
    WORTHWHILE_GAIN,
    MeasuredTraffic,
    best_count,
    expected_traffic,
    revise,
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
def test_revisions_come_to_rest_near_the_least_traffic(current: int, measured: MeasuredTraffic) -> None:
    for _ in range(60):
        following = revise(current, measured)
        assert 1 <= following <= measured.brokers
        if following == current:
            break
        current = following
    assert revise(current, measured) == current
    least = expected_traffic(best_count(measured), measured)
    assert (1 - WORTHWHILE_GAIN) * expected_traffic(current, measured) <= least * (1 + 1e-9)


def test_a_small_gain_changes_nothing_and_a_large_one_little_at_a_time() -> None:
    measured = MeasuredTraffic(100, 50, 0.5, 100)
    assert revise(11, measured) == 11
    assert revise(40, measured) == 30
    assert revise(1, measured) == 2


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
