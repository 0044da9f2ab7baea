"""BlueDove's multi-dimensional partitioning (mPartition, section III-A): an event has several candidates.

    dimension x     slice 0 | slice 1 | slice 2           A   x in slice 0's segment, y in those of 1 and 2:
    dimension y     slice 1 | slice 2 | slice 0               in the sets (x, 0), (y, 1), (y, 2)
                                                          event: its x is slice 0's, its y is slice 2's:
                                                              matched against (x, 0) or against (y, 2)

In the paper every subscription is narrow in all k dimensions. Here registrations are in layers (see `layer`): each
belongs to the first layer in all of whose dimensions it is narrow, so applications that ask about other attributes
have layers of their own. The rest, set 0, holds the registrations of no layer, at home anywhere; every event goes
there, too.

    registration                                        is
    says nothing about a dimension, in some clause      not narrow there
    a wide interval, more than half of the load         not narrow there
    a string: ranges go by the first eight bytes, equalities by a hash of it all
    a disjunction                                       wherever one of its clauses reaches

An event that has no value in a dimension of a layer, or one of another type, satisfies nothing in that layer.

A placement is a value: it learns in `learnt` only, and adding or removing a slice makes another one. The number of a
registration does not tell where it is, so all sets hear of its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import ANYWHERE, BatchColumns, ClauseTable
from culver.placement.divisions.dimension_choice import DivisionOptions, learn_layers
from culver.placement.divisions.division import Division, TermTable
from culver.placement.divisions.layer import Layer
from culver.placement.placement import Route, State, always, everywhere

REST = 0


class SetLabel(NamedTuple):
    """What a set is for: a layer and one of its dimensions, or the backup of a slice. The rest has none of them."""

    layer: int | None = None
    dimension: int | None = None
    backup_of: int | None = None


@dataclass(frozen=True, slots=True)
class Redivision:
    """A new placement, and which sets stay as they are, and which fill the others.

        old sets                    new sets
          0 rest       ----------->   0 rest
          1 x, slice 0 ----------->   1 x, slice 0
          2 x, slice 1 --source--->   2 x, slice 1   changed: it has given half of its segment away
                         `-------->   3 x, slice 2   changed: the new slice

    A set stays where its slice owns the same before and after: its registrations are the same then, because whether a
    registration belongs to a layer does not depend on the cuts.

    kept       by old set: its new number where its registrations stay as they are, else -1
    sources    old sets that hold all registrations of the changed ones
    changed    new sets that `placement.assign` is to fill; all others are kept, or empty
    """

    placement: "MPartition"
    kept: Integers
    sources: Integers
    changed: Integers


class MPartition:
    name: ClassVar[str] = "mpartition"
    dividing: ClassVar[DivisionOptions] = DivisionOptions()

    def __init__(self, slices: int, layers: Sequence[Layer] = ()) -> None:
        """Without layers, before anything is learnt, all registrations are in the rest."""
        self.slices = slices
        self.layers = tuple(layers)
        homes = [ANYWHERE]
        bases: list[int] = []
        for layer in self.layers:
            bases.append(len(homes))
            homes += layer.homes()
        self.bases = tuple(bases)
        """The first set of each layer."""
        self.homes = np.array(homes, np.int64)

    @classmethod
    def learnt(
        cls,
        table: ClauseTable,
        slices: int,
        events: pa.RecordBatch | None = None,
        dividing: DivisionOptions | None = None,
    ) -> Self:
        """Learn the layers. With one slice there is nothing to divide."""
        dividing = cls.dividing if dividing is None else dividing
        return cls(slices, learn_layers(table, slices, dividing, events) if slices > 1 else ())

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        if state.get("slices") != slices:
            raise ValueError(f"not the state of an {cls.name} placement with {slices} slices")
        try:
            return cls(slices, [Layer.from_state(each, slices) for each in state["layers"]])
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"not the state of an {cls.name} placement") from exc

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        held = np.zeros((len(table.numbers), len(self.homes)), np.bool_)
        taken = np.zeros(len(held), np.bool_)
        if self.layers:
            terms = TermTable(table)
            for layer, base in zip(self.layers, self.bases, strict=True):
                layer.assign(terms, base, held, taken)
        np.logical_not(taken, out=held[:, REST])
        return held

    def holders(self, numbers: Integers) -> NDArray[np.bool_]:
        return everywhere(len(numbers), len(self.homes))

    def route(self, batch: pa.RecordBatch) -> Route:
        columns = BatchColumns(batch)
        choices = [layer.route(columns, base) for layer, base in zip(self.layers, self.bases, strict=True)]
        return Route(batch.num_rows, (*choices, always(REST, batch.num_rows)))

    def state(self) -> State:
        return {"slices": self.slices, "layers": [layer.to_state() for layer in self.layers]}

    def with_slice_added(self, loaded: int) -> Redivision:
        """Add a slice, the last, which takes half of what `loaded` owns in every dimension, by the load that was
        learnt. Raises ValueError where there is no such slice."""
        self._check(loaded)
        new, count = self.slices, self.slices + 1
        layers = [
            Layer(tuple(each.split(loaded, new) for each in layer.divisions), count) for layer in self.layers
        ]
        return compare_divisions(self, type(self)(count, layers), {own: own for own in range(self.slices)})

    def with_slice_removed(self, gone: int) -> Redivision:
        """Remove a slice: in every dimension its neighbours take what it owned, and slices behind it are renumbered.
        Raises ValueError where there is no such slice, or no other."""
        self._check(gone)
        if self.slices == 1:
            raise ValueError("the only slice cannot be removed")
        layers = [
            Layer(tuple(each.without(gone, self.slices) for each in layer.divisions), self.slices - 1)
            for layer in self.layers
        ]
        renumbered = {own: own - (own > gone) for own in range(self.slices) if own != gone}
        return compare_divisions(self, type(self)(self.slices - 1, layers), renumbered)

    def describe(self) -> list[list[dict[str, Any]]]:
        """Describe each layer's dimensions for people, as JSON: who owns what of them, in values instead of keys."""
        return [[_described(each, self.slices) for each in layer.divisions] for layer in self.layers]

    def set_labels(self) -> list[SetLabel]:
        """What each set is, for people, by the number of the set."""
        labels = [SetLabel()]
        for number, layer in enumerate(self.layers):
            for dimension in range(len(layer.divisions)):
                labels += [SetLabel(number, dimension)] * self.slices
            if layer.has_backups:
                labels += [SetLabel(number, backup_of=own) for own in range(self.slices)]
        return labels

    def _check(self, own: int) -> None:
        if not 0 <= own < self.slices:
            raise ValueError(f"there is no slice {own} among {self.slices}")


def _described(division: Division, slices: int) -> dict[str, Any]:
    name, line = division.dimension
    segments = division.describe(slices)
    return {"attribute": name, "type": str(line), "divided_by": division.kind, "segments": segments}


class EventSpace(MPartition):
    """Event space partitioning (StreamHub, section 4.2.2) along one dimension.

    The paper's variant puts a registration into one slice, by its first attribute, and sends every event to all
    slices. Here a registration may be in several slices, and in return one slice matches an event.
    """

    name: ClassVar[str] = "event-space"
    dividing: ClassVar[DivisionOptions] = DivisionOptions(dimensions=1, layers=1)


class OneDimension(MPartition):
    """One dimension in segments of equal widths: what BlueDove compares itself with (P2P, section IV-B)."""

    name: ClassVar[str] = "one-dimension"
    dividing: ClassVar[DivisionOptions] = DivisionOptions(dimensions=1, layers=1, cuts="equal")


def compare_divisions(old: MPartition, new: MPartition, renumbered: Mapping[int, int]) -> Redivision:
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


def redivide_anew(old: MPartition, new: MPartition) -> Redivision:
    """Redivide to a placement that has nothing in common with the old one."""
    return Redivision(
        new, np.full(len(old.homes), -1), np.array(covering_sets(old), np.int64), np.arange(len(new.homes))
    )


def covering_sets(placement: MPartition) -> list[int]:
    """Sets that together hold every registration: the rest, and those of the first dimension of each layer."""
    layers = [range(base, base + placement.slices) for base in placement.bases]
    return [0, *(number for layer in layers for number in layer)]


def _unchanged(old: Layer, new: Layer, place: int, before: Mapping[int, int]) -> set[int]:
    """The new slices that own what they owned before in a dimension."""
    one, other = old.divisions[place], new.divisions[place]
    return {own for own, earlier in before.items() if other.part(own) == one.part(earlier)}
