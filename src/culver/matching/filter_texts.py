"""The text that a registry stores as a registration's filter, which the registration's scheme reads."""

from culver.config import UNLIMITED_FILTERS
from culver.model import ENCODED
from culver.model.language import Constant, Predicate, parse


def predicate_of(text: str, scheme: str) -> Predicate:
    """The predicate of a registration.

    That of an encoded one has an empty clause, so that whatever divides registrations by their clauses sends it every
    event; only the filter of the scheme reads the text. Raises InvalidFilter for any other text without a meaning."""
    if scheme == ENCODED:
        return Predicate(text, Constant(True), ((),))
    return parse(text, UNLIMITED_FILTERS)
