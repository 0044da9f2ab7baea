"""The rates and shares that two observations of a site come to."""

import pytest

from culver.control.site_observation import rates_between
from support.observations import observation


def test_rates_are_differences_over_the_sites_own_time() -> None:
    view = rates_between(observation(10.0, 1), observation(12.0, 2))
    assert view.interval_seconds == 2.0
    assert (view.published_per_second, view.matched_per_second) == (1_000, 500)
    assert (view.notifications_per_second, view.sent_per_second) == (6_000, 50)
    access, matching, exit_point = view.operators
    assert (access.events_per_second, matching.pairs_per_second) == (1_000, 6_000)
    assert (access.busy, matching.busy, exit_point.busy) == pytest.approx((0.05, 0.2, 0.15))
    assert matching.seconds_per_event == pytest.approx(0.0002)
    assert (view.files_per_second, view.written_bytes_per_second) == (1.5, 3_000_000)
    assert view.workers == 2


def test_slices_have_their_shares_of_the_interval() -> None:
    first, second = rates_between(observation(10.0, 1), observation(11.0, 3)).slices
    assert (first.events_share, first.pairs_share, first.busy_share) == pytest.approx((0.5, 0.25, 0.25))
    assert second.registrations_share == pytest.approx(2 / 3)
    assert second.bytes == 8_000


def test_percentiles_are_of_the_batches_in_the_interval_only() -> None:
    batches = rates_between(observation(10.0, 1), observation(12.0, 2)).batches
    assert (batches.per_second, batches.events_p50, batches.events_p99) == (1.5, 20, 30)
    assert (batches.seconds_p50, batches.seconds_p99) == pytest.approx((0.02, 0.03))
    assert rates_between(observation(10.0, 1), observation(12.0, 1)).batches.seconds_p50 is None


def test_site_that_was_started_in_between_is_seen_from_its_start() -> None:
    view = rates_between(observation(900.0, 50), observation(2.0, 1))
    assert (view.interval_seconds, view.notifications_per_second) == (2.0, 6_000)
    assert (view.published_per_second, view.matched_per_second) == (0, 0)
