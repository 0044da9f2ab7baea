"""The text of an advertisement: it comes back as it was, and anything else is refused."""

import random
import string

import pytest

from culver.errors import InvalidFilter
from culver.matching.encoded.encoded_predicate import (
    MOST_CHARACTERS,
    NOTHING,
    EncodedPredicate,
)
from culver.matching.encoded.predicate_summary import PredicateSummary
from culver.matching.filter_texts import predicate_of
from culver.model.language import Constant, Predicate, parse
from support.encoding import encoded
from support.filters import random_filter

START = "encoded 1 cells 64 3"
SMALL = EncodedPredicate(
    "cells", 64, 3, ("exists:number:a b", "exists:string:é"), (b"\1" + bytes(6) + b"\x80",)
)


def test_the_text_is_one_printable_line() -> None:
    assert SMALL.text == "encoded 1 cells 64 3 %C3%A9=xs,a%20b=xn 1 AT8"
    assert NOTHING.text == "encoded 1 cells 64 3 - 0 -"
    assert encoded(parse("TRUE")).text == "encoded 1 cells 64 3 - 1 -"


@pytest.mark.parametrize("encoding", ["cells", "paper"])
def test_a_text_is_read_as_it_was_written(encoding: str) -> None:
    rng = random.Random(7)
    summary = PredicateSummary(encoding)
    for number in range(150):
        predicate = parse(random_filter(rng))
        alone = encoded(predicate, encoding, rng.choice((0.5, 1e-7)))
        assert EncodedPredicate.parse(alone.text) == alone
        if () not in predicate.clauses:
            summary.add(number, [clause for clause in predicate.clauses if len(clause) > 2])
    together = summary.encode()
    assert EncodedPredicate.parse(together.text) == together
    assert together.text.isascii()
    assert together.text.isprintable()


def test_only_a_vector_without_bits_matches_everything() -> None:
    assert encoded(parse("x = 1 OR TRUE")).matches_everything
    assert encoded(parse("x IS NULL OR y = 1")).matches_everything
    assert not encoded(parse("x = 1")).matches_everything
    assert not NOTHING.matches_everything


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1",
        "encoded",
        f"{START} - 0",
        f"{START} - 0 - ",
        f" {START} - 0 -",
        f"{START} - 0 -\n",
        "encoded 2 cells 64 3 - 0 -",
        "encoded 1 magic 64 3 - 0 -",
        "encoded 1 cells 63 3 - 0 -",
        "encoded 1 cells 32 3 - 0 -",
        "encoded 1 cells 8192 3 - 0 -",
        "encoded 1 cells +64 3 - 0 -",
        "encoded 1 cells ６４ 3 - 0 -",
        "encoded 1 cells 64 0 - 0 -",
        "encoded 1 cells 64 17 - 0 -",
        "encoded 1 cells 64 x - 0 -",
        *(f"{START} - {count} -" for count in (-1, 2, 16_385, 10**20, "00", "")),
        # A bit without vectors, at no distance, without an end, with a needless byte, beyond the end.
        *(f"{START} - {rest}" for rest in ("0 AQ", "1 AA", "1 gQ", "1 gQA", "1 QQE", "1 gICAAQ")),
        # No base64, or not the one way to write it.
        *(f"{START} - 1 {packed}" for packed in ("A", "!!", "AQ==", "AR", "A Q", "")),
        # Equal vectors, and vectors in the wrong order.
        *(f"{START} - 2 {packed}" for packed in ("AUA", "Aj8")),
        *(
            f"{START} {forms} 1 AQ"
            for forms in (
                "x",
                "x=",
                "x=zn",
                "x=xq",
                "x=cn3",
                "x=cn",
                "x=xn5",
                "x=xn.xn",
                "x=xs.xn",
                "y=xn,x=xn",
            )
        ),
        *(f"{START} {name}=xn 1 AQ" for name in ("%78", "x%FF", "x" * 1025, "é", "%c3%a9")),
        "x" * (MOST_CHARACTERS + 1),
    ],
    ids=lambda text: text[:60],
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidFilter):
        EncodedPredicate.parse(text)


def test_a_damaged_text_is_refused_or_is_another_ones() -> None:
    rng = random.Random(8)
    whole = encoded(parse("a = 1 AND b > 5 OR name LIKE 'ab%' AND at IN ('x', 'y')")).text
    for _ in range(600):
        place = rng.randrange(len(whole))
        damaged = whole[:place] + rng.choice(string.printable) + whole[place + rng.randrange(3) :]
        try:
            assert EncodedPredicate.parse(damaged).text == damaged
        except InvalidFilter:
            continue


def test_the_predicate_of_an_encoded_text_has_an_empty_clause() -> None:
    assert predicate_of(SMALL.text, "encoded") == Predicate(SMALL.text, Constant(True), ((),))
    assert predicate_of("x = 1", "counting") == parse("x = 1")
