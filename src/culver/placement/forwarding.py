"""Forwarding: which of its candidates gets an event (section III-B of BlueDove's paper).

A placement leaves choices open: any one of an event's candidate sets gives the whole answer. A policy chooses one,
from what the slices last reported:

    adaptive             the one that costs least, counting the work that waits at its slice now
    response-time        the one that answered quickest in the last report
    subscription-count   the one with the fewest registrations
    random               any, by a hash of the event's number

Policies are pure: they have no clock, and no memory between calls. The same arguments give the same choice in every
process, so each task of a batch works out for itself what all the others do.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from culver.jit import Integers, Reals
from culver.placement.forwarding_kernels import PackedChoices, choose_cheapest, choose_hashed
from culver.placement.placement import ChosenSets

# An event waits for so many events of average cost rather than cost e times as much.
_PATIENCE = 10.0
_ROOT_OF_HALF, _LN_2 = 0.7071067811865476, 0.6931471805599453
# The last power of the logarithm's series; the next is below the last bit.
_LAST_POWER = 19
# For each registration that an event is matched against, before anything is measured.
_GUESSED_SECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class SetLoad:
    """The last report about the sets; arrays go by set number. A set that is anywhere has the sums over all slices.

    homes            the slice that works on the set, or ANYWHERE
    registrations    how many registrations the set has
    queue            events that wait for it
    arrival          events that came in a second
    rate             events in a second while its slice works on nothing else; 0: not measured
    response         seconds from an event's arrival to its answer, as last measured
    """

    homes: Integers
    slices: int
    registrations: Integers
    queue: Reals
    arrival: Reals
    rate: Reals
    response: Reals


class Forwarding(ABC):
    name: ClassVar[str]

    def choose(
        self, load: SetLoad, choices: Sequence[Integers], seconds: Reals, first: int = 0
    ) -> ChosenSets:
        """Choose a set for each event in each choice of a route. `choices` are arrays (events, candidates). `seconds`
        says how long after the report each event is decided on, ascending; `first` is the number of the first event.

        A set that is anywhere goes to a slice that the event goes to anyway, or else to one that the policy takes."""
        starts = np.cumsum([0, *(choice.shape[1] for choice in choices)], dtype=np.int64)
        candidates = choices[0] if len(choices) == 1 else np.concatenate(choices, axis=1)
        sets, slices = np.empty((2, len(choices), len(seconds)), np.int64)
        packed = PackedChoices(np.ascontiguousarray(candidates, np.int64), starts, sets, slices)
        self._choose(load, packed, seconds, first)
        return ChosenSets(tuple(sets), tuple(slices))

    @abstractmethod
    def _choose(self, load: SetLoad, choices: PackedChoices, seconds: Reals, first: int) -> None:
        """Fill in the sets and slices."""


class RandomForwarding(Forwarding):
    name: ClassVar[str] = "random"

    def _choose(self, load: SetLoad, choices: PackedChoices, seconds: Reals, first: int) -> None:
        choose_hashed(choices, load.homes, load.slices, first)


class SubscriptionCountForwarding(Forwarding):
    """Good as long as every slice keeps up: it ignores queues, and that the sets of one slice compete."""

    name: ClassVar[str] = "subscription-count"

    def _choose(self, load: SetLoad, choices: PackedChoices, seconds: Reals, first: int) -> None:
        _choose_least(load, load.registrations.astype(np.float64), choices, seconds, first)


class ResponseTimeForwarding(Forwarding):
    """Takes the report as it is until the next one, so all events in between go to the same places."""

    name: ClassVar[str] = "response-time"

    def _choose(self, load: SetLoad, choices: PackedChoices, seconds: Reals, first: int) -> None:
        _choose_least(load, load.response, choices, seconds, first)


class AdaptiveForwarding(Forwarding):
    """Takes the candidate with the least work waiting at its slice now, and the least price. All sets of a slice
    compete for the slice's time.

    The paper extrapolates each queue, q + (arrival - rate) (t - t'), and takes the least (q + 1) / rate. Here a slice
    has seconds of work, the sum of queue / rate over its sets. It works off one second of them in a second, and gets
    those of each event that is sent to it meanwhile. What is sent is known exactly, so it replaces the arrivals: the
    reported arrival rate would send all events of one batch to the same place.

    The cost of matching the event there is added, and a price for being costly, which the paper does not have:

        work + cost + PATIENCE * mean cost * ln(cost)

    Without the price, slices stay equally busy because events go where they cost ten times as much. With it, a slice
    that others could replace only at a high cost has more work waiting than they have, and events that can go
    elsewhere avoid it. That is near the highest rate that any policy can reach, and the slices of one batch finish
    together. Simulated on W1, 20 slices, equal cuts, time in proportion to the set searched, events/s:

                       at saturation    in one batch
        work + cost           10,500          14,100
        the paper's           15,800          12,800
        this                  18,600          18,200

    `share` is the part of all events that this dispatcher decides on. What it sends counts 1 / share times, because
    the other dispatchers do the same with the rest.
    """

    name: ClassVar[str] = "adaptive"

    def __init__(self, share: float = 1.0) -> None:
        self._echo = 1.0 / share

    def _choose(self, load: SetLoad, choices: PackedChoices, seconds: Reals, first: int) -> None:
        cost = seconds_each(load)
        work, free = _by_slice(load, load.queue * cost), np.zeros(load.slices)
        choose_cheapest(choices, load.homes, _prices(cost), free, self._echo * cost, work, seconds, first)


def seconds_each(load: SetLoad) -> Reals:
    """The seconds that one event takes in each set. Sets that are not measured are estimated by their size."""
    measured = load.rate > 0
    cost = np.zeros(len(load.rate))
    cost[measured] = 1.0 / load.rate[measured]
    if measured.all():
        return cost
    registrations = load.registrations[measured].sum()
    each = cost[measured].sum() / registrations if registrations else _GUESSED_SECONDS
    cost[~measured] = each * load.registrations[~measured]
    return cost


def _prices(cost: Reals) -> Reals:
    """The price of each set in seconds; the lowest is that of sets where an event costs nothing."""
    some = cost > 0
    if not some.any():
        return cost
    logarithms = np.full(len(cost), -np.inf)
    logarithms[some] = logarithm(cost[some])
    prices: Reals = cost + _PATIENCE * cost[some].mean() * logarithms
    return prices


def logarithm(values: Reals) -> Reals:
    """The logarithm of positive, finite values, the same to the last bit on every machine. NumPy's own depends on the
    processor, and two tasks that differ in one bit may both leave an event to the other. This one uses only sums,
    products and quotients: ln(m) = 2 artanh((m - 1) / (m + 1)), as a series."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < _ROOT_OF_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    share = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = share * share, np.zeros(len(values))
    for power in range(_LAST_POWER, 0, -2):
        series = series * square + 1.0 / power
    result: Reals = (exponent - low) * _LN_2 + 2.0 * share * series
    return result


def _by_slice(load: SetLoad, values: Reals) -> Reals:
    """The sum over the sets of each slice; sets that are anywhere count in equal parts."""
    placed = load.homes >= 0
    sums = np.bincount(load.homes[placed], values[placed], load.slices).astype(np.float64)
    sums += values[~placed].sum() / load.slices
    return sums


def _choose_least(load: SetLoad, values: Reals, choices: PackedChoices, seconds: Reals, first: int) -> None:
    """Choose the set with the least value, whatever waits there."""
    no_cost, no_work = np.zeros(len(values)), np.zeros(load.slices)
    choose_cheapest(choices, load.homes, values, _by_slice(load, values), no_cost, no_work, seconds, first)
