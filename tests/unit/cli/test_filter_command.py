import io
import sys
from pathlib import Path

import pytest

from culver.cli import main


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["filter", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_explain_prints_the_clauses(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "explain", "(price > 20 OR hot) AND NOT symbol = 'XYZ'")
    assert code == 0
    assert out == (
        "2 clauses, one of which an event must satisfy:\n"
        "  1  price > 20 AND symbol <> 'XYZ'\n"
        "  2  hot = TRUE AND symbol <> 'XYZ'\n"
    )


def test_explain_says_so_where_everything_or_nothing_matches(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "explain", "TRUE")[1] == "every event matches\n"
    assert _run(capsys, "explain", "price > 3 AND price < 2")[1].startswith("no event matches")


def test_test_names_the_clause_that_matched(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text('{"symbol": "XYZ", "price": 21.5}')
    code, out, _ = _run(capsys, "test", "hot OR price > 20", str(path))
    assert (code, out) == (0, "match, by clause 2 of 2: price > 20\n")


def test_test_tells_false_from_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "test", "price > 20", '{"price": 3}')
    assert (code, out) == (
        1,
        "no match: the filter is false for this event\n"
        "  clause 1 of 1\n"
        "    false    price > 20  price is 3\n",
    )
    code, out, _ = _run(capsys, "test", "price > 20", '{"cost": 3}')
    assert (code, out) == (
        1,
        "no match: the result is unknown, since an attribute is missing or of another type\n"
        "  clause 1 of 1\n"
        "    unknown  price > 20  price is missing\n",
    )


def test_test_reads_the_event_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"price": 30}')))
    assert _run(capsys, "test", "price > 20")[0] == 0


# What a person sees for each of these filters, to the letter.
GOLDEN = [
    (
        "price >",
        "culver: line 1, column 8: expected an attribute name, a literal or (, found the end of the filter\n"
        "  price >\n"
        "         ^\n",
    ),
    (
        "price > 20 AND = 3",
        "culver: line 1, column 16: expected an attribute name, a literal, NOT or (, found '='\n"
        "  price > 20 AND = 3\n"
        "                 ^\n",
    ),
]


@pytest.mark.parametrize(("text", "shown"), GOLDEN)
@pytest.mark.parametrize("arguments", [("explain",), ("test",)])
def test_an_error_shows_the_filter_with_a_caret(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str, shown: str
) -> None:
    code, out, err = _run(capsys, *arguments, text)
    assert (code, out, err) == (2, "", shown)


def test_an_event_that_cannot_be_read_or_understood_is_invalid_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = _run(capsys, "test", "price > 20", "no/such/file.json")
    assert (code, err) == (
        2,
        "culver: cannot read the event from no/such/file.json: No such file or directory\n",
    )
    code, _, err = _run(capsys, "test", "price > 20", '{"price": NaN}')
    assert code == 2
    assert err.startswith("culver: ")
    assert "Traceback" not in err


def test_what_is_doubtful_about_a_filter_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", "explain", "symbol = XYZ"]) == 0
    assert capsys.readouterr().err == (
        "culver: warning: symbol = XYZ compares two attributes; "
        "if the right side is a text, write symbol = 'XYZ'\n"
    )
    assert main(["filter", "test", "a = 1 AND a = 2", "{}"]) == 1
    assert "culver: warning: no event can match this filter" in capsys.readouterr().err
