"""Tokens: the conditions of a clause as places in a small table, so that two looks exclude most clauses.

An event marks the tokens of all that is true of it: its values, its attributes, the needs that it meets. A clause has
the tokens of its two rarest conditions. Where one of them is not marked, the clause does not match:

    table     . . 1 . . . 1 . . 1 . . . . 1 . .      marked by the event at hand
                  ^ (topic, 'oil')      ^ (words)
    clause    topic = 'oil' AND words > 10           two tokens, 4 bytes: a candidate

Different conditions may share a token, so candidates are checked in full.
"""

import numpy as np

from culver.jit import Integers, Ranks, compiled
from culver.matching.index.compile.key_lines import HIGHEST_KEY

TOKENS = 1 << 14
"""A byte each: half of the first cache."""
ALWAYS = 0
"""The token that every event marks."""

_SHIFT = np.uint64(50)
_HALF = np.uint64(32)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_APART = np.uint64(0xD1B54A32D192ED03)


@compiled
def token_of_value(dimension: int, key: int) -> int:
    mixed = np.uint64(key) + np.uint64(dimension) * _APART
    return int(((mixed ^ (mixed >> _HALF)) * _SPREAD) >> _SHIFT)


@compiled
def token_of_dimension(dimension: int) -> int:
    """The token of having the attribute."""
    return int((np.uint64(2 * dimension + 1) * _SPREAD) >> _SHIFT)


@compiled
def token_of_need(need: int) -> int:
    return int((np.uint64(2 * need + 2) * _SPREAD) >> _SHIFT)


@compiled
def clause_tokens(
    term_start: Integers,
    term_dimension: Integers,
    term_bounds: Integers,
    need_start: Integers,
    needs: Integers,
    dimensions: int,
) -> Ranks:
    """The two tokens of each clause, those of its rarest conditions; the same one twice where it has no other.

    An equality has the token of its value, a range that of its dimension. A need that must not hold has none."""
    terms = np.empty(len(term_dimension), np.int64)
    frequency = np.zeros(TOKENS, np.int64)
    for term in range(len(terms)):
        if term_bounds[term, 0] == term_bounds[term, 1]:
            terms[term] = token_of_value(term_dimension[term], term_bounds[term, 0])
        else:
            terms[term] = token_of_dimension(term_dimension[term])
        frequency[terms[term]] += 1
    for need in needs:
        if need >= 0:
            frequency[token_of_need(need)] += 1
    # Ranges come last, however rare: every event with a value there marks their token.
    for dimension in range(dimensions):
        frequency[token_of_dimension(dimension)] += len(terms) + len(needs)
    frequency[ALWAYS] = HIGHEST_KEY
    result = np.empty(2 * (len(term_start) - 1), np.uint16)
    for clause in range(len(term_start) - 1):
        one = np.int64(ALWAYS)
        other = one
        for i in range(
            term_start[clause], term_start[clause + 1] + need_start[clause + 1] - need_start[clause]
        ):
            if i < term_start[clause + 1]:
                token = terms[i]
            else:
                need = needs[need_start[clause] + i - term_start[clause + 1]]
                token = np.int64(token_of_need(need) if need >= 0 else ALWAYS)
            if frequency[token] < frequency[one]:
                one, other = token, one
            elif frequency[token] < frequency[other]:
                other = token
        result[2 * clause] = one
        result[2 * clause + 1] = other if other != ALWAYS else one
    return result
