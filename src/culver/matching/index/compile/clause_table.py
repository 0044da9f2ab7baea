"""Clauses in columns: what is compiled, merged and laid out, whatever the file format.

    registrations  numbers, since                      ascending by number
    clauses        registration (place among them)     any order
      terms        dimension, low, high                at most one per dimension, ascending by dimension
      needs        place in the pool, or ~place        constraints that are no interval

A dimension is an attribute on one line of keys (see `bounds`). A term says that the event has a value there and that
its key lies in [low, high]. A need says that a constraint of the pool holds, or, as `~place`, that it does
not. A clause holds when all its terms and needs do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.key_lines import Line, move_string_bounds, used_literals

Dimension = tuple[str, Line]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClauseTable:
    numbers: NDArray[np.int64]
    since: NDArray[np.int64]
    clause_registration: NDArray[np.int64]
    term_start: NDArray[np.int64]  # one more than there are clauses
    term_dimension: NDArray[np.int64]
    term_bounds: NDArray[np.int64]  # (terms, 2)
    need_start: NDArray[np.int64]  # one more than there are clauses
    needs: NDArray[np.int64]
    dimensions: tuple[Dimension, ...]
    literals: tuple[bytes, ...]  # sorted; the strings that terms refer to
    pool: tuple[str, ...]  # constraints as text, distinct; see `codec`


def starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of several runs begins, and after the last where it ends."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result


def find(own: NDArray[np.int64], numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where numbers are among `own`, which ascend, and which of them are there at all."""
    places = np.searchsorted(own, numbers)
    there = np.zeros(len(numbers), np.bool_)
    inside = places < len(own)
    there[inside] = own[places[inside]] == numbers[inside]
    return places, there


def first_of_runs(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True where a value differs from the one before it."""
    result = np.ones(len(values), np.bool_)
    result[1:] = values[1:] != values[:-1]
    return result


def gather(start: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of all members of the runs `rows`, one run after another."""
    lengths = start[rows + 1] - start[rows]
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.arange(total) + np.repeat(start[rows] - (ends - lengths), lengths)
    return places


def pool_places(needs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places in the pool of needs of either sign."""
    places: NDArray[np.int64] = needs ^ (needs >> 63)
    return places


def select_clauses(table: ClauseTable, rows: NDArray[np.int64]) -> ClauseTable:
    """The same registrations with only these clauses, in this order."""
    terms, needs = gather(table.term_start, rows), gather(table.need_start, rows)
    return replace(
        table,
        clause_registration=table.clause_registration[rows],
        term_start=starts(np.diff(table.term_start)[rows]),
        term_dimension=table.term_dimension[terms],
        term_bounds=table.term_bounds[terms],
        need_start=starts(np.diff(table.need_start)[rows]),
        needs=table.needs[needs],
    )


def select_registrations(table: ClauseTable, kept: NDArray[np.bool_]) -> ClauseTable:
    """Only the registrations marked in `kept`, and their clauses."""
    place = np.cumsum(kept) - 1
    chosen = select_clauses(table, np.flatnonzero(kept[table.clause_registration]))
    return replace(
        chosen,
        numbers=table.numbers[kept],
        since=table.since[kept],
        clause_registration=place[chosen.clause_registration],
    )


def concatenate(tables: Sequence[ClauseTable]) -> tuple[ClauseTable, NDArray[np.int64]]:
    """All registrations of several tables in one, and where each came from: entry i of the result is
    registration `origin[i]` of the tables put one after another. Dimensions, literals and pool hold
    only what is still in use."""
    dimensions = sorted({d for table in tables for d in _used_dimensions(table)})
    literals = sorted({t for table in tables for t in _used(table.literals, _used_literals(table))})
    pool = sorted(
        {text for table in tables for text in _used(table.pool, np.unique(pool_places(table.needs)))}
    )
    dimension_place = {dimension: i for i, dimension in enumerate(dimensions)}
    literal_place = {literal: i for i, literal in enumerate(literals)}
    pool_place = {text: i for i, text in enumerate(pool)}

    numbers = np.concatenate([table.numbers for table in tables])
    origin = np.argsort(numbers, kind="stable")
    place = np.empty_like(origin)
    place[origin] = np.arange(len(origin))
    bases = starts(np.array([len(table.numbers) for table in tables], np.int64))
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
        term_start=starts(np.concatenate([np.diff(table.term_start) for table in tables])),
        term_dimension=np.concatenate(term_dimensions),
        term_bounds=np.concatenate(term_bounds),
        need_start=starts(np.concatenate([np.diff(table.need_start) for table in tables])),
        needs=np.concatenate(needs),
        dimensions=tuple(dimensions),
        literals=tuple(literals),
        pool=tuple(pool),
    )
    return result, origin


def sort_terms(table: ClauseTable) -> ClauseTable:
    """Terms in ascending order of dimension within each clause."""
    rising = np.diff(table.term_dimension, prepend=-1) > 0
    rising[table.term_start[:-1][np.diff(table.term_start) > 0]] = True
    if rising.all():
        return table
    clause = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
    order = np.lexsort((table.term_dimension, clause))
    return replace(table, term_dimension=table.term_dimension[order], term_bounds=table.term_bounds[order])


def _used(items: Sequence[T], places: NDArray[np.int64]) -> list[T]:
    return [items[place] for place in places.tolist()]


def _used_dimensions(table: ClauseTable) -> list[Dimension]:
    return _used(table.dimensions, np.unique(table.term_dimension))


def _string_terms(table: ClauseTable) -> NDArray[np.bool_]:
    is_string = np.array([line is Line.STRINGS for _, line in table.dimensions], np.bool_)
    return is_string[table.term_dimension]


def _used_literals(table: ClauseTable) -> NDArray[np.int64]:
    bounds = table.term_bounds[_string_terms(table)]
    return used_literals(bounds[:, 0], bounds[:, 1])


def _move_literals(table: ClauseTable, place: dict[bytes, int]) -> NDArray[np.int64]:
    rows = _string_terms(table)
    if not rows.any():
        return table.term_bounds
    moved = np.array([place.get(literal, -1) for literal in table.literals], np.int64)
    bounds = table.term_bounds.copy()
    bounds[rows, 0], bounds[rows, 1] = move_string_bounds(bounds[rows, 0], bounds[rows, 1], moved)
    return bounds
