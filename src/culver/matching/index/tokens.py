"""Tokens: the conditions of a clause as places in a small table, so that most clauses are excluded by two looks.

An event marks the tokens of all that is true of it: its values, its attributes, the needs that it meets. A clause has
the tokens of the two conditions that are rarest among the clauses; where one of them is not marked, the clause
does not match:

    table     . . 1 . . . 1 . . 1 . . . . 1 . .      marked by the event at hand
                  ^ (topic, 'oil')      ^ (words)
    clause    topic = 'oil' AND words > 10           two tokens, 4 bytes: a candidate

Different conditions may share a token, so candidates are checked in full.
"""

import numpy as np

from culver.matching.index.arrays import Integers, Ranks, compiled

TOKENS = 1 << 14  # a byte each, half of the first cache
ALWAYS = 0  # the token that every event marks

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
    """That an event has the attribute."""
    return int((np.uint64(2 * dimension + 1) * _SPREAD) >> _SHIFT)


@compiled
def token_of_need(need: int) -> int:
    return int((np.uint64(2 * need + 2) * _SPREAD) >> _SHIFT)


@compiled
def tokens_of_dimensions(count: int) -> Integers:
    """The tokens of the dimensions 0 to count - 1."""
    return np.array([token_of_dimension(dimension) for dimension in range(count)], np.int64)


@compiled
def tokens_of_terms(dimensions: Integers, bounds: Integers, tokens: Ranks) -> None:
    """The token of each term: of its value where it is an equality, else of its dimension. `bounds` are terms x 2."""
    for term in range(len(dimensions)):
        if bounds[term, 0] == bounds[term, 1]:
            tokens[term] = token_of_value(dimensions[term], bounds[term, 0])
        else:
            tokens[term] = token_of_dimension(dimensions[term])


@compiled
def tokens_of_needs(needs: Integers, tokens: Ranks) -> None:
    """The token of each need; one that must not hold has none to mark."""
    for i in range(len(needs)):
        tokens[i] = token_of_need(needs[i]) if needs[i] >= 0 else ALWAYS


@compiled
def choose_tokens(
    term_start: Integers,
    term_tokens: Ranks,
    need_start: Integers,
    need_tokens: Ranks,
    frequency: Integers,
    result: Ranks,
) -> None:
    """The two rarest tokens of each clause (the same one twice where it has no other), by the frequency of
    tokens."""
    for clause in range(len(term_start) - 1):
        one = other = ALWAYS
        terms = term_start[clause + 1] - term_start[clause]
        needs = need_start[clause + 1] - need_start[clause]
        for i in range(terms + needs):
            if i < terms:
                token = int(term_tokens[term_start[clause] + i])
            else:
                token = int(need_tokens[need_start[clause] + i - terms])
            if frequency[token] < frequency[one]:
                one, other = token, one
            elif frequency[token] < frequency[other]:
                other = token
        result[2 * clause] = one
        result[2 * clause + 1] = other if other != ALWAYS else one
