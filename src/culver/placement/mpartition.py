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

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching import ANYWHERE, BatchColumns, ClauseTable
from culver.placement.divisions.dimension_choice import DivisionOptions, learn_layers
from culver.placement.divisions.layer import Layer
from culver.placement.divisions.redivision import Redivision, compare_divisions
from culver.placement.divisions.term_spans import TermTable
from culver.placement.placement import Route, State, always, everywhere

REST = 0


class SetLabel(NamedTuple):
    """What a set is for: a layer and one of its dimensions, or the backup of a slice. The rest has none of them."""

    layer: int | None = None
    dimension: int | None = None
    backup_of: int | None = None


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

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return everywhere(len(numbers), len(self.homes))

    def route(self, batch: pa.RecordBatch) -> Route:
        columns = BatchColumns(batch)
        choices = [layer.route(columns, base) for layer, base in zip(self.layers, self.bases, strict=True)]
        return Route(batch.num_rows, (*choices, always(REST, batch.num_rows)))

    def state(self) -> State:
        return {"slices": self.slices, "layers": [layer.to_state() for layer in self.layers]}

    def with_slice_added(self, loaded: int) -> Redivision[Self]:
        """Add a slice, the last, which takes half of what `loaded` owns in every dimension, by the load that was
        learnt. Raises ValueError where there is no such slice."""
        self._check(loaded)
        new, count = self.slices, self.slices + 1
        layers = [
            Layer(tuple(each.split(loaded, new) for each in layer.divisions), count) for layer in self.layers
        ]
        return compare_divisions(self, type(self)(count, layers), {own: own for own in range(self.slices)})

    def with_slice_removed(self, gone: int) -> Redivision[Self]:
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
        return [
            [
                {
                    "attribute": division.dimension[0],
                    "type": str(division.dimension[1]),
                    "divided_by": division.kind,
                    "segments": division.describe(self.slices),
                }
                for division in layer.divisions
            ]
            for layer in self.layers
        ]

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
