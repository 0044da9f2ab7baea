"""Finds the clauses that no other clause covers.

    a > 5 AND b = 'x'      is covered by      b = 'x'           whatever matches the first matches the second
    a > 5                  is covered by      a > 3
    a IN (7, 9)            is covered by      a > 5

A clause covers another if each of its constraints follows from one of the other's.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from culver.model.language import Between, Clause, Constraint, OneOf

# Beyond so many, a clause is compared with the clauses of fewest constraints only. Covered clauses do no harm.
_MOST_COMPARED = 256
# A clause with more constraints than this has too many subsets to look all of them up.
_MOST_CONSTRAINTS = 8

_Key = tuple[frozenset[Constraint], frozenset[str]]


def without_covered(clauses: Iterable[Clause]) -> list[Clause]:
    """The clauses that no other one covers, in the order of their texts. Finds those that differ in ranges and in
    constraints that one of them lacks."""
    ordered = sorted(set(clauses), key=lambda clause: (len(clause), repr(clause)))
    buckets: dict[_Key, list[Clause]] = {}
    for clause in ordered:
        buckets.setdefault(_key(clause), []).append(clause)
    dropped: set[Clause] = set()
    for clause in ordered:
        for key in _wider_keys(clause):
            rivals = buckets.get(key, ())[:_MOST_COMPARED]
            if any(each is not clause and each not in dropped and _covers(each, clause) for each in rivals):
                dropped.add(clause)
                break
    return [clause for clause in ordered if clause not in dropped]


def _key(clause: Clause) -> _Key:
    """The constraints that must be found as they are, and the attributes of the others."""
    others = frozenset(each for each in clause if not isinstance(each, Between))
    return others, frozenset(each.attribute for each in clause if isinstance(each, Between))


def _wider_keys(clause: Clause) -> Iterable[_Key]:
    """The keys of clauses that may cover this one."""
    others = [each for each in clause if not isinstance(each, Between)]
    attributes = sorted({each.attribute for each in clause if isinstance(each, Between | OneOf)})
    if len(others) + len(attributes) > _MOST_CONSTRAINTS:
        yield _key(clause)
        return
    for size in range(len(others) + 1):
        for kept in combinations(others, size):
            for ranges in range(len(attributes) + 1):
                for ranged in combinations(attributes, ranges):
                    yield frozenset(kept), frozenset(ranged)


def _covers(wide: Clause, narrow: Clause) -> bool:
    return all(any(_follows(each, from_) for from_ in narrow) for each in wide)


def _follows(wanted: Constraint, given: Constraint) -> bool:
    """Whether every event that satisfies `given` satisfies `wanted`."""
    if wanted == given:
        return True
    if not isinstance(wanted, Between) or not isinstance(given, Between | OneOf):
        return False
    if (wanted.attribute, wanted.domain) != (given.attribute, given.domain):
        return False
    if isinstance(given, OneOf):
        return not given.negated and all(_holds(value, wanted) for value in given.values)
    return _is_above(given, wanted) and _is_below(given, wanted)


def _holds(value: Any, wanted: Between) -> bool:
    point = Between(wanted.attribute, wanted.domain, value, True, value, True)
    return _is_above(point, wanted) and _is_below(point, wanted)


def _is_above(given: Between, wanted: Between) -> bool:
    low: Any = given.low
    if wanted.low is None:
        return True
    return low is not None and (
        low > wanted.low or (low == wanted.low and (wanted.low_closed or not given.low_closed))
    )


def _is_below(given: Between, wanted: Between) -> bool:
    high: Any = given.high
    if wanted.high is None:
        return True
    return high is not None and (
        high < wanted.high or (high == wanted.high and (wanted.high_closed or not given.high_closed))
    )
