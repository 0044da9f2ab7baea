import pytest

from culver.cli.failures import point_at

# Each case: a text, a position, and exactly what is shown.
GOLDEN = [
    ("price >", 7, "price >\n       ^"),
    ("price = = 3", 8, "price = = 3\n        ^"),
    ("", 0, "\n^"),
    ("= 1", 0, "= 1\n^"),
    ("a = 1\nAND b = = 2\nAND c", 14, "AND b = = 2\n        ^"),
    ("a\tb = = 1", 6, "a b = = 1\n      ^"),
    ("名 = = 1", 4, "名 = = 1\n     ^"),
    ("cafe\u0301 = = 1", 8, "cafe\u0301 = = 1\n       ^"),
    ("a = 1", 99, "a = 1\n     ^"),
    ("a" * 200 + " = = 1", 203, "..." + "a" * 37 + " = = 1\n" + " " * 43 + "^"),
    ("x ! " + "a" * 200, 2, "x ! " + "a" * 96 + "...\n  ^"),
]


@pytest.mark.parametrize(("text", "position", "shown"), GOLDEN)
def test_the_caret_stands_under_the_position(text: str, position: int, shown: str) -> None:
    assert "\n".join(point_at(text, position)) == shown
