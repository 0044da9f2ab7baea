"""`culver.spark.match` on real Spark equals the slow reference, in batch and in streaming queries."""

import random
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from culver import Matcher, spark as culver_spark
from culver.client import SyncClient
from culver.errors import Conflict, CulverError, InvalidEvent, InvalidFilter, InvalidRequest, Unavailable
from culver.spark.site_access import close_clients
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.site_thread import site_in_thread
from support.spark_session import spark_session
from support.spark_tables import random_filters, random_spark_table, reference

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.together("spark-match")]

QUOTES = pa.table(
    {
        "row": [0, 1, 2],
        "symbol": ["XYZ", "ABC", None],
        "price": [21.5, 19.0, 30.0],
        "order": pa.array(
            [{"id": 7, "tags": ["new"]}, None, {"id": None, "tags": []}],
            pa.struct([("id", pa.int32()), ("tags", pa.list_(pa.string()))]),
        ),
        "raw": pa.array([b"1", b"2", None], pa.binary()),
    }
)
FILTERS = {
    "dear": "price > 20",
    "xyz": "symbol = 'XYZ' AND price BETWEEN 20 AND 30",
    "new": "'new' IN order.tags OR order.id = 9",
    "none": "symbol IS NULL",
}
FOUND = [["dear", "xyz", "new"], [], ["dear", "none"]]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """The tests of this module share the session and what it opens."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def quotes(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(QUOTES)


def lists(frame: DataFrame, ids: str = "matches") -> list[list[str]]:
    """The ids of each event, in the order of `row`."""
    return [row[ids] for row in sorted(frame.select("row", ids).collect())]


def pairs(frame: DataFrame) -> list[tuple[int, str]]:
    return sorted((row["row"], row["id"]) for row in frame.collect())


@pytest.mark.slow(seconds=10)
def test_batches_equal_the_reference_on_random_tables(spark: SparkSession) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        filters = random_filters(rng, 40)
        table, rows = random_spark_table(rng, rng.randrange(1, 60))
        events = spark.createDataFrame(table).repartition(rng.randrange(1, 3))
        wanted = reference(filters, rows)
        if seed % 2:
            assert lists(culver_spark.match(events, filters, strict=False)) == wanted, seed
        else:
            found = culver_spark.match(events, filters, ids="id", explode=True, strict=False)
            assert pairs(found) == sorted((row, id_) for row, ids in enumerate(wanted) for id_ in ids), seed


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("seed", [1, 2])
def test_streaming_queries_equal_the_reference(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    filters = random_filters(rng, 40)
    table, rows = random_spark_table(rng, 40)
    (tmp_path / "events").mkdir()
    for part in range(4):
        pq.write_table(table.slice(10 * part, 10), tmp_path / "events" / f"{part}.parquet")
    schema = spark.read.parquet(str(tmp_path / "events")).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "events"))
    matched = culver_spark.match(stream, filters, strict=False)
    matched.writeStream.trigger(availableNow=True).format("parquet").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).start(str(tmp_path / "out")).awaitTermination()
    assert lists(spark.read.parquet(str(tmp_path / "out"))) == reference(filters, rows)


def test_filters_come_as_a_dictionary_a_data_frame_a_matcher_or_a_file(
    spark: SparkSession, quotes: DataFrame, tmp_path: Path
) -> None:
    with Matcher() as matcher:
        for id_, text in FILTERS.items():
            matcher.add(id_, text)
        matcher.save(tmp_path / "saved")
        frame = spark.createDataFrame(list(FILTERS.items()), "id string, filter string").coalesce(1)
        for given in (FILTERS, frame, matcher, tmp_path / "saved", str(tmp_path / "saved")):
            assert lists(culver_spark.match(quotes, given)) == FOUND
    with culver_spark.Filters(FILTERS) as filters:
        assert len(filters) == 4
        before = culver_spark.match(quotes, filters)
        filters.replace({"all": "TRUE"})
        assert lists(culver_spark.match(quotes, filters)) == [["all"]] * 3
        assert lists(before) == FOUND


def test_the_result_has_the_columns_of_the_events_and_the_ids(quotes: DataFrame) -> None:
    matched = culver_spark.match(quotes, FILTERS, ids="alerts")
    assert matched.columns == [*quotes.columns, "alerts"]
    assert matched.drop("alerts").toArrow().equals(quotes.toArrow())
    exploded = culver_spark.match(quotes, FILTERS, ids="alert", explode=True).orderBy("row", "alert")
    assert exploded.drop("alert").collect() == [
        row for row, ids in zip(quotes.collect(), FOUND, strict=True) for _ in ids
    ]


def test_timestamps_without_a_zone_are_those_of_the_session(spark: SparkSession) -> None:
    events = spark.sql("SELECT 0 row, TIMESTAMP_NTZ '2026-01-01 01:00:00' at")
    filters = {
        "one": "at = TIMESTAMP '2026-01-01T01:00:00Z'",
        "nought": "at = TIMESTAMP '2026-01-01T00:00:00Z'",
    }
    assert lists(culver_spark.match(events, filters)) == [["one"]]
    spark.conf.set("spark.sql.session.timeZone", "Europe/Rome")
    try:
        assert lists(culver_spark.match(events, filters)) == [["nought"]]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_timestamps_without_a_zone_need_one_that_arrow_knows(spark: SparkSession) -> None:
    events = spark.sql("SELECT 0 row, TIMESTAMP_NTZ '2026-01-01 01:00:00' at")
    spark.conf.set("spark.sql.session.timeZone", "GMT+2")
    try:
        with pytest.raises(InvalidRequest, match=r"'at' .* 'GMT\+2': .*, as spark\.sql\.session\.timeZone"):
            culver_spark.match(events, {"a": "at IS NULL"}, strict=False)
        assert lists(culver_spark.match(events, {"a": "row = 0"})) == [["a"]]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_column_of_nulls_is_absent_in_every_row(spark: SparkSession) -> None:
    events = spark.sql("SELECT 0 row, NULL price, named_struct('id', NULL) order")
    filters = {"a": "price > 20", "b": "price IS NULL", "c": "order.id = 'x' OR data.price IS NULL"}
    assert lists(culver_spark.match(events, filters)) == [["b", "c"]]


@pytest.mark.slow(seconds=3)
def test_filters_are_replaced_between_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "events"
    inbox.mkdir()
    stream = spark.readStream.schema("row bigint, price double").parquet(str(inbox))

    def arrive(rows: list[int]) -> None:
        table = pa.table({"row": rows, "price": [float(row) for row in rows]})
        pq.write_table(table, tmp_path / "new")
        (tmp_path / "new").rename(inbox / f"{rows[0]}.parquet")
        query.processAllAvailable()

    with culver_spark.Filters({"first": "price >= 0"}) as filters:
        matched = culver_spark.match(stream, filters)
        query = matched.writeStream.format("memory").queryName("replaced").start()
        try:
            arrive([0, 1])
            filters.replace({"second": "price >= 2", "even": "price % 2 = 0"})
            arrive([2, 3])
            with pytest.raises(InvalidFilter, match="there is no column 'prise'"):
                filters.replace({"third": "prise >= 2"})
            arrive([4])
            filters.replace({})
            arrive([5])
            wanted = [["first"], ["first"], ["second", "even"], ["second"], ["second", "even"], []]
            assert lists(spark.table("replaced")) == wanted
        finally:
            query.stop()
        filters.replace({"third": "prise >= 2"})
    with pytest.raises(Unavailable, match="closed"):
        filters.replace({})
    with pytest.raises(Unavailable, match="closed"):
        culver_spark.match(stream, filters)


@pytest.mark.slow(seconds=2)
def test_each_batch_of_a_function_uses_the_filters_of_its_moment(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        spark.range(number, number + 1, 1, 1).write.mode("append").parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    found: list[list[str]] = []
    with culver_spark.Filters({"version 0": "TRUE"}) as filters:

        def handle(batch: DataFrame, number: int) -> None:
            found.extend(row["ids"] for row in culver_spark.match(batch, filters, ids="ids").collect())
            filters.replace({f"version {number + 1}": "id >= 0"})

        writer = stream.parquet(str(tmp_path / "events")).writeStream.foreachBatch(handle)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert found == [["version 0"], ["version 1"], ["version 2"]]


REFUSED: list[tuple[dict[str, Any], type[CulverError], str]] = [
    ({"filters": {"a": "price >"}}, InvalidFilter, "filter 'a'"),
    (
        {"filters": {"a": "prise > 2"}},
        InvalidFilter,
        "filter 'a': there is no column 'prise'; did you mean price?",
    ),
    (
        {"filters": {"b": "TRUE", "a": "price = 'x'"}},
        InvalidFilter,
        "filter 'a': the column 'price' holds a number, and is compared with a string",
    ),
    (
        {"filters": {"a": "symbol + 1 > 2"}},
        InvalidFilter,
        "'symbol' holds a string, and is compared with a number",
    ),
    (
        {"filters": {"a": "order IS NULL"}},
        InvalidFilter,
        "filter 'a': the column 'order' is a struct; name one of its fields: id, tags",
    ),
    ({"filters": {"a": "raw IS NULL"}}, InvalidEvent, "column 'raw' has the type binary"),
    ({"ids": "Price"}, InvalidRequest, "the events have a column 'price' already"),
    ({"filters": ["price > 20"]}, InvalidRequest, "filters are a dictionary from ids to texts"),
    ({"filters": {7: "price > 20"}}, InvalidRequest, "an id is a string, not int"),
    ({"events": [1]}, InvalidRequest, "events are a DataFrame, not list"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_what_cannot_be_matched_is_named_before_a_job(
    quotes: DataFrame, given: dict[str, Any], error: type[CulverError], message: str
) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")) as raised:
        culver_spark.match(**{"events": quotes, "filters": FILTERS, **given})
    if error is InvalidFilter:
        assert raised.value.details["id"] == "a"


def test_filters_in_a_data_frame_have_an_id_each(spark: SparkSession, quotes: DataFrame) -> None:
    def match(query: str) -> DataFrame:
        return culver_spark.match(quotes, spark.sql(query))

    with pytest.raises(Conflict, match="'a'"):
        match("SELECT 'a' id, 'price > 1' filter UNION ALL SELECT 'a', 'price > 2'")
    with pytest.raises(InvalidRequest, match="a row without filter"):
        match("SELECT 'a' id, CAST(NULL AS STRING) filter")
    with pytest.raises(InvalidRequest, match="no column 'filter'"):
        match("SELECT 'a' id, 'price > 1' text")
    assert lists(match("SELECT 1 id, 'price > 20' filter")) == [["1"], [], ["1"]]


def test_a_filter_that_does_not_suit_the_columns_does_not_match_without_strict(quotes: DataFrame) -> None:
    filters = {"typo": "prise > 2", "text": "price = 'x'", "absent": "prise IS NULL"}
    assert lists(culver_spark.match(quotes, filters, strict=False)) == [["absent"]] * 3


def test_rows_that_match_twenty_thousand_filters_each(spark: SparkSession) -> None:
    filters = {f"f{number}": f"row >= {-number}" for number in range(20_000)}
    events = spark.range(40).withColumnRenamed("id", "row").repartition(2)
    matched = culver_spark.match(events, filters)
    assert {len(ids) for ids in lists(matched)} == {20_000}


# --- examples ------------------------------------------------------------------------------------------------


def run_example(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example as it is; its session is the one that there is already."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.slow(seconds=2)
def test_the_batch_example_shows_what_matches(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_example("spark_batch.py", monkeypatch=monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "ABC" in line or "XYZ" in line] == [
        "|   ABC| 19.0|    []|           [bob]|",
        "|   XYZ| 21.5|[tech]|[dear, ada, bob]|",
        "|   ABC| 30.0|  NULL|          [dear]|",
    ]
    assert "| dear|    2|" in lines
    assert lines[-1] == "0 quotes set off no alert"


@pytest.mark.slow(seconds=2)
def test_the_streaming_example_replaces_its_filters(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_example("spark_streaming.py", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.splitlines() == [
        "19.0 []",
        "19.0 ['cheap']",
        "21.5 []",
        "21.5 ['dear']",
        "31.0 ['dear']",
    ]


@pytest.mark.slow(seconds=2)
def test_the_lakehouse_example_handles_each_event_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, filters, alerts = (str(tmp_path / name) for name in ("events", "filters", "alerts"))
    spark.createDataFrame(
        [("dear", "price > 20"), ("any", "TRUE")], "id string, filter string"
    ).write.parquet(filters)
    for number in range(3):
        rows = spark.range(10).selectExpr(
            f"id + {10 * number} AS row",
            "id + 15.5 AS price",
            f"TIMESTAMP '2026-01-0{number + 1} 12:00:00' AS at",
        )
        rows.write.mode("append").parquet(events)
        run_example("spark_alerts.py", events, filters, alerts, monkeypatch=monkeypatch)
    found = spark.read.parquet(alerts).orderBy("row", "alert").select("row", "alert", "day").collect()
    assert [(row["row"], row["alert"]) for row in found] == [
        (row, alert) for row in range(30) for alert in (["any", "dear"] if row % 10 >= 5 else ["any"])
    ]
    assert {str(row["day"]) for row in found} == {"2026-01-01", "2026-01-02", "2026-01-03"}


@pytest.mark.slow(seconds=4)
def test_the_source_example_reads_alerts_and_history(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with site_in_thread(FakeSite(gateway_settings())) as url, SyncClient(url) as client:
        monkeypatch.setenv("CULVER_URL", url)
        client.create_subscription("price > 20", id="dear")
        client.publish([{"symbol": "XYZ", "price": 21.5}, {"symbol": "ABC", "price": 3}])
        run_example("spark_source.py", str(tmp_path), monkeypatch=monkeypatch)
        assert capsys.readouterr().out == "0 XYZ 21.5\nABC 3.0\nXYZ 21.5\n"
        assert client.subscription("dear").pending <= 1
    close_clients()
