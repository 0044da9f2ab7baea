"""Chunks of a stream become numbered lines, and no chunk makes the splitter hold more than a line."""

from culver.model.formats import LineSplitter


def test_lines_are_numbered_across_chunks() -> None:
    splitter = LineSplitter(100)
    assert splitter.feed(b"one\ntw") == [(1, b"one")]
    assert splitter.feed(b"o\n\nfo") == [(2, b"two"), (3, b"")]
    assert splitter.feed(b"ur") == []
    assert splitter.end() == [(4, b"four")]
    assert splitter.end() == []


def test_a_line_that_is_too_long_is_passed_over_without_being_held() -> None:
    splitter = LineSplitter(4)
    assert splitter.feed(b"12345") == [(1, None)]
    assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"\n1234\n12345\n1") == [(2, b"1234"), (3, None)]
    assert splitter.end() == [(4, b"1")]


def test_a_last_line_that_is_too_long_is_reported_once() -> None:
    splitter = LineSplitter(4)
    assert splitter.feed(b"12345") == [(1, None)]
    assert splitter.feed(b"678") == []
    assert splitter.end() == []
