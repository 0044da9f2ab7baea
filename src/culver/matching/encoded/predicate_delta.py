"""The difference between two advertisements of a site, for those who have the first and want the second."""

from hashlib import blake2b

import msgspec

from culver.errors import InvalidFilter
from culver.matching.encoded.encoded_predicate import EncodedPredicate


class PredicateDelta(msgspec.Struct, frozen=True):
    """Turns the predicate whose text has the digest `base` into the one with the digest `result`: without the vectors
    at the places `removed` (ascending), with those `added` (sorted), and with these `forms`."""

    base: str
    result: str
    forms: tuple[str, ...]
    removed: tuple[int, ...]
    added: tuple[bytes, ...]


def delta(before: EncodedPredicate, after: EncodedPredicate) -> PredicateDelta | None:
    """The difference; None where the parameters differ, so that the whole predicate must be sent."""
    if (before.encoding, before.bits, before.hashes) != (after.encoding, after.bits, after.hashes):
        return None
    old, new = set(before.vectors), set(after.vectors)
    return PredicateDelta(
        _digest(before),
        _digest(after),
        after.forms,
        tuple(place for place, vector in enumerate(before.vectors) if vector not in new),
        tuple(vector for vector in after.vectors if vector not in old),
    )


def apply_delta(before: EncodedPredicate, delta: PredicateDelta) -> EncodedPredicate:
    """The predicate after a difference. Raises InvalidFilter where it is not one from `before`, or is damaged."""
    if delta.base != _digest(before):
        raise InvalidFilter("the difference is one from another encoded predicate; ask for a whole one")
    gone = set(delta.removed)
    kept = [vector for place, vector in enumerate(before.vectors) if place not in gone]
    vectors = tuple(sorted((*kept, *delta.added)))
    after = EncodedPredicate(before.encoding, before.bits, before.hashes, delta.forms, vectors)
    after.check()
    if delta.result != _digest(after):
        raise InvalidFilter("the difference between encoded predicates is damaged; ask for a whole one")
    return EncodedPredicate.parse(after.text)


def _digest(predicate: EncodedPredicate) -> str:
    return blake2b(predicate.text.encode(), digest_size=8).hexdigest()
