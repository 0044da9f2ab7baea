"""Rows compiled together: the same clauses as one by one, and no Python for each row."""

import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from culver.bench.workloads.quotes import QuotesWorkload, market
from culver.bench.workloads.uniform_ranges import RangesWorkload
from culver.config import FilterSettings
from culver.errors import InvalidFilter
from culver.matching.filters.columnar import ColumnarFilter
from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.model.language.parser import parse
from culver.model.language.predicate import Predicate
from culver.model.language.prepared_filter import Prepared, prepare
from culver.model.language.rendering import value_text
from culver.model.values import Timestamp
from support.clauses import described

SEED = 7
BOXES = " AND ".join(f"{name} >= ? AND {name} < ?" for name in "abcd")
NUMBERS: list[int | float] = [0, 1, 2, 3.5, -0.0, 0.0, 5e-324, -5e-324, -1, 1.0, 2**53 - 1, 2**53, -(2**53), 2.0**53,
                              2**53 + 1, 2**63 - 1, -(2**63), 1e300, np.nextafter(1.0, 2.0).item()]  # fmt: skip
STRINGS = ["", "a", "ab", "b", "é", "e\u0301", "zz", "it's", "\U0001f600"]
MOMENTS = [Timestamp(0), Timestamp(1), Timestamp(-(10**15)), Timestamp(10**15)]


class Binds:
    """Counts the rows that were left to `Prepared.bind`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        bind = Prepared.bind

        def counted(prepared: Prepared, values: Any) -> Predicate:
            self.count += 1
            return bind(prepared, values)

        monkeypatch.setattr(Prepared, "bind", counted)


def one_by_one(prepared: Prepared, numbers: list[int], columns: list[list[Any]]) -> ClauseTable:
    rows = zip(*columns, strict=True)
    return compile_entries(
        Entry(number, prepared.bind(row), number % 5) for number, row in zip(numbers, rows, strict=True)
    )


def random_template(rng: random.Random) -> tuple[str, list[str]]:
    """A disjunction of conjunctions over attributes of one type each, and the types of its parameters."""
    kinds: list[str] = []
    pools: dict[str, list[Any]] = {"n": NUMBERS, "s": STRINGS, "t": MOMENTS, "b": [True, False]}

    def value(kind: str) -> str:
        if rng.random() < 0.8:
            kinds.append(kind)
            return "?"
        return value_text(rng.choice(pools[kind]))

    def test() -> str:
        kind = rng.choice("nnnsstb")
        name = rng.choice("xy") + kind
        if kind == "b":
            return f"{name} = {value(kind)}"
        shape = rng.random()
        if shape < 0.2:
            return f"{name} BETWEEN {value(kind)} AND {value(kind)}"
        if shape < 0.22:
            return f"{name} IN ({value(kind)}, {value(kind)})"
        if shape < 0.24:
            return f"{name} <> {value(kind)}"
        if shape < 0.26:
            return f"NOT {name} < {value(kind)}"
        return f"{name} {rng.choice(['=', '<', '<=', '>', '>='])} {value(kind)}"

    clauses = [
        " AND ".join(test() for _ in range(rng.randint(1, 3))) for _ in range(rng.choice([1, 1, 1, 2, 3]))
    ]
    return " OR ".join(clauses), kinds


def random_column(rng: random.Random, kind: str, count: int) -> tuple[list[Any], Any]:
    """Values, and the same in one of the forms that a column may have."""
    values: list[Any]
    if kind == "n":
        integers = [number for number in NUMBERS if isinstance(number, int)]
        pools: list[list[Any]] = [NUMBERS, NUMBERS[:10], integers, [0.5, 1.5, 2.5]]
        pool = rng.choice(pools)
        values = [rng.choice(pool) for _ in range(count)]
        if all(isinstance(value, int) for value in values):
            return values, rng.choice([np.array(values, np.int64), pa.array(values, pa.int64()), values])
        if rng.random() < 0.5:
            values = [float(value) for value in values]
            return values, rng.choice([np.array(values), pa.array(values)])
        return values, values
    if kind == "s":
        values = [rng.choice(STRINGS) for _ in range(count)]
        array = pa.array(values)
        chunked = pa.chunked_array([array[:3], array[3:]])
        dictionary = pa.array(["unused", *values]).dictionary_encode()[1:]
        arrays = [
            np.array(values),
            np.array(values, object),
            array.cast(pa.large_string()),
            chunked,
            dictionary,
        ]
        forms = [values, array, *arrays]
        return values, rng.choice(forms)
    if kind == "t":
        values = [rng.choice(MOMENTS) for _ in range(count)]
        moments = np.array([moment.microseconds for moment in values]).view("datetime64[us]")
        return values, rng.choice([values, moments, pa.array(moments, pa.timestamp("us", "UTC"))])
    values = [rng.random() < 0.5 for _ in range(count)]
    return values, rng.choice([values, np.array(values), pa.array(values)])


@pytest.mark.slow(seconds=2)
def test_rows_give_the_same_clauses_together_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(SEED)
    count, rows, left_over = 20, 0, 0
    binds = Binds(monkeypatch)
    for _ in range(400):
        text, kinds = random_template(rng)
        prepared = prepare(text)
        numbers = rng.sample(range(10_000), count)
        pairs = [random_column(rng, kind, count) for kind in kinds]
        if not pairs:
            continue
        wanted = one_by_one(prepared, numbers, [values for values, _ in pairs])
        binds.count = 0
        table = compile_rows(
            prepared, np.array(numbers), [column for _, column in pairs], np.array(numbers) % 5
        )
        assert described(table) == described(wanted), (SEED, text)
        assert table.numbers.tolist() == sorted(numbers)
        assert table.literals == wanted.literals or len(table.literals) < len(wanted.literals), text
        rows += count
        left_over += binds.count
    assert left_over < rows * 0.8, "hardly anything is worked out together"


def test_boxes_are_compiled_without_looking_at_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = RangesWorkload()
    low, high = workload.boxes(500, SEED)
    columns = [side[:, place] for place in range(4) for side in (low, high)]
    binds = Binds(monkeypatch)
    table = compile_rows(prepare(BOXES), np.arange(500), columns)
    assert binds.count <= 1
    texts = workload.filters(500, SEED)
    assert described(table) == described(
        compile_entries(Entry(n, parse(text)) for n, text in enumerate(texts))
    )


def test_more_rows_than_are_worked_on_at_a_time_come_out_in_order() -> None:
    count = 70_000
    numbers = np.random.default_rng(SEED).permutation(count)
    table = compile_rows(prepare("a = ? OR b > ?"), numbers, [numbers, numbers * 0.5], 3)
    assert np.array_equal(table.numbers, np.arange(count))
    assert set(table.since.tolist()) == {3}
    few = [0, 32_767, 32_768, 69_999]
    for number in few:
        alone = compile_entries([Entry(number, parse(f"a = {number} OR b > {number * 0.5}"), 3)])
        rows = np.flatnonzero(table.clause_registration == number)
        assert sorted(table.term_bounds[table.term_start[rows]].tolist()) == sorted(
            alone.term_bounds.tolist()
        )


def test_quotes_are_compiled_without_looking_at_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(SEED)
    symbols = [market().symbols[place] for place in rng.integers(200, size=300).tolist()]
    low, volume = rng.random(300) * 50, rng.integers(10**5, 10**7, 300)
    forms: list[tuple[str, list[Any]]] = [
        ("symbol = ? AND close >= ?", [symbols, low]),
        ("symbol = ? AND close BETWEEN ? AND ?", [symbols, low, low + 5]),
        ("symbol = ? AND volume >= ?", [symbols, volume]),
        ("volume >= ? AND high BETWEEN ? AND ?", [volume, low, low + 5]),
        ("symbol = ? AND open <= ? AND close >= ?", [symbols, low, low]),
    ]
    assert {text.split()[0] for text in QuotesWorkload().filters(50, SEED)} == {"symbol", "volume"}
    binds = Binds(monkeypatch)
    for text, columns in forms:
        binds.count = 0
        table = compile_rows(prepare(text), np.arange(300), columns, np.arange(300) % 5)
        assert binds.count <= 1
        listed = [column if isinstance(column, list) else column.tolist() for column in columns]
        assert described(table) == described(one_by_one(prepare(text), list(range(300)), listed))


def test_odd_rows_are_left_to_the_compiler_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = np.arange(100.0), np.arange(100.0) + 10
    low[3], high[40], low[99] = 50.0, 2.0**60, -1e300  # empty, and beyond 2^53
    prepared = prepare("a >= ? AND a < ?")
    binds = Binds(monkeypatch)
    table = compile_rows(prepared, np.arange(100), [low, high])
    assert binds.count == 4  # and one that stands for the others
    assert 3 not in table.clause_registration
    assert described(table) == described(
        compile_entries(
            Entry(n, prepared.bind(pair))
            for n, pair in enumerate(zip(low.tolist(), high.tolist(), strict=True))
        )
    )


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a > ?", [np.array([1.0, np.nan])]),
        ("a > ?", [np.array([True, False])]),
        ("a = ?", [pa.array(["x", None])]),
        ("a = ?", [["x", "\ud800"]]),
        ("a = ?", [np.array([1, 2**63], np.uint64)]),
        ("a = ?", [np.array(["2026-01-01", "NaT"], "datetime64[s]")]),
        ("a = ?", [pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)])]),  # noqa: DTZ001 (naive)
        ("a = ? AND b = ?", [[1, 2], [3, object()]]),
        ("a BETWEEN ? AND ?", [[1, 2], ["x", "y"]]),
        ("a > ? AND b > ?", [[1, 2]]),
        ("a > ?", [[1, 2], [3, 4]]),
    ],
)
def test_what_cannot_be_bound_is_refused_by_its_parameter(text: str, columns: list[Any]) -> None:
    with pytest.raises(InvalidFilter, match=r"parameter \d"):
        compile_rows(prepare(text), np.arange(2), columns)


def test_limits_hold_for_rows_as_well() -> None:
    narrow = FilterSettings(max_clauses=1, max_length=60)
    with pytest.raises(InvalidFilter, match="max_clauses"):
        compile_rows(prepare("a = ? OR b = ?", narrow), np.arange(2), [[1, 1], [2, 2]])
    prepared = prepare("a = ?", narrow)
    assert len(compile_rows(prepared, np.arange(2), [["x", "y" * 50]]).clause_registration) == 2
    with pytest.raises(Exception, match="max_length"):
        compile_rows(prepared, np.arange(2), [["x", "y" * 60]])


def test_a_filter_without_parameters_or_rows_is_compiled_too() -> None:
    table = compile_rows(prepare("a > 5 AND s = 'x'"), np.arange(3), [])
    assert described(table) == described(
        compile_entries(Entry(n, parse("a > 5 AND s = 'x'")) for n in range(3))
    )
    assert len(compile_rows(prepare("a > ?"), np.arange(0), [np.empty(0)]).numbers) == 0
    assert len(compile_rows(prepare("s = ?"), np.arange(0), [[]]).numbers) == 0


def test_columns_must_be_as_long_as_the_numbers() -> None:
    with pytest.raises(ValueError, match="3 values"):
        compile_rows(prepare("a > ?"), np.arange(3), [np.arange(2)])


def test_timestamps_in_columns_are_moments_of_utc() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    wanted = described(compile_entries([Entry(1, parse("t > TIMESTAMP '2026-01-01T00:00:00Z'"))]))
    for column in (
        np.array(["2026-01-01"], "datetime64[D]"),
        pa.array([moment]),
        pa.array([moment], pa.timestamp("s", "+02:00")),
    ):
        assert described(compile_rows(prepare("t > ?"), np.array([1]), [column])) == wanted


def test_rows_added_to_a_filter_match_and_replace_as_others_do() -> None:
    workload = RangesWorkload()
    low, high = workload.boxes(300, SEED)
    batch = workload.event_batch(200, SEED)
    columns = [side[:, place] for place in range(4) for side in (low, high)]
    together, apart = ColumnarFilter(), ColumnarFilter()
    together.add([(number, parse("TRUE")) for number in range(250, 600)])
    together.match(batch)
    together.add([(5, parse("TRUE"))])
    together.add_rows(prepare(BOXES), np.arange(300), columns)
    together.remove([*range(300, 600), 7])
    texts = workload.filters(300, SEED)
    apart.add((number, parse(text)) for number, text in enumerate(texts) if number != 7)
    assert len(together) == len(apart) == 299
    found, wanted = together.match(batch), apart.match(batch)
    assert len(wanted.numbers) > 0
    assert np.array_equal(found.offsets, wanted.offsets)
    for start, end in zip(wanted.offsets[:-1], wanted.offsets[1:], strict=True):
        assert sorted(found.numbers[start:end].tolist()) == sorted(wanted.numbers[start:end].tolist())
