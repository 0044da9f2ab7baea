"""The encoding of events and predicates, slowly: what the filter `encoded` must give."""

from collections.abc import Mapping, Sequence

from culver.matching.encoded.bloom_vectors import vector_of
from culver.matching.encoded.encoded_filter import EncodedFilter
from culver.matching.encoded.encoded_predicate import EncodedPredicate
from culver.matching.encoded.forms import CategoryForm, categories_of_event, hash_category
from culver.matching.encoded.predicate_summary import PredicateSummary
from culver.matching.filter_texts import predicate_of
from culver.model.event import Event
from culver.model.language.predicate import Predicate


def encoded(predicate: Predicate, encoding: str = "cells", rate: float = 0.01) -> EncodedPredicate:
    """The advertisement of a site with one subscription."""
    summary = PredicateSummary(encoding, rate)
    summary.add(0, predicate.clauses)
    return summary.encode()


def filter_of(predicates: Mapping[int, EncodedPredicate]) -> EncodedFilter:
    """A filter with these registrations, each through its text."""
    made = EncodedFilter()
    made.add((number, predicate_of(each.text, "encoded")) for number, each in predicates.items())
    return made


def event_vector(event: Event, forms: Sequence[CategoryForm], bits: int, hashes: int) -> int:
    hashed = map(hash_category, categories_of_event(event, forms))
    return int.from_bytes(vector_of(hashed, bits, hashes), "little")


def is_within(predicate: EncodedPredicate, vector: int) -> bool:
    return any(int.from_bytes(each, "little") & ~vector == 0 for each in predicate.vectors)


def slow_matches(predicates: Mapping[int, EncodedPredicate], event: Event) -> set[int]:
    """The numbers of the predicates that an event matches: it has categories of the forms of all that share its
    number of hashes."""
    found = set()
    for number, each in predicates.items():
        names = {name for other in predicates.values() if other.hashes == each.hashes for name in other.forms}
        vector = event_vector(event, [CategoryForm.parse(name) for name in names], each.bits, each.hashes)
        if event.origin is None and is_within(each, vector):
            found.add(number)
    return found
