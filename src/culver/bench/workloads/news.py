"""W3: B-DRP's news (section 5.1.4 of its paper): many attribute names, words, and large predicates.

An event has 10 attributes out of a pool of 30 names, drawn uniformly; 18 of the names hold strings and 12
hold integers, hence 60 % strings. Strings are terms of a dictionary of 200 with Zipf frequencies (the k-th
term has weight 1/k), integers are uniform in 0..100. The dictionary is the same for every seed.

A filter is a disjunction of 20 conjunctions of 1 to 5 constraints on different attributes, with values
drawn as those of events. A prefix, suffix or substring is 2 to 4 letters of a term.
"""

import functools
import string
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.workloads.workload import batch_of, event_stream, filter_stream

# fmt: off
STRING_NAMES = (
    "agency", "title", "topic", "section", "region", "country", "city", "author", "wire", "language",
    "keyword", "person", "company", "product", "genre", "series", "edition", "desk",
)
INTEGER_NAMES = (
    "priority", "urgency", "words", "images", "links", "revision", "rank", "score", "reach", "shares",
    "comments", "hour",
)
# fmt: on
NAMES = STRING_NAMES + INTEGER_NAMES
ATTRIBUTES_PER_EVENT = 10
CLAUSES = 20
MAX_CONSTRAINTS = 5
TERMS = 200
_DICTIONARY_SEED = 20_091_130

STRING_OPERATORS = ("=", "prefix", "suffix", "substring")
STRING_SHARES = (0.7, 0.1, 0.1, 0.1)
INTEGER_OPERATORS = ("=", "<", ">")
INTEGER_SHARES = (0.8, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class Values:
    """The attributes of `count` events: their names, of shape (count, 10), and a value of either kind for each of
    the 30 names, of which only the event's own ten count."""

    names: NDArray[np.int64]
    terms: NDArray[np.int64]
    integers: NDArray[np.int64]


class NewsWorkload:
    name = "W3"
    subscriptions = 1_000

    def values(self, count: int, seed: int) -> Values:
        random = event_stream(seed)
        return Values(
            names=np.sort(_distinct_names(random, (count,), ATTRIBUTES_PER_EVENT), axis=-1),
            terms=random.choice(TERMS, size=(count, len(NAMES)), p=_frequencies()),
            integers=random.integers(0, 101, size=(count, len(NAMES))),
        )

    def filters(self, count: int, seed: int) -> list[str]:
        return [
            " OR ".join(f"({' AND '.join(constraints)})" for constraints in clauses)
            for clauses in self.clauses(count, seed)
        ]

    def clauses(self, count: int, seed: int) -> list[list[list[str]]]:
        """The constraints of each clause of each filter, as texts."""
        random = filter_stream(seed)
        shape = (count, CLAUSES, MAX_CONSTRAINTS)
        lengths = random.integers(1, MAX_CONSTRAINTS + 1, size=(count, CLAUSES))
        columns = (
            _distinct_names(random, (count, CLAUSES), MAX_CONSTRAINTS),
            random.choice(len(STRING_OPERATORS), size=shape, p=STRING_SHARES),
            random.choice(len(INTEGER_OPERATORS), size=shape, p=INTEGER_SHARES),
            random.choice(TERMS, size=shape, p=_frequencies()),
            random.integers(0, 101, size=shape),
            random.random(shape),
            random.integers(2, 5, size=shape),
        )
        rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
        texts = np.array([_constraint_text(*row) for row in rows], object).reshape(shape).tolist()
        return [
            [constraints[:length] for constraints, length in zip(clauses, own, strict=True)]
            for clauses, own in zip(texts, lengths.tolist(), strict=True)
        ]

    def events(self, count: int, seed: int) -> list[dict[str, Any]]:
        drawn = self.values(count, seed)
        dictionary = terms()
        words = len(STRING_NAMES)
        return [
            {
                NAMES[name]: dictionary[row_terms[name]] if name < words else row_integers[name]
                for name in row_names
            }
            for row_names, row_terms, row_integers in zip(
                drawn.names.tolist(), drawn.terms.tolist(), drawn.integers.tolist(), strict=True
            )
        ]

    def event_batch(self, count: int, seed: int) -> pa.RecordBatch:
        drawn = self.values(count, seed)
        absent = np.ones((count, len(NAMES)), bool)
        absent[np.arange(count)[:, None], drawn.names] = False
        dictionary = pa.array(terms())
        columns = {}
        for i, name in enumerate(NAMES):
            if absent[:, i].all():
                continue
            if i < len(STRING_NAMES):
                numbers = pa.array(drawn.terms[:, i].copy(), mask=absent[:, i])
                columns[f"d:s:{name}"] = dictionary.take(numbers)
            else:
                columns[f"d:i:{name}"] = pa.array(drawn.integers[:, i].copy(), mask=absent[:, i])
        return batch_of(self.events(count, seed), columns)


def affix(term: str, operator: str, start: float, size: int) -> str:
    """The part of a term that a prefix, suffix or substring constraint asks for."""
    if operator == "prefix":
        return term[:size]
    if operator == "suffix":
        return term[-size:]
    first = int(start * (max(len(term) - size, 0) + 1))
    return term[first : first + size]


@functools.cache
def terms() -> list[str]:
    """The dictionary: 200 distinct words of 3 to 12 letters, the most frequent first."""
    random = np.random.default_rng(_DICTIONARY_SEED)
    words: dict[str, None] = {}
    while len(words) < TERMS:
        letters = random.integers(26, size=int(random.integers(3, 13)))
        words["".join(string.ascii_lowercase[letter] for letter in letters)] = None
    return list(words)


def _frequencies() -> NDArray[np.float64]:
    weights = 1.0 / np.arange(1, TERMS + 1)
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def _distinct_names(random: np.random.Generator, shape: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """`count` different names out of the pool, uniformly and in random order."""
    keys = random.random((*shape, len(NAMES)))
    chosen: NDArray[np.int64] = np.argsort(keys, axis=-1)[..., :count]
    return chosen


def _constraint_text(
    name: int, string_operator: int, integer_operator: int, term: int, integer: int, start: float, size: int
) -> str:
    """`start` is where in its term a substring begins, as a fraction of the room there is; `size` counts the letters
    of a prefix, suffix or substring."""
    if name >= len(STRING_NAMES):
        return f"{NAMES[name]} {INTEGER_OPERATORS[integer_operator]} {integer}"
    operator = STRING_OPERATORS[string_operator]
    if operator == "=":
        return f"{NAMES[name]} = '{terms()[term]}'"
    before = "" if operator == "prefix" else "%"
    after = "" if operator == "suffix" else "%"
    return f"{NAMES[name]} LIKE '{before}{affix(terms()[term], operator, start, size)}{after}'"
