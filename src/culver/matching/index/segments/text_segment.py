"""A segment of a scheme other than `columnar`: filters as text, and the filter that is made of them.

container of kind "texts"
  meta     {"scheme": ..., "count": registrations}
  arrays   numbers, since              per registration, ascending by number
           text_start, text_bytes      what each was written as

A process makes the filter once, however many versions name the segment, and only if it matches events: a text of two
conditions takes about 0.1 ms to parse. Recently parsed texts are remembered, because a new segment mostly holds what
was in the small ones before it. Those of encoded predicates are long, and not parsed here.
"""

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Bytes, Integers
from culver.matching.filter import Filter, Matches
from culver.matching.filter_texts import predicate_of
from culver.matching.index.compile.clause_table import ClauseTable, find_numbers, pack_texts, unpack_texts
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.segments import container
from culver.model import ENCODED, Event
from culver.model.columns import encode as encode_events
from culver.model.language import Predicate

KIND = "texts"
_REMEMBERED = 1 << 14  # texts
_PROBE = Event({}, {}, b"{}")

Filters = Callable[[str], Callable[[], Filter]]
"""Makes an empty filter of a scheme; raises InvalidConfiguration for a scheme that it does not know."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Registrations of one scheme other than `columnar`, ascending by number."""

    scheme: str
    numbers: Integers
    since: Integers
    texts: tuple[str, ...]

    def select_registrations(self, kept: NDArray[np.bool_]) -> "Texts":
        chosen = itertools.compress(self.texts, kept.tolist())
        return Texts(self.scheme, self.numbers[kept], self.since[kept], tuple(chosen))


def texts_of(scheme: str, entries: Sequence[Entry]) -> Texts:
    """The texts of entries, whose numbers must be distinct."""
    ordered = sorted(entries, key=lambda entry: entry.number)
    return Texts(
        scheme,
        np.array([entry.number for entry in ordered], np.int64),
        np.array([entry.since for entry in ordered], np.int64),
        tuple(entry.predicate.text for entry in ordered),
    )


def compile_texts(texts: Texts) -> ClauseTable:
    """The clauses of the texts, parsed again: a partitioner looks at clauses, whatever the scheme."""
    columns = zip(texts.numbers.tolist(), texts.texts, texts.since.tolist(), strict=True)
    return compile_entries(
        Entry(number, _predicate(text, texts.scheme), since, texts.scheme) for number, text, since in columns
    )


def join_texts(parts: Sequence[Texts]) -> tuple[Texts, Integers]:
    """Put several of one scheme together, and tell where each registration comes from: entry i of the result is
    registration `origin[i]` of the parts put one after another."""
    numbers = np.concatenate([part.numbers for part in parts])
    origin = np.argsort(numbers, kind="stable")
    since = np.concatenate([part.since for part in parts])
    every = [text for part in parts for text in part.texts]
    ordered = tuple(every[place] for place in origin.tolist())
    return Texts(parts[0].scheme, numbers[origin], since[origin], ordered), origin


class TextArrays(NamedTuple):
    numbers: Integers
    since: Integers
    text_start: Integers
    text_bytes: Bytes


class TextSegment:
    """Registrations in ascending order of number. Immutable but for the filter, which is made on first use. Threads
    may share it; they match one after another."""

    def __init__(self, opened: container.Container) -> None:
        self.scheme = str(opened.meta["scheme"])
        self.arrays = TextArrays(*(opened.arrays[name] for name in TextArrays._fields))
        self._filter: Filter | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.arrays.numbers)

    def content(self) -> Texts:
        texts = unpack_texts(self.arrays.text_start, self.arrays.text_bytes)
        return Texts(
            self.scheme, self.arrays.numbers, self.arrays.since, tuple(text.decode() for text in texts)
        )

    def places(self, numbers: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """The places of these registrations, and which of them are here at all."""
        return find_numbers(self.arrays.numbers, numbers)

    def prepare(self, filters: Filters) -> None:
        """Make the filter, unless there is one."""
        with self._lock:
            self._made(filters)

    def match(self, batch: pa.RecordBatch, filters: Filters) -> Matches:
        """All registrations that each event satisfies, in effect or not."""
        with self._lock:
            return self._made(filters).match(batch)

    def _made(self, filters: Filters) -> Filter:
        if self._filter is None:
            made = filters(self.scheme)()
            content = self.content()
            predicates = (_predicate(text, self.scheme) for text in content.texts)
            made.add(zip(content.numbers.tolist(), predicates, strict=True))
            for probe in encode_events([_PROBE], 0):
                made.match(probe)  # builds tables and loads kernels before events wait for them
            self._filter = made
        return self._filter


def encode(texts: Texts) -> list[bytes]:
    arrays = TextArrays(texts.numbers, texts.since, *pack_texts(text.encode() for text in texts.texts))
    meta = {"scheme": texts.scheme, "count": len(texts.numbers)}
    return container.encode(KIND, meta, arrays._asdict())


_remembered = lru_cache(maxsize=_REMEMBERED)(predicate_of)


def _predicate(text: str, scheme: str) -> Predicate:
    return (predicate_of if scheme == ENCODED else _remembered)(text, scheme)
