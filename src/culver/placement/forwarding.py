"""Forwarding: which of its candidates gets an event (section III-B of BlueDove's paper).

A placement leaves choices open: any one of an event's candidate sets gives the whole answer. A policy chooses one,
from what the slices last reported:

    adaptive             the one that costs least, counting the work that waits at its slice now
    response-time        the one that answered quickest in the last report
    subscription-count   the one with the fewest registrations
    random               any, by a hash of the event's number

    reported                                      decided
    slice 0   queue, arrival and rate of          event 0, 0.00 s later    slice 0
              each of its sets                    event 1, 0.02 s later    slice 2
    slice 1   ...                                 event 2, 0.02 s later    slice 0 (which has done some by now)

Policies are pure: they have no clock, and no memory between calls. The same arguments give the same choice in every
process, so each task of a batch works out for itself what all the others do.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from culver.placement import forwarding_kernels as kernels
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

    homes: NDArray[np.int64]
    slices: int
    registrations: NDArray[np.int64]
    queue: NDArray[np.float64]
    arrival: NDArray[np.float64]
    rate: NDArray[np.float64]
    response: NDArray[np.float64]


class Forwarding(Protocol):
    name: ClassVar[str]

    def choose(
        self,
        load: SetLoad,
        choices: Sequence[NDArray[np.int64]],
        seconds: NDArray[np.float64],
        first: int = 0,
    ) -> ChosenSets:
        """Choose a set for each event in each choice of a route. `choices` are arrays (events, candidates). `seconds`
        says how long after the report each event is decided on, ascending; `first` is the number of the first event.

        A set that is anywhere goes to a slice that the event goes to anyway, or else to one that the policy takes."""


class _Policy(ABC):
    """The part that all policies share: `_take` fills in the sets and slices that kernels choose."""

    def choose(
        self,
        load: SetLoad,
        choices: Sequence[NDArray[np.int64]],
        seconds: NDArray[np.float64],
        first: int = 0,
    ) -> ChosenSets:
        widths = [choice.shape[1] for choice in choices]
        starts = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])
        events = len(seconds)
        side_by_side = [np.empty((events, 0), np.int64), *choices]
        packed = choices[0] if len(choices) == 1 else np.concatenate(side_by_side, axis=1)
        sets, slices = np.empty((2, len(choices), events), np.int64)
        packed = np.ascontiguousarray(packed, np.int64)
        self._take(load, _Packed(packed, starts, sets, slices), seconds, first)
        return ChosenSets(tuple(sets), tuple(slices))

    @abstractmethod
    def _take(self, load: SetLoad, packed: "_Packed", seconds: NDArray[np.float64], first: int) -> None: ...


class _Packed(NamedTuple):
    """Choices as kernels take them, and arrays for the chosen sets and slices."""

    candidates: NDArray[np.int64]
    starts: NDArray[np.int64]
    sets: NDArray[np.int64]
    slices: NDArray[np.int64]


class RandomForwarding(_Policy):
    name: ClassVar[str] = "random"

    def _take(self, load: SetLoad, packed: _Packed, seconds: NDArray[np.float64], first: int) -> None:
        candidates, starts, sets, slices = packed
        kernels.choose_hashed(candidates, starts, load.homes, load.slices, first, sets, slices)


class SubscriptionCountForwarding(_Policy):
    """Good as long as every slice keeps up: it ignores queues, and that the sets of one slice compete."""

    name: ClassVar[str] = "subscription-count"

    def _take(self, load: SetLoad, packed: _Packed, seconds: NDArray[np.float64], first: int) -> None:
        _take_least(load, load.registrations.astype(np.float64), packed, first)


class ResponseTimeForwarding(_Policy):
    """Takes the report as it is until the next one, so all events in between go to the same places."""

    name: ClassVar[str] = "response-time"

    def _take(self, load: SetLoad, packed: _Packed, seconds: NDArray[np.float64], first: int) -> None:
        _take_least(load, load.response, packed, first)


class AdaptiveForwarding(_Policy):
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

    def _take(self, load: SetLoad, packed: _Packed, seconds: NDArray[np.float64], first: int) -> None:
        candidates, starts, sets, slices = packed
        cost = seconds_each(load)
        work = _by_slice(load, load.queue * cost)
        kernels.choose_adaptive(
            candidates,
            starts,
            load.homes,
            cost,
            _prices(cost),
            work,
            seconds,
            self._echo,
            first,
            sets,
            slices,
        )


def seconds_each(load: SetLoad) -> NDArray[np.float64]:
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


def _prices(cost: NDArray[np.float64]) -> NDArray[np.float64]:
    """The price of each set in seconds; the lowest is that of sets where an event costs nothing."""
    some = cost > 0
    if not some.any():
        return cost
    logarithms = np.full(len(cost), -np.inf)
    logarithms[some] = logarithm(cost[some])
    prices: NDArray[np.float64] = cost + _PATIENCE * cost[some].mean() * logarithms
    return prices


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
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
    result: NDArray[np.float64] = (exponent - low) * _LN_2 + 2.0 * share * series
    return result


def _by_slice(load: SetLoad, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the sets of each slice; sets that are anywhere count in equal parts."""
    placed = load.homes >= 0
    sums = np.bincount(load.homes[placed], values[placed], load.slices).astype(np.float64)
    sums += values[~placed].sum() / load.slices
    return sums


def _take_least(load: SetLoad, values: NDArray[np.float64], packed: _Packed, first: int) -> None:
    candidates, starts, sets, slices = packed
    kernels.choose_least(candidates, starts, load.homes, values, _by_slice(load, values), first, sets, slices)
