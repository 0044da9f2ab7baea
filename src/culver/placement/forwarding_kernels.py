"""The inner loops of `forwarding`: event by event, up to 10 ns a candidate.

The first of several equal candidates is taken, and successive events begin to look at different ones.
"""

from typing import NamedTuple

import numpy as np

from culver.jit import Integers, Reals, compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_MIX_AGAIN = np.uint64(0x94D049BB133111EB)


class PackedChoices(NamedTuple):
    """The candidates of each event in a row, -1 behind the last of a choice: choice c has the columns starts[c] to
    starts[c + 1]. Kernels fill in the chosen sets and slices, both (choices, events)."""

    candidates: Integers
    starts: Integers
    sets: Integers
    slices: Integers


@compiled
def _hash(number: int, salt: int) -> int:
    """A hash below 2^31 (SplitMix64's finaliser)."""
    mixed = np.uint64(number) * _GOLDEN + np.uint64(salt + 1) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_AGAIN
    mixed = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(33)
    return int(mixed)


@compiled
def _count(candidates: Integers, event: int, start: int, end: int) -> int:
    count = 0
    while start + count < end and candidates[event, start + count] >= 0:
        count += 1
    return count


@compiled
def _slice_besides(slices: Integers, event: int) -> int:
    """A slice that the event goes to anyway; -1: none yet."""
    for choice in range(len(slices)):
        if slices[choice, event] >= 0:
            return int(slices[choice, event])
    return -1


@compiled
def choose_hashed(choices: PackedChoices, homes: Integers, count: int, first: int) -> None:
    """Take each candidate with the same probability, by a hash of the event's number."""
    candidates, starts, sets, slices = choices
    for event in range(len(candidates)):
        anywhere = False
        for choice in range(len(starts) - 1):
            number = _count(candidates, event, starts[choice], starts[choice + 1])
            if number == 0:
                sets[choice, event] = slices[choice, event] = -1
                continue
            taken = candidates[event, starts[choice] + _hash(first + event, choice) % number]
            sets[choice, event], slices[choice, event] = taken, homes[taken]
            anywhere |= homes[taken] < 0
        if anywhere:
            besides = _slice_besides(slices, event)
            if besides < 0:
                besides = _hash(first + event, -1) % count
            for choice in range(len(starts) - 1):
                if sets[choice, event] >= 0 and slices[choice, event] < 0:
                    slices[choice, event] = besides


@compiled
def choose_cheapest(
    choices: PackedChoices,
    homes: Integers,
    price: Reals,
    price_of_slice: Reals,
    cost: Reals,
    work: Reals,
    seconds: Reals,
    first: int,
) -> None:
    """Take the candidate with the least price plus work before it; a set that is anywhere goes to the slice with the
    least price of its own plus work. `work` has the seconds that wait at each slice at the time 0 of `seconds`, and
    changes in place: an event adds the `cost` of its set."""
    candidates, starts, sets, slices = choices
    count = len(work)
    at = np.zeros(count)  # the time for which a slice's work was last worked out
    for event in range(len(candidates)):
        now = seconds[event]
        anywhere = False
        for choice in range(len(starts) - 1):
            start = starts[choice]
            number = _count(candidates, event, start, starts[choice + 1])
            if number == 0:
                sets[choice, event] = slices[choice, event] = -1
                continue
            taken, least = -1, np.inf
            place = (first + event) % number
            for _ in range(number):
                each = candidates[event, start + place]
                home = homes[each]
                waiting = 0.0
                if home >= 0:
                    waiting = max(0.0, work[home] - (now - at[home]))
                    work[home], at[home] = waiting, now
                if taken < 0 or waiting + price[each] < least:
                    taken, least = each, waiting + price[each]
                place = place + 1 if place + 1 < number else 0
            home = homes[taken]
            sets[choice, event], slices[choice, event] = taken, home
            if home >= 0:
                work[home] += cost[taken]
            else:
                anywhere = True
        if anywhere:
            besides = _slice_besides(slices, event)
            if besides < 0:
                least = np.inf
                place = (first + event) % count
                for _ in range(count):
                    waiting = max(0.0, work[place] - (now - at[place]))
                    work[place], at[place] = waiting, now
                    if besides < 0 or waiting + price_of_slice[place] < least:
                        besides, least = place, waiting + price_of_slice[place]
                    place = place + 1 if place + 1 < count else 0
            for choice in range(len(starts) - 1):
                if sets[choice, event] >= 0 and slices[choice, event] < 0:
                    slices[choice, event] = besides
                    work[besides] += cost[sets[choice, event]]
