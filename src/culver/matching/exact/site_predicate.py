"""The predicate by which one site asks another for events: encoded or exact."""

from culver.matching.encoded.encoded_predicate import EncodedPredicate
from culver.matching.exact.exact_predicate import START, ExactPredicate

SitePredicate = EncodedPredicate | ExactPredicate


def read_predicate(text: str) -> SitePredicate:
    """Read the text of either kind, from whomever. Raises InvalidFilter."""
    return ExactPredicate.parse(text) if text.startswith(START) else EncodedPredicate.parse(text)
