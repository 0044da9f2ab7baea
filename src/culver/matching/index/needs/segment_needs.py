"""The needs of a segment: constraints that are no interval, each evaluated once per distinct value.

The texts of a pool are read when the first batch comes, and the needs about an attribute are made ready when
it first occurs: who only merges or publishes segments pays for neither.

    pool --codec--> by attribute --> lookups     which needs a value meets
                                 --> recall      and which it met before
                --> arithmetic                   what takes several attributes
                                          all of it put together per row by `held`
"""

import numpy as np

from culver.jit import Shorts
from culver.matching.index.compile.constraint_codec import (
    attribute_of_text,
    constraint_from_text,
    packed_constraints,
)
from culver.matching.index.compile.key_lines import KeyLine, real_of_key
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.needs.computed_needs import Calculations
from culver.matching.index.needs.need_cache import NumberMemory, Remembered, TextMemory
from culver.matching.index.needs.need_lookup import Lookup, TextLookup
from culver.matching.index.needs.row_needs import ColumnNeeds, RowNeeds, gather
from culver.model import Domain, Kind, Timestamp
from culver.model.language import Comparison, Computed

_MAX_REMEMBERED = 1_000_000  # needs met, over all values of a segment

_DOMAINS = {"pattern": Domain.STRING, "contains": Domain.STRINGS}
_KINDS = {
    Domain.NUMBER: (Kind.INTEGER, Kind.REAL),
    Domain.STRING: (Kind.STRING,),
    Domain.BOOLEAN: (Kind.BOOLEAN,),
    Domain.TIMESTAMP: (Kind.TIMESTAMP,),
    Domain.STRINGS: (Kind.STRINGS,),
}
_LINES = {
    Kind.INTEGER: KeyLine.INTEGERS,
    Kind.REAL: KeyLine.REALS,
    Kind.BOOLEAN: KeyLine.BOOLEANS,
    Kind.TIMESTAMP: KeyLine.TIMESTAMPS,
}


class Needs:
    """The pool of one segment, ready to be evaluated. Safe to share between threads.

    Nothing in a pool is negated: what must not hold is said by the clause. `evaluate` raises ValueError where
    that is not so, or where a text is no constraint.
    """

    def __init__(self, pool: tuple[str, ...], max_remembered: int = _MAX_REMEMBERED) -> None:
        self.count = len(pool)
        self._pool = pool
        self._max_remembered = max_remembered
        self._remembered = Remembered()
        self._read: tuple[list[_OfAttribute], Calculations | None] | None = None

    @property
    def remembered(self) -> int:
        """How much is remembered, between batches at most `max_remembered`."""
        return self._remembered.size

    def evaluate(self, columns: BatchColumns) -> RowNeeds:
        """The needs that each row meets."""
        if not self.count:
            return RowNeeds(np.zeros(columns.rows + 1, np.int64), np.empty(0, np.int32))
        read = self._read
        if read is None:
            read = self._read = _read(self._pool, self._remembered)
        attributes, calculations = read
        rows = np.arange(columns.rows, dtype=np.int32)
        parts: list[ColumnNeeds] = []
        for needs in attributes:
            needs.add_parts(columns, rows, parts)
        if calculations is not None and (part := calculations.part(columns)) is not None:
            parts.append(part)
        if self._remembered.size > self._max_remembered:
            self._remembered.size = 0
            for needs in attributes:
                needs.forget()
        return gather(parts, columns.rows)


def _read(pool: tuple[str, ...], remembered: Remembered) -> "tuple[list[_OfAttribute], Calculations | None]":
    places: dict[str | None, list[int]] = {}
    for place, text in enumerate(pool):
        places.setdefault(attribute_of_text(text), []).append(place)
    computed: list[tuple[int, Comparison]] = []
    for place in places.pop(None, ()):
        constraint = constraint_from_text(pool[place])
        assert isinstance(constraint, Computed)
        computed.append((place, constraint.comparison))
    attributes = [
        _OfAttribute(name, own, [pool[place] for place in own], remembered)
        for name, own in places.items()
        if name is not None
    ]
    return attributes, Calculations(computed) if computed else None


class _OfAttribute:
    """The needs about one attribute: their places in the pool, and their texts."""

    def __init__(self, name: str, places: list[int], texts: list[str], remembered: Remembered) -> None:
        self._name = name
        self._places = places
        self._texts = texts
        self._remembered = remembered
        self._ready: tuple[Shorts, dict[Kind, TextMemory | NumberMemory]] | None = None

    def forget(self) -> None:
        if self._ready is not None:
            for memory in self._ready[1].values():
                memory.forget()

    def add_parts(self, columns: BatchColumns, rows: Shorts, parts: list[ColumnNeeds]) -> None:
        name = self._name
        kinds = columns.attribute(name)
        if not kinds:
            return
        ready = self._ready
        if ready is None:
            ready = self._ready = self._make_ready()
        presence, memories = ready
        if len(presence):
            there = columns.present(name).astype(np.int32) - np.int32(1)
            parts.append(ColumnNeeds(rows, there, np.array([0, len(presence)]), presence))
        for kind in kinds:
            memory = memories.get(kind)
            if memory is None:
                continue
            if isinstance(memory, NumberMemory):
                keys = columns.keys((name, _LINES[kind]))
                assert keys is not None
                parts += memory.parts(rows, *keys)
            elif kind is Kind.STRING:
                strings = columns.strings(name)
                assert strings is not None
                parts += memory.parts(rows, strings)
            else:
                members = columns.members(name)
                assert members is not None
                parts += memory.parts(members.rows, members.strings, repeated=True)

    def _make_ready(self) -> tuple[Shorts, dict[Kind, TextMemory | NumberMemory]]:
        presence: list[int] = []
        lookups: dict[Domain, Lookup] = {}
        for place, packed in zip(self._places, packed_constraints(self._texts), strict=True):
            kind = packed[0]
            if packed[-1] is not (kind == "presence") and kind != "range":
                raise ValueError(f"a need says what must hold, not what must not: {packed!r}")
            if kind == "presence":
                presence.append(place)
                continue
            domain = _DOMAINS.get(kind) or Domain(packed[2])
            lookup = lookups.get(domain)
            if lookup is None:
                lookup = lookups[domain] = TextLookup() if domain is Domain.STRING else Lookup()
            lookup.add(place, packed)
        memories: dict[Kind, TextMemory | NumberMemory] = {}
        for domain, lookup in lookups.items():
            for kind in _KINDS[domain]:
                memories[kind] = _memory(kind, lookup, self._remembered)
        return np.array(presence, np.int32), memories


def _memory(kind: Kind, lookup: Lookup, remembered: Remembered) -> TextMemory | NumberMemory:
    match kind:
        case Kind.STRING | Kind.STRINGS:
            return TextMemory(lookup.meets, remembered)
        case Kind.INTEGER:
            return NumberMemory(lookup.meets, remembered)
        case Kind.REAL:
            return NumberMemory(lambda key: lookup.meets(real_of_key(key)), remembered)
        case Kind.BOOLEAN:
            return NumberMemory(lambda key: lookup.meets(key != 0), remembered)
        case Kind.TIMESTAMP:
            return NumberMemory(lambda key: lookup.meets(Timestamp(key)), remembered)
