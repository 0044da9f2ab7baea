"""LIKE patterns against a slow matcher that follows the definition word by word."""

import random
import time

import pytest

from culver.model.language.patterns import like, parse_pattern, shape_of, write_pattern
from culver.model.language.predicate import PatternShape


def plainly_like(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(plainly_like(pattern[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and plainly_like(pattern[1:], text[1:])


def test_matching_agrees_with_the_definition() -> None:
    rng = random.Random(20)
    matched = 0
    for _ in range(20_000):
        pattern = "".join(rng.choices("ab%_", k=rng.randrange(7)))
        text = "".join(rng.choices("ab", k=rng.randrange(8)))
        result = like(*parse_pattern(pattern, None), text)
        assert result is plainly_like(pattern, text), (pattern, text)
        matched += result
    assert 2_000 < matched < 18_000


@pytest.mark.parametrize(
    ("pattern", "parts", "shape", "text"),
    [
        ("ab%", ("ab", "%"), PatternShape.PREFIX, "ab"),
        ("%ab", ("%", "ab"), PatternShape.SUFFIX, "ab"),
        ("%ab%%", ("%", "ab", "%"), PatternShape.SUBSTRING, "ab"),
        ("a!%b%", ("a%b", "%"), PatternShape.PREFIX, "a%b"),
        ("a!!%", ("a!", "%"), PatternShape.PREFIX, "a!"),
        ("ab_", ("ab", "_"), PatternShape.GENERAL, ""),
        ("_ab%", ("_", "ab", "%"), PatternShape.GENERAL, ""),
        ("a%b", ("a", "%", "b"), PatternShape.GENERAL, ""),
        ("%_%_", ("_", "_", "%"), PatternShape.GENERAL, ""),
        ("_", ("_",), PatternShape.GENERAL, ""),
    ],
)
def test_pattern_is_taken_apart_and_classified(
    pattern: str, parts: tuple[str, ...], shape: PatternShape, text: str
) -> None:
    found, kinds = parse_pattern(pattern, "!")
    assert found == parts
    assert shape_of(found, kinds) == (shape, text)


def test_escape_works_even_as_a_wildcard() -> None:
    assert parse_pattern("%%a%_", "%") == (("%a_",), (False,))


@pytest.mark.parametrize("pattern", ["!", "a!", "!a", "!!!"])
def test_escape_before_anything_else_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="must stand before"):
        parse_pattern(pattern, "!")


def test_written_pattern_parses_to_the_same_parts() -> None:
    rng = random.Random(21)
    for _ in range(2_000):
        pattern = "".join(rng.choices("ab%_!\\'", k=rng.randrange(8)))
        try:
            parts, kinds = parse_pattern(pattern, "!")
        except ValueError:
            continue
        assert parse_pattern(*write_pattern(parts, kinds)) == (parts, kinds)


@pytest.mark.parametrize(
    "pattern", ["%a" * 5_000 + "%b", "%" + "a_" * 5_000 + "b%", "%" + "a" * 9_000 + "b%"]
)
def test_hostile_pattern_on_a_long_text_stays_quick(pattern: str) -> None:
    parts, kinds = parse_pattern(pattern, None)
    started = time.process_time()
    assert like(parts, kinds, "a" * 250_000) is False
    assert time.process_time() - started < 3
