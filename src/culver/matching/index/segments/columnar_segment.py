"""A columnar segment: some registrations and their clauses, compiled, immutable, in one container.

container of kind "segment"
  meta     {"count": registrations, "dimensions": [[attribute, line], ...],
            "repeats": whether a registration may have several clauses}
  arrays   as `segment_layout` draws them, and
           pool_start, pool_bytes    the needs, as text (see `constraint_codec`)
"""

import functools
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from culver.errors import StorageCorrupt
from culver.jit import Integers, Shorts, compiled, read_only
from culver.matching.index.compile.clause_table import ClauseTable, find_numbers, pack_texts, unpack_texts
from culver.matching.index.compile.constraint_codec import compared_domains
from culver.matching.index.compile.key_lines import DOMAIN_OF_LINE, KeyLine
from culver.matching.index.intrinsics.vectors import LANES
from culver.matching.index.keys.key_kernels import Programs, literals_of
from culver.matching.index.layout.restoration import restore
from culver.matching.index.layout.segment_arrays import STORED_NAMES, SegmentArrays
from culver.matching.index.layout.segment_layout import lay_out
from culver.matching.index.needs.segment_needs import SegmentNeeds
from culver.matching.index.segments import container
from culver.model import COLUMNAR, Domain

KIND = "segment"


class ColumnarSegment:
    """Registrations in ascending order of number. Immutable; safe to share between threads."""

    scheme: ClassVar[str] = COLUMNAR

    def __init__(self, opened: container.Container, source: str) -> None:
        if opened.kind != KIND:
            raise StorageCorrupt(f"{source} is a {opened.kind}, not a segment")
        self.arrays = SegmentArrays(
            *(opened.arrays[STORED_NAMES.get(name, name)] for name in SegmentArrays._fields)
        )
        self.dimensions = tuple((name, KeyLine(line)) for name, line in opened.meta["dimensions"])
        self.programs = Programs(self.dimensions)
        texts = unpack_texts(opened.arrays["pool_start"], opened.arrays["pool_bytes"])
        self.pool = tuple(text.decode() for text in texts)
        self.needs = SegmentNeeds(self.pool)
        self.literals = literals_of(self.arrays.literal_start, self.arrays.literal_bytes)
        self.repeats = bool(opened.meta["repeats"])
        numbers = self.arrays.numbers
        self.dense = len(numbers) > 0 and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1
        self.matches_per_row = 8.0
        """The registrations that an event of the last large batch matched, on average: the next needs as much
        memory."""
        boxes, others = len(self.arrays.slot_registration) // LANES, len(self.arrays.clause_tokens) > 0
        others = others or len(self.arrays.free_registration) > 0
        self.leaves = boxes + (-(-len(numbers) // LANES) if others else 0)  # see `gatherer`
        self._slots_of: tuple[Shorts, Shorts] | None = None
        self.latest = int(self.arrays.since.max(initial=0))
        """The position from which all registrations are in effect."""

    def __len__(self) -> int:
        return len(self.arrays.numbers)

    def slots_of(self) -> tuple[Shorts, Shorts]:
        """The boxes of each registration: where they begin for each, and all of them."""
        if self._slots_of is None:
            self._slots_of = slots_by_registration(self.arrays.slot_registration, len(self))
        return self._slots_of

    @functools.cached_property
    def domains(self) -> frozenset[tuple[str, Domain | None]]:
        """The attributes in the clauses, each with a domain of values that it is compared with, or None for any."""
        terms = ((name, DOMAIN_OF_LINE[line]) for name, line in self.dimensions)
        return frozenset((*terms, *compared_domains(self.pool)))

    def table(self) -> ClauseTable:
        """The clauses, for a merge."""
        return restore(self.arrays, self.dimensions, self.pool)

    def places(self, numbers: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """The places of these registrations, and which of them are here at all."""
        return find_numbers(self.arrays.numbers, numbers)


def encode(table: ClauseTable) -> list[bytes]:
    """The container of a segment with the clauses of `table`."""
    return container.encode(KIND, *contents(table))


def contents(table: ClauseTable) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The meta and the arrays of that container."""
    return _meta(table), _arrays(table)


def segment_in_memory(table: ClauseTable) -> ColumnarSegment:
    """A segment with the clauses of `table`, without a container. It may share arrays with the table."""
    meta, arrays = contents(table)
    return segment_of(meta, {name: read_only(array) for name, array in arrays.items()})


def segment_of(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> ColumnarSegment:
    """A segment of what `contents` gave; the arrays are read-only."""
    return ColumnarSegment(container.Container(KIND, meta, arrays), "memory")


def _meta(table: ClauseTable) -> dict[str, Any]:
    repeats = int(np.bincount(table.clause_registration, minlength=1).max()) > 1
    return {"count": len(table.numbers), "dimensions": table.dimensions, "repeats": repeats}


def _arrays(table: ClauseTable) -> dict[str, NDArray[Any]]:
    pool_start, pool_bytes = pack_texts(text.encode() for text in table.pool)
    laid_out = {STORED_NAMES.get(name, name): array for name, array in lay_out(table)._asdict().items()}
    return {**laid_out, "pool_start": pool_start, "pool_bytes": pool_bytes}


@compiled
def slots_by_registration(slot_registration: Shorts, registrations: int) -> tuple[Shorts, Shorts]:
    start = np.zeros(registrations + 2, np.int32)
    for registration in slot_registration:
        if registration >= 0:
            start[registration + 2] += 1
    for registration in range(registrations):
        start[registration + 2] += start[registration + 1]
    slots = np.empty(start[registrations + 1], np.int32)
    for slot in range(len(slot_registration)):
        registration = slot_registration[slot]
        if registration >= 0:
            slots[start[registration + 1]] = slot
            start[registration + 1] += 1
    return start[: registrations + 1], slots
