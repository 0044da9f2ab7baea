"""What `culver subs load` makes of files, seen by its preview: a dry run needs no site."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from culver.cli import main

QUOTES = "symbol = ? AND close >= ?"


@pytest.fixture
def load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> "Load":
    return Load(tmp_path, capsys)


class Load:
    """Runs `culver subs load ... --dry-run` on a CSV file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def made(self, text: str, filter_text: str = QUOTES, *options: str) -> list[str]:
        """The filters of the preview."""
        code, shown, error = self.run(text, filter_text, *options)
        assert code == 0, error
        return [line.split("  ", 2)[2] for line in shown.splitlines()[1:] if line.startswith("  row")]

    def refused(self, text: str, filter_text: str = QUOTES, *options: str) -> str:
        code, shown, error = self.run(text, filter_text, *options)
        assert (code, shown) == (2, "")
        return error

    def run(self, text: str, filter_text: str, *options: str) -> tuple[int, str, str]:
        file = self._folder / "rows.csv"
        file.write_text(text, encoding="utf-8")
        code = main(["subs", "load", "quotes", filter_text, str(file), "--dry-run", *options])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err


def test_types_come_from_the_first_line(load: Load) -> None:
    assert load.made("symbol:string,close:real\nACME,20.5\nEMCA,7\n") == [
        "symbol = 'ACME' AND close >= 20.5",
        "symbol = 'EMCA' AND close >= 7.0",
    ]
    heading = "a: Integer ,b:boolean,c:timestamp,d:string"
    made = load.made(f"{heading}\n5,TRUE,2026-01-01T00:00:00Z,\n", "a = ? AND b = ? AND c > ? AND d = ?")
    assert made == ["a = 5 AND b = TRUE AND c > TIMESTAMP '2026-01-01T00:00:00Z' AND d = ''"]


def test_a_code_with_leading_zeros_stays_what_it_is(load: Load) -> None:
    assert load.made("zip:string\n00123\n", "zip = ?") == ["zip = '00123'"]
    assert "write the first line as zip:string," in load.refused("zip\n00123\n", "zip = ?")


@pytest.mark.parametrize(
    ("filter_text", "value", "made"),
    [
        ("x + 1 > ?", "5", "x + 1 > 5"),
        ("x + 1 > ?", "5.5", "x + 1 > 5.5"),
        ("x % 2 = 1 AND x < ?", "007", "x % 2 = 1 AND x < 7"),
        ("x BETWEEN 1 AND ?", "5", "x BETWEEN 1 AND 5"),
        ("x BETWEEN ? AND 'm'", "5", "x BETWEEN '5' AND 'm'"),
        ("x IN ('a', ?)", "5", "x IN ('a', '5')"),
        ("x LIKE '0%' OR x = ?", "5", "x LIKE '0%' OR x = '5'"),
        ("x > ? AND x <> TIMESTAMP '2026-01-01T00:00:00Z'", "2026-01-02T00:00:00Z", None),
    ],
)
def test_types_come_from_what_the_filter_compares_with(
    load: Load, filter_text: str, value: str, made: str | None
) -> None:
    if made is None:
        made = filter_text.replace("?", f"TIMESTAMP '{value}'")
    assert load.made(f"x\n{value}\n", filter_text) == [made]


def test_nothing_is_guessed_and_the_question_has_an_answer_to_paste(load: Load) -> None:
    rows = "symbol,close\nACME,20.5\nEMCA,7\n"
    error = load.refused(rows)
    assert "nothing says of which type the values of symbol, close are" in error
    assert "write the first line as symbol:string,close:real, or give --types string,real" in error
    assert load.made(rows, QUOTES, "--types", "string,real")[1] == "symbol = 'EMCA' AND close >= 7.0"


def test_one_text_among_numbers_makes_no_texts_of_all(load: Load) -> None:
    rows = "symbol,close\nACME,20.5\nEMCA,7\nZ,abc\n"
    error = load.refused(rows)
    assert "most of close are numbers, but not 'abc' on line 4" in error
    assert "symbol:string,close:real" in error
    assert "line 4, column close: 'abc' is not a number" in load.refused(
        rows, QUOTES, "--types", "string,real"
    )


def test_integers_too_large_for_reals_are_refused_with_the_line(load: Load) -> None:
    error = load.refused("x\n9007199254740993\n0.5\n", "x + 1 > ?")
    assert (
        "line 2, column x: '9007199254740993' is an integer beyond 2^53, too large for a column of reals"
        in error
    )
    assert load.made("x\n9007199254740993\n", "x + 1 > ?") == ["x + 1 > 9007199254740993"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("symbol:string,close:rael\nA,1\n", "there is no type 'rael'; did you mean real?"),
        ("symbol:string\nA\n", "the file has 1 column, and the filter has 2 parameters"),
        ("symbol:string,close:real\nA,1\nB\n", "line 3 has 1 value, and the filter has 2 parameters"),
        ("symbol:string,close:real\n", "there are no rows"),
        ("symbol:string,close:real\nA,\n", "line 2, column close: '' is not a number"),
        ("symbol:string,close:real\nA,nan\n", "is not a number"),
        ("symbol:string,close:real\nA,1e999\n", "too large for a 64-bit real"),
        ("symbol:string,close:integer\nA,1.5\n", "is not an integer"),
        ("symbol:string,close:integer\nA,9223372036854775808\n", "64 bits"),
        ("symbol:string,close:timestamp\nA,2026-01-01\n", "RFC 3339"),
        ("symbol:string,close:boolean\nA,yes\n", "neither true nor false"),
        ("symbol:string,close:boolean\nA,true\n", "row 0: parameter 2 is a boolean, which has no order"),
        ('symbol:string,close:real\n"A,1\n', "is not CSV"),
    ],
)
def test_what_is_wrong_in_a_csv_file_is_named(load: Load, text: str, what: str) -> None:
    assert what in load.refused(text)


def test_a_dry_run_previews_the_first_rows_and_warns(load: Load) -> None:
    rows = "x:integer\n" + "".join(f"{n}\n" for n in range(5))
    code, shown, error = load.run(rows, "x > ? AND kind = alert", "--first", "7")
    assert code == 0
    assert shown.splitlines() == [
        "5 subscriptions in set quotes:",
        "  quotes.7  x > 0 AND kind = alert",
        "  quotes.8  x > 1 AND kind = alert",
        "  quotes.9  x > 2 AND kind = alert",
        "  and 2 more",
    ]
    assert error.startswith("culver: warning: kind = alert compares two attributes")


def test_lines_of_json_and_parquet_bring_their_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "rows.ndjson"
    lines.write_text(json.dumps(["a", {"$timestamp": "2026-01-01T00:00:00Z"}]))
    made = "s = 'a' AND t > TIMESTAMP '2026-01-01T00:00:00Z'"
    assert main(["subs", "load", "q", "s = ? AND t > ?", str(lines), "--dry-run"]) == 0
    assert made in capsys.readouterr().out
    file = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"s": ["a"], "t": [datetime(2026, 1, 1, tzinfo=UTC)]}), file)
    assert main(["subs", "load", "q", "s = ? AND t > ?", str(file), "--dry-run"]) == 0
    assert made in capsys.readouterr().out
    parquet.write_table(pa.table({"s": ["a"], "t": [Decimal("1.5")]}), file)
    assert main(["subs", "load", "q", "s = ? AND t > ?", str(file), "--dry-run"]) == 2
    assert "row 0: the value for parameter 2 has the Arrow type decimal128" in capsys.readouterr().err
    assert main(["subs", "load", "q", "s = ? AND t > ?", str(file), "--types", "string,real"]) == 2
    assert "--types is for CSV files" in capsys.readouterr().err


def test_whoever_sits_at_a_terminal_is_asked(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def confirm(question: str, **options: object) -> bool:
        questions.append(question)
        return len(questions) == 1

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    rows = "symbol,close\nACME,20.5\n"
    assert load.made(rows) == ["symbol = 'ACME' AND close >= 20.5"]
    assert questions == ["Load them as string,real?"]
    error = load.refused(rows)
    assert error.count("nothing says of which type") == 1
    assert error.endswith("culver: nothing was loaded\n")
