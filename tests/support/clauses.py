"""Clause tables in a form that can be compared, and segments from their bytes."""

from collections.abc import Sequence

from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.segments import container
from culver.matching.index.segments.columnar_segment import ColumnarSegment


def described(table: ClauseTable) -> list[tuple[object, ...]]:
    """The clauses in a form that does not depend on places, sorted."""
    result: list[tuple[object, ...]] = []
    for clause, registration in enumerate(table.clause_registration.tolist()):
        terms = []
        for term in range(table.term_start[clause], table.term_start[clause + 1]):
            attribute, line = table.dimensions[table.term_dimension[term]]
            bounds: list[object] = table.term_bounds[term].tolist()
            if line is KeyLine.STRINGS:
                bounds = [_literal(table, bounds[0], 2), _literal(table, bounds[1], 0)]
            terms.append((attribute, str(line), *map(str, bounds)))
        signed = table.needs[table.need_start[clause] : table.need_start[clause + 1]].tolist()
        needs = [f"not {table.pool[~need]}" if need < 0 else table.pool[need] for need in signed]
        number, since = int(table.numbers[registration]), int(table.since[registration])
        result.append((number, since, tuple(terms), tuple(sorted(needs))))
    return sorted(result, key=repr)


def _literal(table: ClauseTable, key: object, even: int) -> str:
    assert isinstance(key, int)
    if abs(key) > 2**62:
        return "none"
    place = key - 1 if key % 2 else key - even
    return f"{table.literals[place // 2]!r} {key % 2}"


def from_chunks(chunks: Sequence[bytes]) -> ColumnarSegment:
    """A segment in memory, from what `segment.encode` made."""
    return ColumnarSegment(container.decode(memoryview(b"".join(chunks)), "a segment in memory"), "memory")
