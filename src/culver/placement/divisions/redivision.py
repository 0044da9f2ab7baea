"""From one division of the index to the next: which sets stay as they are, and what the others are filled from.

    old sets                    new sets
      0 rest       ----------->   0 rest
      1 x, slice 0 ----------->   1 x, slice 0
      2 x, slice 1 --source--->   2 x, slice 1   changed: it has given half of its segment away
                     `-------->   3 x, slice 2   changed: the new slice

A set is told by what its slice owns: where that is the same before and after, so are its registrations, for whether a
registration belongs to a layer does not depend on the cuts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.placement.divisions.layer import Layer


class Layered(Protocol):
    """As much of `MPartition` as is needed here."""

    slices: int
    homes: NDArray[np.int64]
    layers: tuple[Layer, ...]
    bases: tuple[int, ...]


P = TypeVar("P", bound=Layered)


@dataclass(frozen=True, slots=True)
class Redivision(Generic[P]):
    placement: P
    kept: NDArray[np.int64]  # by old set: its new number where its registrations stay as they are, else -1
    sources: NDArray[np.int64]  # old sets: all registrations of the changed ones are among theirs
    changed: NDArray[np.int64]  # new sets, to be filled by `placement.assign`. All others are kept, or empty


def compare_divisions(old: P, new: P, renumbered: Mapping[int, int]) -> Redivision[P]:
    """What becomes of the sets, where the slices that both have are numbered as `renumbered` says, old to new."""
    kept = np.full(len(old.homes), -1)
    kept[0] = 0  # the rest is the same: layers are
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
    """From one division to another that has nothing in common with it."""
    return Redivision(
        new, np.full(len(old.homes), -1), np.array(covering_sets(old), np.int64), np.arange(len(new.homes))
    )


def covering_sets(placement: Layered) -> list[int]:
    """Sets that hold every registration between them: the rest, and of each layer those of the first dimension."""
    layers = [range(base, base + placement.slices) for base in placement.bases]
    return [0, *(number for layer in layers for number in layer)]


def _unchanged(old: Layer, new: Layer, place: int, before: Mapping[int, int]) -> set[int]:
    """The new slices that own in a dimension what they owned before."""
    one, other = old.divisions[place], new.divisions[place]
    return {own for own, earlier in before.items() if other.part(own) == one.part(earlier)}
