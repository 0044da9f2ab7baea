"""The needs of a segment: constraints that are no interval, each evaluated once per distinct value.

The texts of a pool are read when the first batch comes, and the needs about an attribute are made ready when it first
occurs: who only merges or publishes segments pays for neither.
"""

import numpy as np
import pyarrow as pa

from culver.jit import Shorts
from culver.matching.index.compile.constraint_codec import (
    attribute_of_text,
    constraint_from_text,
    packed_constraints,
)
from culver.matching.index.compile.key_lines import KeyLine, real_of_key
from culver.matching.index.keys.batch_columns import BatchColumns, Strings, string_column
from culver.matching.index.needs.computed_needs import ComputedNeeds
from culver.matching.index.needs.met_needs import ColumnNeeds, MetNeeds, drop_repeated, gather
from culver.matching.index.needs.need_cache import CacheSize, NeedCache
from culver.matching.index.needs.need_lookup import Lookup, TextLookup
from culver.model import Domain, Kind, Timestamp
from culver.model.language import Comparison, Computed

# Needs met, over all values of a segment.
_MOST_REMEMBERED = 1_000_000

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


class SegmentNeeds:
    """The pool of one segment, ready to be evaluated. Safe to share between threads.

    Nothing in a pool is negated: the clause says what must not hold. `evaluate` raises ValueError where that is not
    so, or where a text is no constraint.
    """

    def __init__(self, pool: tuple[str, ...], most_remembered: int = _MOST_REMEMBERED) -> None:
        self.count = len(pool)
        self._pool = pool
        self._most_remembered = most_remembered
        self._held = CacheSize()
        self._read: tuple[list[_AttributeNeeds], ComputedNeeds | None] | None = None

    def evaluate(self, columns: BatchColumns) -> MetNeeds:
        if not self.count:
            return MetNeeds(np.zeros(columns.rows + 1, np.int64), np.empty(0, np.int32))
        read = self._read
        if read is None:
            read = self._read = _read(self._pool, self._held)
        attributes, computed = read
        rows = np.arange(columns.rows, dtype=np.int32)
        parts: list[ColumnNeeds] = []
        for needs in attributes:
            needs.add_parts(columns, rows, parts)
        if computed is not None and (part := computed.part(columns)) is not None:
            parts.append(part)
        if self._held.size > self._most_remembered:
            self._held.size = 0
            for needs in attributes:
                needs.forget()
        return gather(parts, columns.rows)


def _read(pool: tuple[str, ...], held: CacheSize) -> "tuple[list[_AttributeNeeds], ComputedNeeds | None]":
    places: dict[str | None, list[int]] = {}
    for place, text in enumerate(pool):
        places.setdefault(attribute_of_text(text), []).append(place)
    computed: list[tuple[int, Comparison]] = []
    for place in places.pop(None, ()):
        constraint = constraint_from_text(pool[place])
        assert isinstance(constraint, Computed)
        computed.append((place, constraint.comparison))
    attributes = [
        _AttributeNeeds(name, own, [pool[place] for place in own], held)
        for name, own in places.items()
        if name is not None
    ]
    return attributes, ComputedNeeds(computed) if computed else None


class _AttributeNeeds:
    """The needs about one attribute: their places in the pool, and their texts."""

    def __init__(self, name: str, places: list[int], texts: list[str], held: CacheSize) -> None:
        self._name = name
        self._places = places
        self._texts = texts
        self._held = held
        self._ready: tuple[Shorts, dict[Kind, NeedCache]] | None = None

    def forget(self) -> None:
        if self._ready is not None:
            for cache in self._ready[1].values():
                cache.forget()

    def add_parts(self, columns: BatchColumns, rows: Shorts, parts: list[ColumnNeeds]) -> None:
        kinds = columns.attribute(self._name)
        if not kinds:
            return
        ready = self._ready
        if ready is None:
            ready = self._ready = self._make_ready()
        presence, caches = ready
        if len(presence):
            there = columns.present(self._name).astype(np.int32) - np.int32(1)
            parts.append(ColumnNeeds(rows, there, np.array([0, len(presence)]), presence))
        for kind, column in kinds.items():
            cache = caches.get(kind)
            if cache is None:
                continue
            if kind is Kind.STRINGS:
                found = cache.look_up_texts(*_members(rows, column))
                for part in found:
                    drop_repeated(part.rows, part.codes, np.full(len(part.start) - 1, -1, np.int32))
            elif kind is Kind.STRING:
                strings = columns.strings(self._name)
                assert strings is not None
                found = cache.look_up_texts(rows, strings)
            else:
                keys = columns.keys((self._name, _LINES[kind]))
                assert keys is not None
                found = cache.look_up_keys(rows, *keys)
            parts += found

    def _make_ready(self) -> tuple[Shorts, dict[Kind, NeedCache]]:
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
        caches: dict[Kind, NeedCache] = {}
        for domain, lookup in lookups.items():
            for kind in _KINDS[domain]:
                caches[kind] = _cache(kind, lookup, self._held)
        return np.array(presence, np.int32), caches


def _cache(kind: Kind, lookup: Lookup, held: CacheSize) -> NeedCache:
    match kind:
        case Kind.STRING | Kind.STRINGS:
            return NeedCache(lambda text: lookup.meets(text.decode()), held)
        case Kind.INTEGER:
            return NeedCache(lookup.meets, held)
        case Kind.REAL:
            return NeedCache(lambda key: lookup.meets(real_of_key(key)), held)
        case Kind.BOOLEAN:
            return NeedCache(lambda key: lookup.meets(key != 0), held)
        case Kind.TIMESTAMP:
            return NeedCache(lambda key: lookup.meets(Timestamp(key)), held)


def _members(rows: Shorts, column: pa.Array) -> tuple[Shorts, Strings]:
    """The members of a column of lists, one after another, and the row of each."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.repeat(rows, lengths), string_column(column.flatten())
