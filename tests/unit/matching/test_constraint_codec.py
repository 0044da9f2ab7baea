import random

import pytest

from culver.matching.index.compile.constraint_codec import (
    compared_domains,
    constraint_from_text,
    constraint_to_text,
)
from culver.model.language.parser import parse
from culver.model.language.predicate import (
    Arithmetic,
    Attribute,
    Comparison,
    Computed,
    Literal,
    OneOf,
    Operator,
    domains_of,
)
from culver.model.values import Domain, Timestamp
from support.filters import random_filter


def test_every_constraint_survives_its_text() -> None:
    rng = random.Random(3)
    seen: set[str] = set()
    for _ in range(600):
        for clause in parse(random_filter(rng)).clauses:
            for constraint in clause:
                text = constraint_to_text(constraint)
                again = constraint_from_text(text)
                assert again == constraint
                assert constraint_to_text(again) == text
                seen.add(type(constraint).__name__)
    assert seen == {"Between", "OneOf", "Pattern", "Contains", "Presence", "Computed"}


def test_the_domains_of_texts_are_those_of_their_constraints() -> None:
    rng = random.Random(4)
    for _ in range(300):
        for clause in parse(random_filter(rng)).clauses:
            wanted = [each for constraint in clause for each in domains_of(constraint)]
            assert list(compared_domains([constraint_to_text(each) for each in clause])) == wanted


def test_texts_tell_integers_reals_booleans_and_timestamps_apart() -> None:
    constraints = [
        Computed(
            Comparison(Operator.LESS, Arithmetic("+", Attribute("x"), Literal(value)), Literal(Timestamp(1)))
        )
        for value in (1, 1.0, True, "1", Timestamp(1))
    ]
    assert len({constraint_to_text(constraint) for constraint in constraints}) == 5
    for constraint in constraints:
        assert repr(constraint_from_text(constraint_to_text(constraint))) == repr(constraint)


def test_large_integers_keep_every_digit() -> None:
    constraint = OneOf("x", Domain.NUMBER, (2**53 + 1, 2**63 - 1), negated=True)
    assert constraint_from_text(constraint_to_text(constraint)) == constraint


def test_unknown_text_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown constraint"):
        constraint_from_text('["sounds like", "x", "y"]')
