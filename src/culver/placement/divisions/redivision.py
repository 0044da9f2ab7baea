"""A redivision: from one placement to the next, which sets stay as they are, and which sets fill the others.

    old sets                    new sets
      0 rest       ----------->   0 rest
      1 x, slice 0 ----------->   1 x, slice 0
      2 x, slice 1 --source--->   2 x, slice 1   changed: it has given half of its segment away
                     `-------->   3 x, slice 2   changed: the new slice

A set stays where its slice owns the same before and after: its registrations are the same then, because whether a
registration belongs to a layer does not depend on the cuts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.placement.divisions.layer import Layer


class Layered(Protocol):
    """The part of `MPartition` that matters here."""

    slices: int
    homes: NDArray[np.int64]
    layers: tuple[Layer, ...]
    bases: tuple[int, ...]


P = TypeVar("P", bound=Layered)


@dataclass(frozen=True, slots=True)
class Redivision(Generic[P]):
    """A new placement, and what becomes of the sets.

    kept       by old set: its new number where its registrations stay as they are, else -1
    sources    old sets that hold all registrations of the changed ones
    changed    new sets that `placement.assign` is to fill; all others are kept, or empty
    """

    placement: P
    kept: NDArray[np.int64]
    sources: NDArray[np.int64]
    changed: NDArray[np.int64]


def compare_divisions(old: P, new: P, renumbered: Mapping[int, int]) -> Redivision[P]:
    """Work out what becomes of the sets. `renumbered` has the new number of each slice that both have."""
    kept = np.full(len(old.homes), -1)
    kept[0] = 0  # the rest stays, because the layers do
    sources: set[int] = set()
    changed: set[int] = set()
    before = {new_number: old_number for old_number, new_number in renumbered.items()}
    bases = zip(old.layers, new.layers, old.bases, new.bases, strict=True)
    for old_layer, new_layer, old_base, new_base in bases:
        same_slices = set(before)
        for place in range(len(new_layer.divisions)):
            same = _unchanged(old_layer, new_layer, place, before)
            old_first, new_first = old_base + place * old.slices, new_base + place * new.slices
            for own in same:
                kept[old_first + before[own]] = new_first + own
            changed |= {
                new_first + own
                for own in set(range(new.slices)) - same
                if len(new_layer.divisions[place].part(own))
            }
            renamed = {before[own] for own in same}
            sources |= {old_first + own for own in range(old.slices) if own not in renamed}
            same_slices &= same
        if new_layer.has_backups:
            count = len(new_layer.divisions)
            old_first, new_first = old_base + count * old.slices, new_base + count * new.slices
            if old_layer.has_backups:
                for own in same_slices:
                    kept[old_first + before[own]] = new_first + own
                changed |= {new_first + own for own in set(range(new.slices)) - same_slices}
            else:
                changed |= {new_first + own for own in range(new.slices)}
                sources |= {old_base + own for own in range(old.slices)}
    return Redivision(new, kept, np.array(sorted(sources), np.int64), np.array(sorted(changed), np.int64))


def redivide_anew(old: P, new: P) -> Redivision[P]:
    """Redivide to a placement that has nothing in common with the old one."""
    return Redivision(
        new, np.full(len(old.homes), -1), np.array(covering_sets(old), np.int64), np.arange(len(new.homes))
    )


def covering_sets(placement: Layered) -> list[int]:
    """Sets that together hold every registration: the rest, and those of the first dimension of each layer."""
    layers = [range(base, base + placement.slices) for base in placement.bases]
    return [0, *(number for layer in layers for number in layer)]


def _unchanged(old: Layer, new: Layer, place: int, before: Mapping[int, int]) -> set[int]:
    """The new slices that own what they owned before in a dimension."""
    one, other = old.divisions[place], new.divisions[place]
    return {own for own, earlier in before.items() if other.part(own) == one.part(earlier)}
