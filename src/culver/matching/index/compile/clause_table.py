"""Clauses in columns: the form in which they are compiled, merged and laid out, whatever the file format.

    registrations  numbers, since                      ascending by number
    clauses        registration (place among them)     in any order
      terms        dimension, low, high                at most one per dimension, ascending by dimension
      needs        place in the pool, or ~place        constraints that are no interval

A dimension is an attribute on one line of keys (see `key_lines`). A term says that the event has a value there whose
key lies in [low, high]. A need says that a constraint of the pool holds or, as `~place`, that it does not. A clause
holds when all its terms and needs do.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers
from culver.matching.index.compile.key_lines import KeyLine, move_string_bounds, used_literals
from culver.model import COLUMNAR

Dimension = tuple[str, KeyLine]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClauseTable:
    """The arrays `term_start` and `need_start` have one entry more than there are clauses."""

    scheme: ClassVar[str] = COLUMNAR

    numbers: Integers
    since: Integers
    clause_registration: Integers
    term_start: Integers
    term_dimension: Integers
    term_bounds: Integers
    """The low and high key of each term; the shape is (terms, 2)."""
    need_start: Integers
    needs: Integers
    dimensions: tuple[Dimension, ...]
    literals: tuple[bytes, ...]
    """The strings that terms refer to, sorted."""
    pool: tuple[str, ...]
    """Constraints as text, distinct; see `constraint_codec`."""

    @classmethod
    def joined(cls, tables: Sequence["ClauseTable"]) -> "ClauseTable":
        """Put the registrations of several tables into one. Dimensions, literals and pool keep what is in use."""
        return join_tables(tables)[0]

    def select_clauses(self, rows: Integers) -> "ClauseTable":
        """Keep all registrations, but only these clauses, in this order."""
        terms, needs = run_members(self.term_start, rows), run_members(self.need_start, rows)
        return replace(
            self,
            clause_registration=self.clause_registration[rows],
            term_start=run_starts(np.diff(self.term_start)[rows]),
            term_dimension=self.term_dimension[terms],
            term_bounds=self.term_bounds[terms],
            need_start=run_starts(np.diff(self.need_start)[rows]),
            needs=self.needs[needs],
        )

    def select_registrations(self, kept: NDArray[np.bool_]) -> "ClauseTable":
        """Keep only the registrations marked in `kept`, and their clauses."""
        place = np.cumsum(kept) - 1
        chosen = self.select_clauses(np.flatnonzero(kept[self.clause_registration]))
        return replace(
            chosen,
            numbers=self.numbers[kept],
            since=self.since[kept],
            clause_registration=place[chosen.clause_registration],
        )

    def every(self, step: int) -> "ClauseTable":
        """Keep every `step`-th registration, as a sample."""
        if step <= 1:
            return self
        return self.select_registrations(np.arange(len(self.numbers)) % step == 0)

    def distinct(self) -> "ClauseTable":
        """Keep the first registration of each number."""
        return self.select_registrations(first_of_runs(self.numbers))


def join_tables(tables: Sequence[ClauseTable]) -> tuple[ClauseTable, Integers]:
    """Do as `ClauseTable.joined`, and tell where each registration comes from: entry i of the result is registration
    `origin[i]` of the tables put one after another."""
    dimensions = sorted({d for table in tables for d in _used(table.dimensions, table.term_dimension)})
    literals = sorted({t for table in tables for t in _used(table.literals, _used_literals(table))})
    pool = sorted({text for table in tables for text in _used(table.pool, pool_places(table.needs))})
    dimension_place = {dimension: i for i, dimension in enumerate(dimensions)}
    literal_place = {literal: i for i, literal in enumerate(literals)}
    pool_place = {text: i for i, text in enumerate(pool)}

    numbers = np.concatenate([table.numbers for table in tables])
    origin = np.argsort(numbers, kind="stable")
    place = np.empty_like(origin)
    place[origin] = np.arange(len(origin))
    bases = run_starts(np.array([len(table.numbers) for table in tables], np.int64))
    owners, term_dimensions, term_bounds, needs = [], [], [], []
    for base, table in zip(bases, tables, strict=False):
        owners.append(place[table.clause_registration + base])
        moved = np.array([dimension_place.get(d, -1) for d in table.dimensions], np.int64)
        term_dimensions.append(moved[table.term_dimension])
        term_bounds.append(_move_literals(table, literal_place))
        moved = np.array([pool_place.get(text, -1) for text in table.pool], np.int64)
        needs.append(moved[pool_places(table.needs)] ^ (table.needs >> 63))
    result = ClauseTable(
        numbers=numbers[origin],
        since=np.concatenate([table.since for table in tables])[origin],
        clause_registration=np.concatenate(owners),
        term_start=run_starts(np.concatenate([np.diff(table.term_start) for table in tables])),
        term_dimension=np.concatenate(term_dimensions),
        term_bounds=np.concatenate(term_bounds),
        need_start=run_starts(np.concatenate([np.diff(table.need_start) for table in tables])),
        needs=np.concatenate(needs),
        dimensions=tuple(dimensions),
        literals=tuple(literals),
        pool=tuple(pool),
    )
    return result, origin


def sort_terms(table: ClauseTable) -> ClauseTable:
    """Sort the terms of each clause by dimension."""
    rising = np.diff(table.term_dimension, prepend=-1) > 0
    rising[table.term_start[:-1][np.diff(table.term_start) > 0]] = True
    if rising.all():
        return table
    clause = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
    order = np.lexsort((table.term_dimension, clause))
    return replace(table, term_dimension=table.term_dimension[order], term_bounds=table.term_bounds[order])


def run_starts(lengths: Integers) -> Integers:
    """Where each of several runs begins, and behind the last where it ends (the index pointer of a CSR matrix)."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result


def run_members(start: Integers, rows: Integers) -> Integers:
    """The places of all members of the runs `rows`, one run after another."""
    lengths = start[rows + 1] - start[rows]
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    places: Integers = np.arange(total) + np.repeat(start[rows] - (ends - lengths), lengths)
    return places


def pack_texts(texts: Iterable[bytes]) -> tuple[Integers, Bytes]:
    """Put texts one after another: where each begins, and behind the last where it ends; and all bytes."""
    texts = tuple(texts)
    starts = run_starts(np.array([len(text) for text in texts], np.int64))
    return starts, np.frombuffer(b"".join(texts), np.uint8)


def unpack_texts(starts: Integers, data: Bytes) -> tuple[bytes, ...]:
    whole = data.tobytes()
    return tuple(whole[begin:end] for begin, end in itertools.pairwise(starts.tolist()))


def first_of_runs(values: Integers) -> NDArray[np.bool_]:
    """True where a value differs from the one before it."""
    result = np.ones(len(values), np.bool_)
    result[1:] = values[1:] != values[:-1]
    return result


def find_numbers(own: Integers, numbers: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Where numbers are among `own`, which ascend, and which of them are there at all."""
    places = np.searchsorted(own, numbers)
    there = np.zeros(len(numbers), np.bool_)
    inside = places < len(own)
    there[inside] = own[places[inside]] == numbers[inside]
    return places, there


def pool_places(needs: Integers) -> Integers:
    """The places in the pool of needs of either sign."""
    places: Integers = needs ^ (needs >> 63)
    return places


def string_dimensions(table: ClauseTable) -> NDArray[np.bool_]:
    return np.array([line is KeyLine.STRINGS for _, line in table.dimensions], np.bool_)


def _used(items: Sequence[T], places: Integers) -> list[T]:
    return [items[place] for place in np.unique(places).tolist()]


def _used_literals(table: ClauseTable) -> Integers:
    bounds = table.term_bounds[string_dimensions(table)[table.term_dimension]]
    return used_literals(bounds[:, 0], bounds[:, 1])


def _move_literals(table: ClauseTable, place: dict[bytes, int]) -> Integers:
    rows = string_dimensions(table)[table.term_dimension]
    if not rows.any():
        return table.term_bounds
    moved = np.array([place.get(literal, -1) for literal in table.literals], np.int64)
    bounds = table.term_bounds.copy()
    bounds[rows, 0], bounds[rows, 1] = move_string_bounds(bounds[rows, 0], bounds[rows, 1], moved)
    return bounds
