"""How many clusters cost the least traffic (section 3.2 of the paper).

Equation 1 counts the messages among n brokers in m clusters, for p publications that r n brokers want, and s
subscriptions:

    traffic(m) = p [(m - 1) + r (n - m)] + s (n / m - 1)

Its derivative p (1 - r) - s n / m^2 is zero at m = sqrt(s n / (p (1 - r))), and its second derivative 2 s n / m^3 is
positive, so this is the minimum. The paper prints the root so that n may stand beside it: calculus says that n is
under the root. A sweep over all m from 1 to n agrees: the best m is always one of the two whole numbers around the
root, and `best_count` takes the cheaper of them (`test_cluster_count`). Without publications, or where everybody
wants all of them, more clusters only save subscriptions: m = n. Without subscriptions, m = 1.
"""

import math
from typing import NamedTuple

WORTHWHILE_GAIN = 0.1
"""The share of the traffic that a new number of clusters must save: every change moves brokers and their
subscriptions."""


class MeasuredTraffic(NamedTuple):
    """`publications` and `subscriptions` of the same period, counts or rates. `matching_ratio` is the share of
    brokers that want a publication, from 0 to 1."""

    publications: float
    subscriptions: float
    matching_ratio: float
    brokers: int


def expected_traffic(clusters: int, measured: MeasuredTraffic) -> float:
    """Equation 1: messages between brokers."""
    publications, subscriptions, ratio, brokers = measured
    ring = clusters - 1
    return publications * (ring + ratio * (brokers - clusters)) + subscriptions * (brokers / clusters - 1)


def best_count(measured: MeasuredTraffic) -> int:
    """The number of clusters with the least expected traffic, from 1 to the number of brokers.

    :raises ValueError: a measurement is negative, not finite or, for the ratio, above 1.
    """
    _check(measured)
    publications, subscriptions, ratio, brokers = measured
    if brokers <= 1 or subscriptions == 0:
        return 1
    saved = publications * (1 - ratio)
    root = math.sqrt(subscriptions * brokers / saved) if saved > 0 else math.inf
    if root >= brokers:
        return brokers
    below = max(1, math.floor(root))
    return min(below, below + 1, key=lambda clusters: expected_traffic(clusters, measured))


def revise(current: int, measured: MeasuredTraffic) -> int:
    """The number of clusters to have next: a power of two, so that few different layouts are in use, and each divides
    the clusters of the one before it.

    A `current` power of two stays unless another one saves more than `WORTHWHILE_GAIN`.

    :raises ValueError: as in `best_count`.
    """
    _check(measured)
    powers = [1]
    while 2 * powers[-1] <= measured.brokers:
        powers.append(2 * powers[-1])
    best = min(powers, key=lambda clusters: expected_traffic(clusters, measured))
    if current not in powers:
        return best
    now, then = expected_traffic(current, measured), expected_traffic(best, measured)
    return best if then < (1 - WORTHWHILE_GAIN) * now else current


def usual_count(brokers: int) -> int:
    """The number of clusters where nothing is measured: about the square root of the number of brokers."""
    return max(1, round(math.sqrt(brokers)))


def usual_power(current: int, brokers: int) -> int:
    """The power of two that is near `usual_count`; the `current` one, if that is not far from it."""
    root = usual_count(brokers)
    if current > 0 and not current & (current - 1) and root / 2 <= current <= 2 * root:
        return current
    return 1 << round(math.log2(root))


def _check(measured: MeasuredTraffic) -> None:
    publications, subscriptions, ratio, brokers = measured
    if not (
        0 <= publications < math.inf and 0 <= subscriptions < math.inf and 0 <= ratio <= 1 and brokers >= 0
    ):
        raise ValueError(f"these measurements make no sense: {measured}")
