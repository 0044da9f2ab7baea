import pytest

from culver.simulation.redis.glob_pattern import matches_glob


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (b"*", b"anything\n\xff"),
        (b"news.*", b"news."),
        (b"?", b"\n"),
        (b"[a-c]x", b"bx"),
        (b"[c-a]x", b"bx"),
        (b"[^a]", b"b"),
        (b"[a\\]]", b"]"),
        (b"\\*", b"*"),
        (b"[ab", b"b"),
        (b"", b""),
        (b"a**b", b"ab"),
    ],
)
def test_a_pattern_covers_a_name(pattern: bytes, name: bytes) -> None:
    assert matches_glob(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (b"*", b""),
        (b"?", b"ab"),
        (b"\\*", b"x"),
        (b"[^a]", b"a"),
        (b"[]a", b"a"),
        (b"a", b"A"),
        (b"a.c", b"abc"),
    ],
)
def test_a_pattern_does_not_cover_a_name(pattern: bytes, name: bytes) -> None:
    assert not matches_glob(pattern, name)
