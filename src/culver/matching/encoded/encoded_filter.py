"""The filter of the scheme `encoded`: its registrations are advertisements of other sites (see `EncodedPredicate`).

    registrations by hashes --> the forms of all of them --> vectors of the events, for the most bits
                  by bits   --> a table of vectors each  <-- folded

It is the only filter that gives too much: an event matches where a site might want it. Events of other sites never
match, because their own site has sent them wherever they belong. The next match after a change rebuilds the tables.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from culver.jit import Bytes
from culver.matching.encoded.bloom_vectors import SparseVectors, sparse_vectors
from culver.matching.encoded.encoded_predicate import EncodedPredicate
from culver.matching.encoded.event_vectors import EventEncoder
from culver.matching.encoded.forms import CategoryForm
from culver.matching.encoded.vector_table import VectorTable, find_within, table_of
from culver.matching.filter import Matches
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.search.text_matcher import join_matches
from culver.model.columns import from_elsewhere
from culver.model.language import Predicate

# Rows worked on at a time: their vectors stay in the second cache.
_MAX_ROWS = 1_024
_NONE_SKIPPED: Bytes = np.zeros(0, np.uint8)


class _Registered(NamedTuple):
    """What the filter keeps of an encoded predicate: a fraction of its bytes."""

    bits: int
    hashes: int
    forms: tuple[str, ...]
    vectors: SparseVectors


class _Tables(NamedTuple):
    """The registrations with one number of hashes."""

    hashes: int
    bits: int
    encoder: EventEncoder
    tables: list[VectorTable]


class EncodedFilter:
    def __init__(self) -> None:
        self._predicates: dict[int, _Registered] = {}
        self._tables: list[_Tables] | None = []

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        """As every filter; a predicate's text must be that of an encoded one. Raises InvalidFilter."""
        for number, predicate in subscriptions:
            read = EncodedPredicate.parse(predicate.text)
            vectors = sparse_vectors(read.vectors, read.bits)
            self._predicates[number] = _Registered(read.bits, read.hashes, read.forms, vectors)
            self._tables = None

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._predicates.pop(number, None) is not None:
                self._tables = None

    def match(self, batch: pa.RecordBatch) -> Matches:
        if self._tables is None:
            self._tables = _tables_of(self._predicates)
        pieces = [
            self._match(batch.slice(first, _MAX_ROWS), self._tables)
            for first in range(0, max(1, batch.num_rows), _MAX_ROWS)
        ]
        if len(pieces) == 1:
            return pieces[0]
        ends = np.cumsum([0, *(len(piece.numbers) for piece in pieces)])
        offsets = [piece.offsets[1:] + end for piece, end in zip(pieces, ends[:-1], strict=True)]
        return Matches(np.concatenate([[0], *offsets]), np.concatenate([piece.numbers for piece in pieces]))

    def __len__(self) -> int:
        return len(self._predicates)

    def _match(self, batch: pa.RecordBatch, groups: list[_Tables]) -> Matches:
        elsewhere = from_elsewhere(batch)
        skipped = _NONE_SKIPPED if elsewhere is None else elsewhere.astype(np.uint8)
        columns = BatchColumns(batch)
        found: list[Matches] = []
        for group in groups:
            words = group.encoder.encode(columns, group.bits, group.hashes)
            width = group.bits // 64
            found += [
                Matches(*find_within(table, words, width, columns.rows, skipped)) for table in group.tables
            ]
        if not found:
            return Matches(np.zeros(columns.rows + 1, np.int64), np.empty(0, np.int64))
        return join_matches(found)


def _tables_of(predicates: dict[int, _Registered]) -> list[_Tables]:
    by_size: dict[tuple[int, int], list[int]] = {}
    for number, predicate in predicates.items():
        by_size.setdefault((predicate.hashes, predicate.bits), []).append(number)
    groups = []
    for hashes in sorted({hashes for hashes, _ in by_size}):
        tables, names = [], set[str]()
        for bits in sorted(bits for own, bits in by_size if own == hashes):
            numbers = by_size[hashes, bits]
            own = [predicates[number] for number in numbers]
            parts = [predicate.vectors for predicate in own]
            vectors = SparseVectors(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            owners = np.repeat(np.arange(len(own)), [len(part.sizes) for part in parts])
            tables.append(table_of(vectors, bits, owners, np.array(numbers, np.int64)))
            names.update(name for predicate in own for name in predicate.forms)
        groups.append(_Tables(hashes, tables[-1].bits, EventEncoder(map(CategoryForm.parse, names)), tables))
    return groups
