"""A layer: registrations that are narrow in the same dimensions, each of which is divided among all slices.

    sets of a layer, from `base` on              slices      0     1     2
      first dimension                                        b     b+1   b+2
      second dimension                                       b+3   b+4   b+5
      backups (with several slices and dimensions)           b+6   b+7   b+8     at home one slice further on

A registration is in the sets of all slices that it reaches, in each dimension. An event has one candidate in each,
and may be matched against any. Where all of them are sets of one slice j, it has one more: the backup set of j, which
holds the registrations that reach j in every dimension (BlueDove, section III-A, replicates them to the clockwise
neighbour).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import BatchColumns, KeyLine
from culver.model import Event
from culver.model.columns import concat, encode
from culver.placement.divisions.division import Division, TermTable
from culver.placement.divisions.division_kernels import Held, keep_members, make_choice
from culver.placement.divisions.hash_division import HASH_BUCKETS, HashDivision
from culver.placement.divisions.range_division import RangeDivision
from culver.placement.placement import State

_KINDS: dict[str, type[RangeDivision] | type[HashDivision]] = {
    RangeDivision.kind: RangeDivision,
    HashDivision.kind: HashDivision,
}


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    divisions: tuple[Division, ...]
    slices: int

    @property
    def has_backups(self) -> bool:
        """With one dimension there are none: every registration would be in a backup set, for twice the memory."""
        return self.slices > 1 and len(self.divisions) > 1

    def homes(self) -> list[int]:
        own = list(range(self.slices))
        return own * len(self.divisions) + ([*own[1:], 0] if self.has_backups else [])

    def assign(self, table: TermTable, base: int, held: Held, taken: Held) -> None:
        """Take the registrations that belong here and are not taken yet, and mark their sets."""
        count = len(self.divisions)
        terms = np.zeros((count, table.count), np.int32)
        covered = np.zeros((count, table.count), np.int32)
        for place, division in enumerate(self.divisions):
            spans = table.on(division.dimension)
            division.mark(spans, base + place * self.slices, held, terms[place], covered[place])
        limits = np.array([division.limit for division in self.divisions], np.int64)
        keep_members(table.clauses, terms, covered, limits, base, self.slices, self.has_backups, held, taken)

    def route(self, columns: BatchColumns, base: int) -> Integers:
        count = len(self.divisions)
        choice = np.empty((columns.rows, count + self.has_backups), np.int64)
        for place, division in enumerate(self.divisions):
            division.owners_of_events(columns, place, choice)
        make_choice(choice, count, base, self.slices)
        return choice

    def to_state(self) -> list[State]:
        return [division.to_state() for division in self.divisions]

    @classmethod
    def from_state(cls, state: Sequence[State], slices: int) -> "Layer":
        """Raises KeyError, TypeError, ValueError where that is no state of a layer of so many slices."""
        divisions = tuple(_KINDS[each["kind"]].from_state(each) for each in state)
        for division in divisions:
            if not len(division.owners) or division.owners.min() < 0 or division.owners.max() >= slices:
                raise ValueError(f"owners are not among {slices} slices")
        return cls(divisions, slices)


def load_layer_kernels() -> None:
    """Load the kernels that route events, or compile them where they never were."""
    one, none = np.zeros(1, np.int64), np.empty(0, np.int64)
    strings, table = ("s", KeyLine.STRINGS), np.zeros(HASH_BUCKETS, np.int64)
    divisions = (
        RangeDivision(("n", KeyLine.NUMBERS), none, one, none),
        RangeDivision(strings, none, one, none),
    )
    layer = Layer((*divisions, HashDivision(strings, table, table)), 1)
    layer.route(BatchColumns(concat(encode([Event({}, {"n": 1.5, "s": "a"}, b"{}")], 0))), 0)


def narrow_registrations(
    division: Division, table: TermTable, slices: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark the registrations that are narrow in a division by itself, and the slices that each of those reaches."""
    held = np.zeros((table.count, slices), np.bool_)
    taken = np.zeros(table.count, np.bool_)
    Layer((division,), slices).assign(table, 0, held, taken)
    return taken, held
