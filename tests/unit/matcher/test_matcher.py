"""`culver.Matcher`: filters, results, errors, files, threads."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from culver import Matcher
from culver.errors import (
    Conflict,
    CulverError,
    InvalidEvent,
    InvalidFilter,
    InvalidRequest,
    NotFound,
    StorageCorrupt,
    StorageError,
    TooLarge,
)
from culver.matcher import matcher as matcher_module, text_table
from culver.matcher.id_table import IdTable
from culver.model import Domain

FORM = "symbol = ? AND close >= ?"
ROWS = [("XYZ", 1.5), ("ABC", 2.0)]
NULL_AND = {each: pa.DictionaryArray.from_arrays([0], pa.array([each, None])) for each in "xy"}


@pytest.fixture(scope="module", autouse=True)
def threads_of_polars() -> None:
    """Polars starts threads when it is first used, and keeps them."""
    polars.DataFrame({"a": [1]}).select("a").to_arrow()


@pytest.fixture
def quotes() -> Matcher:
    matcher = Matcher()
    matcher.add("dear", "price > 20")
    matcher.add_many(FORM, ROWS, ids=["x", "a"])
    return matcher


# --- filters ----------------------------------------------------------------------------------------------


def test_ids_come_in_the_order_of_adding() -> None:
    matcher = Matcher()
    for each in ("b", "a", "c"):
        matcher.add(each, "x > 0")
    assert matcher.match({"x": 1}) == ["b", "a", "c"]
    matcher.remove("b")
    matcher.add("b", "x > 0")
    assert matcher.match({"x": 1}) == list(matcher) == ["a", "c", "b"]
    assert matcher.match(pa.table({"x": [1]})).to_pylist() == [["a", "c", "b"]]


def test_length_membership_and_texts(quotes: Matcher) -> None:
    assert len(quotes) == 3
    assert "x" in quotes
    assert "y" not in quotes
    assert 1 not in quotes
    assert [] not in quotes
    assert quotes.filter("x") == "symbol = 'XYZ' AND close >= 1.5"
    assert quotes.attributes == {"price", "symbol", "close"}
    assert quotes.domains == {
        ("price", Domain.NUMBER),
        ("symbol", Domain.STRING),
        ("close", Domain.NUMBER),
    }


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        {"symbol": ["XYZ", "ABC"], "close": [1.5, 2.0]},
        pa.table({"symbol": ["XYZ", "ABC"], "close": [1.5, 2.0]}),
        pa.record_batch(
            {"symbol": pa.array(["XYZ", "ABC"], pa.string_view()), "close": pa.array([1.5, 2.0])}
        ),
        pandas.DataFrame({"symbol": ["XYZ", "ABC"], "close": [1.5, 2.0]}),
        polars.DataFrame({"symbol": ["XYZ", "ABC"], "close": [1.5, 2.0]}),
        {"symbol": np.array(["XYZ", "ABC"]), "close": np.array([1.5, 2.0])},
    ],
    ids=lambda each: type(each).__module__.split(".")[0],
)
def test_rows_in_any_form(rows: Any) -> None:
    matcher = Matcher()
    assert matcher.add_many(FORM, rows, ids=pa.array(["x", "a"])) == ["x", "a"]
    assert matcher.match([{"symbol": "XYZ", "close": 2}, {"symbol": "ABC", "close": 2}]) == [["x"], ["a"]]


def test_rows_without_ids_are_numbered_and_go_on(tmp_path: Path) -> None:
    matcher = Matcher()
    assert matcher.add_many("a = ?", [(1,), (2,)]) == ["row.0", "row.1"]
    assert matcher.add_many("a = ?", [(3,)], ids="odd") == ["odd.0"]
    matcher.save(tmp_path / "file")
    assert Matcher.open(tmp_path / "file").add_many("a = ?", [(4,)]) == ["row.2"]
    assert matcher.add_many("a = ?", []) == []


def test_made_ids_pass_over_those_that_are_taken() -> None:
    matcher = Matcher()
    matcher.add("row.1", "TRUE")
    assert matcher.add_many("a = ?", [(1,)]) == ["row.0"]
    assert matcher.add_many("a = ?", [(1,), (2,)]) == ["row.2", "row.3"]
    matcher.add("row.007", "TRUE")
    with pytest.raises(InvalidFilter):
        matcher.add_many("a = ?", [(float("nan"),)])
    assert matcher.add_many("a = ?", [(1,)]) == ["row.8"]
    matcher.remove("row.8")
    assert matcher.add_many("a = ?", [(1,)], ids="row.0") == ["row.0.0"]
    assert matcher.add_many("a = ?", [(1,)]) == ["row.9"]


def test_made_ids_cost_the_same_however_many_there_are() -> None:
    class Ids(dict[str, int]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("all ids are looked at")

    table = IdTable()
    table.append(table.unused("row", 1_000))
    table._numbers = Ids(table.numbers())
    for count in (1, 2, 3):
        table.append(table.unused("row", count))
        table.remove("row.5")
        table.append(["row.5"])
    assert table.unused("row", 1) == ["row.1006"]


def test_numbers_of_removed_filters_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher_module, "_FEW_HOLES", 10)
    matcher = Matcher()
    matcher.add("always", "TRUE")
    for number in range(100):
        matcher.add_many("a = ? OR b = ?", [(number, 0.5)], ids=[f"row {number}"])
        matcher.add(f"single {number}", f"a = {number}")
        assert matcher.match({"a": number}) == ["always", f"row {number}", f"single {number}"]
        if number % 10:
            matcher.remove(f"row {number}")
            matcher.remove(f"single {number}")
    assert matcher._ids.count < 2 * len(matcher) + 20
    assert matcher.match({"a": 20}) == ["always", "row 20", "single 20"]
    assert matcher.filter("row 20") == "a = 20 OR b = 0.5"
    assert matcher.filter("single 20") == "a = 20"


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "kind", "words"),
    [
        (lambda m: m.add("x", "TRUE"), Conflict, "there is a filter 'x' already; remove it first"),
        (lambda m: m.add("new", "price >"), InvalidFilter, "filter 'new': line 1, column 8: expected"),
        (lambda m: m.add("new", "price > ?"), InvalidFilter, "filter 'new': "),
        (lambda m: m.add(7, "TRUE"), InvalidRequest, "an id is a string, not int"),
        (lambda m: m.add("new", None), InvalidRequest, "filter 'new': a filter is a string, not NoneType"),
        (lambda m: m.add("", "TRUE"), InvalidRequest, "the id '' is empty"),
        (lambda m: m.add(1025 * "x", "TRUE"), InvalidRequest, "the id 'xxxxxxx"),
        (lambda m: m.add("a\ud800", "TRUE"), InvalidRequest, r"the id 'a\ud800' holds half of a surrogate pair"),
        (lambda m: m.remove([]), InvalidRequest, "an id is a string, not list"),
        (lambda m: m.filter({}), InvalidRequest, "an id is a string, not dict"),
        (lambda m: m.explain(None, {}), InvalidRequest, "an id is a string, not NoneType"),
        (lambda m: m.remove("\ud800"), NotFound, r"there is no filter '\ud800'"),
        (lambda m: m.add_many(FORM, ROWS, ids=["n", "\ud800"]), InvalidRequest, r"row 1: the id '\ud800' holds"),
        (lambda m: m.add_many(FORM, ROWS, ids=["", "n"]), InvalidRequest, "row 0: the id '' is empty"),
        (lambda m: m.add_many(FORM, ROWS, ids=""), InvalidRequest, "the id '' is empty"),
        (lambda m: m.add_many(FORM, ROWS, ids=1023 * "x"), InvalidRequest, "the id 'xxx"),
        (lambda m: m.add_many(FORM, ROWS, ids=None), InvalidRequest, "ids are a list of strings, or a string that"),
        (lambda m: m.remove("new"), NotFound, "there is no filter 'new'"),
        (lambda m: m.filter("new"), NotFound, "there is no filter 'new'"),
        (lambda m: m.explain("new", {}), NotFound, "there is no filter 'new'"),
        (lambda m: m.add_many(FORM, ROWS, ids=["n", "x"]), Conflict, "there is a filter 'x' already"),
        (lambda m: m.add_many(FORM, ROWS, ids=["n", "n"]), Conflict, "the id 'n' is given to two rows"),
        (lambda m: m.add_many(FORM, ROWS, ids=["n"]), InvalidRequest, "there are 1 id for 2 rows"),
        (lambda m: m.add_many(FORM, ROWS, ids=["n", 2]), InvalidRequest, "row 1: an id is a string, not int"),
        (lambda m: m.add_many("a = ?", ROWS), InvalidRequest, "the rows have 2 columns, and the filter has 1 par"),
        (lambda m: m.add_many("a = 1", ROWS), InvalidFilter, "the filter has no parameter"),
        (lambda m: m.add_many("a = ? OR", ROWS), InvalidFilter, "line 1, column 9: expected"),
        (
            lambda m: m.add_many("a = ?", [(1.0,), (float("nan"),)]),
            InvalidFilter,
            "row 1: parameter 1 is not a finite number",
        ),
        (
            lambda m: m.add_many("a = ?", [("x",), (1,)]),
            InvalidRequest,
            "row 1: the value for parameter 1 is a number, and the rows before it have a string",
        ),
        (
            lambda m: m.add_many("a = ?", pa.table({"a": pa.array([1, None])})),
            InvalidFilter,
            "row 1: the value for parameter 1 is missing",
        ),
        (
            lambda m: m.add_many("a = ?", [("x",), (20_000 * "x",)]),
            TooLarge,
            "row 1: the filter has 20006 characters",
        ),
        (
            lambda m: m.add_many("a > ?", pa.table({"a": pa.array([0, 2**62], pa.timestamp("s", "UTC"))})),
            InvalidFilter,
            "row 1: the value for parameter 1 is a moment beyond all years",
        ),
        (
            lambda m: m.add_many(
                "a = ?", pa.table({"a": pa.chunked_array([NULL_AND[each] for each in ("x", "y")])})
            ),
            InvalidRequest,
            "these are no rows of values: Cannot yet unify dictionaries with nulls",
        ),
        (lambda m: m.match({"a": float("nan")}), InvalidEvent, "a is nan"),
        (lambda m: m.match([{}, {"a": {"b": object()}}]), InvalidEvent, "event [1]: a.b is of type object"),
        (lambda m: m.match([1]), InvalidEvent, "event [0]: an event is a mapping, not int"),
        (lambda m: m.match("price"), InvalidRequest, "what is matched is an event, a list of events, an Arrow"),
        (lambda m: m.match(3), InvalidRequest, "what is matched is an event"),
        (lambda m: m.match({"at": datetime(2026, 1, 1)}), InvalidEvent, "at: the timestamp 2026-01-01"),  # noqa: DTZ001
        (lambda m: m.match(polars.LazyFrame({"a": [1]})), InvalidEvent, "a LazyFrame has no rows yet"),
        (
            lambda m: m.match(pa.table({"price": [b"1"]})),
            InvalidEvent,
            "the column 'price' has the type binary",
        ),
        (
            lambda m: m.match(pandas.DataFrame({"price": [1, "x"]})),
            InvalidEvent,
            "the frame cannot be read: ",
        ),
        (lambda m: m.match(pandas.DataFrame({"price": ["\ud800"]})), InvalidEvent, "the frame cannot be read: "),
        (lambda m: m.match(polars.Series([1])), InvalidEvent, "the frame cannot be read: Cannot import schema"),
        (
            lambda m: m.match(polars.DataFrame({"price": polars.Series([2**64], dtype=polars.Int128)})),
            InvalidEvent,
            "the frame cannot be read: ",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_changes_nothing(
    quotes: Matcher, action: Any, kind: type[CulverError], words: str
) -> None:
    with pytest.raises(kind) as caught:
        action(quotes)
    assert caught.value.message.startswith(words)
    assert list(quotes) == ["dear", "x", "a"]
    assert quotes.match({"price": 21}) == ["dear"]


def test_the_row_of_a_bad_value_is_counted_in_the_table() -> None:
    matcher = Matcher()
    matcher.add("a", "at > TIMESTAMP '2026-01-01T00:00:00Z'")
    moments = np.zeros(5_000, np.int64)
    moments[3_210] = 10**12
    with pytest.raises(InvalidEvent, match="in row 3210") as caught:
        matcher.match(pa.table({"at": pa.array(moments).cast(pa.timestamp("s", "UTC"))}))
    assert caught.value.details["row"] == 3_210


# --- results ----------------------------------------------------------------------------------------------


def test_values_of_python(quotes: Matcher) -> None:
    quotes.add("later", "at > TIMESTAMP '2026-01-01T00:00:00Z'")
    quotes.add("day", "day = '2026-01-02'")
    event = {
        "price": Decimal("20.5"),
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "day": date(2026, 1, 2),
    }
    assert quotes.match(event) == ["dear", "later", "day"]
    assert quotes.match({"price": np.float32(20.5), "symbol": np.str_("XYZ"), "close": np.int8(2)}) == [
        "dear",
        "x",
    ]


def test_a_cloudevent_means_what_it_means_when_published() -> None:
    matcher = Matcher()
    matcher.add("typed", "type = 'trade' AND data.price > 20")
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "trade", "data": {"price": 21}}
    assert matcher.match(event) == ["typed"]
    assert matcher.match([event]) == [["typed"]]


def test_each_kind_of_table_gives_its_own_kind_of_column(quotes: Matcher) -> None:
    table = pa.table({"symbol": ["XYZ", None], "close": [2, 3], "price": [21.0, 1.0]})
    wanted = [["dear", "x"], []]
    found = quotes.match(table)
    assert isinstance(found, pa.ChunkedArray)
    assert found.type == pa.list_(pa.string())
    assert found.to_pylist() == wanted
    array = quotes.match(table.to_batches()[0])
    assert isinstance(array, pa.ListArray)
    assert array.to_pylist() == wanted
    series = quotes.match(table.to_pandas())
    assert isinstance(series, pandas.Series)
    assert series.tolist() == wanted
    column = quotes.match(polars.from_arrow(table))
    assert isinstance(column, polars.Series)
    assert column.dtype == polars.List(polars.String)
    assert column.to_list() == wanted
    pairs = quotes.match_pairs(table)
    assert pairs.schema == pa.schema([("row", pa.int64()), ("id", pa.string())])
    assert pairs.to_pylist() == [{"row": 0, "id": "dear"}, {"row": 0, "id": "x"}]


def test_chunks_with_dictionaries_of_their_own_are_one_table(quotes: Matcher) -> None:
    chunks = [pa.DictionaryArray.from_arrays([0, 1, None], pa.array([price, None])) for price in (21, 1)]
    assert quotes.match(pa.table({"price": pa.chunked_array(chunks)})).to_pylist() == [["dear"], *[[]] * 5]


def test_columns_that_no_filter_mentions_are_not_looked_at(quotes: Matcher) -> None:
    strange = [object(), {1: 2}]
    frame = pandas.DataFrame({"price": [21, 1], 7: strange, "other": strange})
    assert quotes.match(frame).tolist() == [["dear"], []]
    assert quotes.match(frame[["other"]]).tolist() == [[], []]
    assert quotes.match(polars.DataFrame({"other": [b"", b""]})).to_list() == [[], []]
    assert quotes.match(pa.table({"other": [b"", b""]})).to_pylist() == [[], []]


@pytest.mark.parametrize("name", ["data.price", "order.price", "data.order.price", '"e\u0301"', '"\u00e9"'])
def test_frames_hand_over_what_a_name_means(name: str) -> None:
    matcher = Matcher()
    matcher.add("a", f"{name} > 20")
    rows = [{"price": 21, "order": {"price": 21}, "e\u0301": 21, "other": object()}]
    frame = pandas.DataFrame(rows)
    assert matcher.match(frame).tolist() == [["a"]]
    assert matcher.match(polars.from_pandas(frame.drop(columns="other"))).to_list() == [["a"]]


class GeoFrame(pandas.DataFrame):  # type: ignore[misc]
    """As GeoPandas makes them."""


def test_frames_of_any_class_and_index_keep_their_index(quotes: Matcher) -> None:
    frame = pandas.DataFrame({"price": [21, 1, 22], "symbol": ["a", "b", "a"]})
    chosen = frame[frame.symbol == "a"]
    for each in (chosen, GeoFrame(chosen)):
        series = quotes.match(each)
        assert isinstance(series, pandas.Series)
        assert series.to_dict() == {0: ["dear"], 2: ["dear"]}
    assert quotes.match(frame.set_index("price")).tolist() == [[], [], []]
    assert quotes.add_many(FORM, chosen[["symbol", "price"]]) == ["row.0", "row.1"]


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([21, None, float("nan")], object, [["dear"], [], []]),
        ([Decimal("20.5"), None, Decimal("NaN")], object, [["dear"], [], []]),
        ([21, None], "Int64", [["dear"], []]),
        ([21.5, None], "Float64", [["dear"], []]),
        ([21, None], "category", [["dear"], []]),
        ([21, None], "int64[pyarrow]", [["dear"], []]),
        (["21", None, float("nan"), pandas.NA], object, [[], [], [], []]),
        (["21", None], "string", [[], []]),
    ],
)
def test_columns_of_pandas(quotes: Matcher, values: list[Any], kind: Any, wanted: list[list[str]]) -> None:
    assert quotes.match(pandas.DataFrame({"price": pandas.Series(values, dtype=kind)})).tolist() == wanted


AWARE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [AWARE, AWARE.replace(tzinfo=None)],
            "timestamps with a time zone and, in row 1, timestamps without",
        ),
        (
            [pandas.NaT, AWARE.date(), AWARE],
            "dates and, in row 2, timestamps with a time zone: make them one",
        ),
    ],
)
def test_objects_that_arrow_would_take_for_another_kind_are_refused(
    quotes: Matcher, values: list[Any], words: str
) -> None:
    frame = pandas.DataFrame({"price": pandas.Series(values, dtype=object)})
    with pytest.raises(InvalidEvent, match=f"the column 'price' holds {words}"):
        quotes.match(frame, timezone="UTC")


def test_nothing_in_is_nothing_out(quotes: Matcher) -> None:
    assert quotes.match([]) == []
    assert quotes.match(pa.table({"price": pa.array([], pa.int64())})).to_pylist() == []
    assert quotes.match(pandas.DataFrame({"price": []})).tolist() == []
    assert quotes.match(polars.DataFrame({"price": []}, schema={"price": polars.Int8})).to_list() == []
    assert quotes.match_pairs([]).num_rows == 0
    assert Matcher().match(pa.table({"a": [1]})).to_pylist() == [[]]
    assert Matcher().match({"a": 1}) == []


def test_ids_that_take_more_than_a_chunk_holds_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    from culver.matcher import match_lists

    monkeypatch.setattr(match_lists, "_MOST_BYTES", 1_000)
    matcher = Matcher()
    for number in range(20):
        matcher.add(f"an id of some length {number}", f"a >= {number}")
    table = pa.table({"a": range(100)})
    found = matcher.match(table)
    assert found.num_chunks > 10
    assert found.to_pylist() == [list(matcher)[: row + 1] for row in range(100)]
    assert matcher.match_pairs(table).num_rows == sum(min(20, row + 1) for row in range(100))


def test_an_explanation(quotes: Matcher) -> None:
    explanation = quotes.explain("x", {"symbol": "XYZ", "close": "1"})
    assert not explanation.matches
    assert explanation.result is None
    assert str(explanation).splitlines()[2:] == [
        "    unknown  close >= 1.5    close is a string, not a number",
        "    true     symbol = 'XYZ'",
    ]


# --- files ------------------------------------------------------------------------------------------------


def test_a_file_replaces_the_one_it_came_from(quotes: Matcher, tmp_path: Path) -> None:
    path = tmp_path / "quotes.matcher"
    quotes.save(path)
    with Matcher.open(path) as opened:
        opened.remove("dear")
        opened.add("cheap", "price < 5")
        opened.save(path)
        assert opened.match({"price": 1}) == ["cheap"]
    assert list(Matcher.open(str(path))) == ["x", "a", "cheap"]
    assert sorted(tmp_path.iterdir()) == [path]


def test_rows_of_one_form_are_saved_together_whichever_calls_added_them(tmp_path: Path) -> None:
    matcher = Matcher()
    matcher.add_many(FORM, [("XYZ", float(number)) for number in range(200)])
    matcher.save(tmp_path / "once")
    matcher.close()
    matcher = Matcher()
    for number in range(200):
        matcher.add_many(FORM, [("XYZ", float(number))])
        matcher.add_many("price > ?", [(number,)], ids=f"price {number}")
        matcher.add_many(FORM, [("XYZ", number)], ids="whole")
    assert matcher.filter("row.7") == "symbol = 'XYZ' AND close >= 7.0"
    for number in range(0, 200, 3):
        matcher.remove(f"row.{number}")
    wanted = {each: matcher.filter(each) for each in matcher}
    matcher.save(tmp_path / "bit by bit")
    matcher.close()
    with Matcher.open(tmp_path / "bit by bit") as opened:
        assert {each: opened.filter(each) for each in opened} == wanted
        assert len(opened._texts._forms) == 3
    assert (tmp_path / "bit by bit").stat().st_size < 4 * (tmp_path / "once").stat().st_size


def test_a_form_with_much_text_goes_on_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_table, "_MOST_BYTES", 100)
    matcher = Matcher()
    for number in range(10):
        matcher.add_many(FORM, [("XYZ", number)])
    assert len(matcher._texts._forms) > 1
    assert [matcher.filter(f"row.{number}") for number in range(10)] == [
        f"symbol = 'XYZ' AND close >= {number}" for number in range(10)
    ]


def test_a_file_that_is_none_is_refused(quotes: Matcher, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        Matcher.open(tmp_path / "missing")
    with pytest.raises(StorageError, match="cannot read"):
        Matcher.open(tmp_path)
    (tmp_path / "text").write_text("price > 20")
    with pytest.raises(StorageCorrupt, match="text is too short; save it again"):
        Matcher.open(tmp_path / "text")
    quotes.save(tmp_path / "file")
    data = bytearray((tmp_path / "file").read_bytes())
    data[-1] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(StorageCorrupt, match="damaged fails its checksum; save it again"):
        Matcher.open(tmp_path / "damaged")
    with pytest.raises(StorageError, match="cannot write"):
        quotes.save(tmp_path / "no directory" / "file")


_OTHER_PROCESS = """
import sys, culver
matcher = culver.Matcher.open(sys.argv[1])
print(matcher.match({"price": 21}))
matcher.remove("dear")
print(matcher.match({"price": 21}), len(matcher))
"""


def test_processes_share_a_file_and_not_their_changes(quotes: Matcher, tmp_path: Path) -> None:
    path = tmp_path / "file"
    quotes.save(path)
    with Matcher.open(path) as opened:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", _OTHER_PROCESS, str(path)],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            assert done.stdout == "['dear']\n[] 2\n"
        assert opened.match({"price": 21}) == ["dear"]


def test_a_closed_matcher_says_so(quotes: Matcher) -> None:
    with quotes:
        pass
    quotes.close()
    actions: list[Callable[[], object]] = [
        lambda: quotes.match({}),
        lambda: quotes.match([]),
        lambda: quotes.match_pairs(pa.table({})),
        lambda: quotes.explain("x", {}),
        lambda: quotes.add("b", "TRUE"),
        lambda: quotes.add_many(FORM, ROWS),
        lambda: quotes.remove("x"),
        lambda: quotes.filter("x"),
        lambda: len(quotes),
        lambda: "x" in quotes,
        lambda: list(quotes),
        lambda: quotes.attributes,
        lambda: quotes.domains,
        lambda: quotes.save("x"),
        quotes.__enter__,
    ]
    for action in actions:
        with pytest.raises(ValueError, match="the matcher is closed"):
            action()


@pytest.mark.parametrize("path", [None, 5, [], "", ".", "a\0b", "\ud800"], ids=ascii)
def test_what_is_no_path_is_refused(quotes: Matcher, path: Any) -> None:
    for action in (quotes.save, Matcher.open):
        with pytest.raises(InvalidRequest, match="is no path of a file"):
            action(path)


# --- threads ----------------------------------------------------------------------------------------------


def test_threads_match_while_another_one_changes() -> None:
    matcher = Matcher()
    matcher.add_many("a >= ?", [(number,) for number in range(500)], ids="stays")
    stays = [f"stays.{number}" for number in range(250)]
    table = pa.table({"a": pa.array([249] * 200)})
    event = {"a": 249}
    problems: list[object] = []
    stop = threading.Event()

    def match() -> None:
        try:
            while not stop.is_set():
                for found in (matcher.match(event), matcher.match(table).to_pylist()[-1]):
                    if [each for each in found if each.startswith("stays")] != stays:
                        problems.append(found)
                        return
        except BaseException as exc:
            problems.append(exc)

    threads = [threading.Thread(target=match) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        matcher.add(f"comes {number}", "a > 0 AND b IS NULL")
        assert f"comes {number}" in matcher.match(event)
        matcher.add_many("a < ?", [(1000,), (3,)], ids=[f"row {number}", f"not {number}"])
        if number % 3:
            matcher.remove(f"comes {number}")
            matcher.remove(f"row {number}")
            assert f"comes {number}" not in matcher.match(event)
    stop.set()
    for thread in threads:
        thread.join()
    matcher.close()
    assert problems == []
