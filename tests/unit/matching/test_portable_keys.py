import random

import numpy as np

from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import HIGHEST_KEY, LOWEST_KEY, KeyLine
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.portable_keys import (
    event_hashes,
    event_keys,
    hash_keys,
    term_bounds,
    term_hashes,
)
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from support.families import WORDS

SYMBOL = ("s", KeyLine.STRINGS)


def table_of(*texts: str) -> ClauseTable:
    return compile_entries(Entry(number, parse(text)) for number, text in enumerate(texts))


def columns_of(*words: str) -> BatchColumns:
    return BatchColumns(concat(encode([Event({}, {"s": word}, b"{}") for word in words], 0)))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def bounds_of(text: str) -> list[int]:
    low, high = term_bounds(table_of(text))
    return [int(low[0]), int(high[0])]


def test_a_string_within_an_interval_has_its_head_within_the_bounds() -> None:
    rng = random.Random(7)
    keys = event_keys(columns_of(*WORDS), SYMBOL)
    assert keys is not None
    for _ in range(300):
        low, high = sorted(rng.sample(WORDS, 2))
        text = f"s {rng.choice(('>', '>='))} {quoted(low)} AND s {rng.choice(('<', '<='))} {quoted(high)}"
        below, above = bounds_of(text)
        inside = [low < word < high for word in WORDS]
        assert ((below <= keys[0]) & (keys[0] <= above))[inside].all(), text


def test_strings_that_differ_early_are_told_apart_by_their_bounds() -> None:
    keys = event_keys(columns_of("apple", "pear", "plum", "quince"), SYMBOL)
    assert keys is not None
    below, above = bounds_of("s LIKE 'p%'")
    assert ((below <= keys[0]) & (keys[0] <= above)).tolist() == [False, True, True, False]


def test_missing_bounds_stay_missing() -> None:
    assert bounds_of("s >= 'a'")[1] == HIGHEST_KEY
    assert bounds_of("s < 'a'")[0] == LOWEST_KEY
    assert bounds_of("s NOT LIKE '%a'") == [LOWEST_KEY, HIGHEST_KEY]  # a table without any literal


def test_an_equality_and_an_event_with_its_value_have_the_same_hash() -> None:
    table = table_of(*(f"s = {quoted(word)}" for word in WORDS))
    is_point, hashes = term_hashes(table, np.arange(len(WORDS)))
    found = event_hashes(columns_of(*WORDS), SYMBOL)
    assert found is not None
    assert is_point.all()
    assert hashes.tolist() == found[0].tolist()
    assert len(set(hashes.tolist())) == len(WORDS)


def test_intervals_are_no_equalities() -> None:
    table = table_of("s > 'a' AND s < 'b'", "s LIKE 'a%'", "x > 1", "x BETWEEN 1 AND 2", "s = 'a'", "x = 1")
    is_point, _ = term_hashes(table, np.arange(6))
    assert is_point.tolist() == [False] * 4 + [True] * 2


def test_hashes_are_the_same_in_every_version() -> None:
    assert hash_keys(np.array([0, -1], np.int64)).tolist() == [16294208416658607535, 16490336266968443936]
    table = table_of("s = 'ABC'")
    assert term_hashes(table, np.array([0]))[1].tolist() == [12243604424009186817]


def test_bits_of_hashes_are_even() -> None:
    buckets = np.bincount((hash_keys(np.arange(64_000)) >> np.uint64(58)).astype(np.int64), minlength=64)
    assert buckets.min() > 850
    assert buckets.max() < 1150
