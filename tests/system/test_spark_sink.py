"""Rows of Spark as events at a real site: types, errors, and every row once, whatever dies."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as f

from culver import spark as culver_spark
from culver.spark.site_access import close_clients
from support.fragile_sink import FragileSource
from support.service import Service
from support.spark_session import spark_session

pytestmark = [
    pytest.mark.spark,
    pytest.mark.system,
    pytest.mark.together("spark sink"),
    pytest.mark.slow(seconds=5),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """All tests share one session."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "700",
    }
    with pytest.MonkeyPatch.context() as patch:
        # The workers import what is below `tests`.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        with spark_session(tmp_path_factory.mktemp("spark"), master="local[2,4]", **settings) as session:
            culver_spark.register(session)
            session.dataSource.register(FragileSource)
            yield session
            close_clients()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("site") / "data") as service:
        service.wait_until_ready()
        yield service


@pytest.fixture
def site(service: Service) -> Iterator[Service]:
    """The site, with a subscription that gets everything which is published from now on."""
    made = service.http.post("/v1/subscriptions", json={"id": "all", "filter": "TRUE"})
    assert made.status_code == 201, made.text
    yield service
    service.http.delete("/v1/subscriptions/all")


def stored(site: Service) -> list[dict[str, Any]]:
    site.wait_until_delivered()
    return [item["event"] for item in site.receive_all("all")]


def save(frame: DataFrame, site: Service, form: str = "culver", **options: Any) -> None:
    frame.write.format(form).mode("append").option("url", site.url).options(**options).save()


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(f.col("id").alias("n"), f.lit("x").alias("text"))


def test_columns_become_attributes(spark: SparkSession, site: Service) -> None:
    rows = spark.sql(
        """
        SELECT 1 AS whole, CAST(2 AS TINYINT) AS small, 2.5D AS real, 'é' AS text, true AS yes,
               TIMESTAMP '2026-01-02 03:04:05.000006' AS at, array('a', 'b') AS tags,
               named_struct('x', 1, 'at', TIMESTAMP '1960-01-01 00:00:00', 'none', CAST(NULL AS INT)) AS inner,
               CAST(NULL AS STRING) AS missing
        UNION ALL SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'here'
        """
    ).coalesce(1)
    save(rows, site)
    assert stored(site) == [
        {
            "whole": 1,
            "small": 2,
            "real": 2.5,
            "text": "é",
            "yes": True,
            "at": {"$timestamp": "2026-01-02T08:04:05.000006Z"},
            "tags": ["a", "b"],
            "inner": {"x": 1, "at": {"$timestamp": "1960-01-01T05:00:00.000000Z"}},
        },
        {"whole": 2, "missing": "here"},
    ]


def test_column_of_json_is_published_as_it_is(spark: SparkSession, site: Service) -> None:
    rows = spark.createDataFrame([('{"a": {"b": 1}}', 7)], "value STRING, other INT")
    save(rows, site, json="value")
    assert stored(site) == [{"a": {"b": 1}}]
    with pytest.raises(Exception, match="value is null in a row"):
        save(spark.sql("SELECT CAST(NULL AS STRING) AS value"), site, json="value")


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("SELECT map('a', 1) AS m", {}, "column m: an event cannot hold the type MAP<STRING,INT>"),
        ("SELECT named_struct('d', 1.5) AS s", {}, r"column s\.d: .* DECIMAL"),
        ("SELECT 1 AS a", {"json": "a"}, "must be a column of the type STRING, and is INT"),
        ("SELECT 1 AS a", {"json": "b"}, "no such column"),
        ("SELECT 1 AS a", {"publisher": "a b"}, "option publisher: must be"),
        ("SELECT 1 AS a", {"batch": "1"}, "option batch: needs the option publisher"),
        ("SELECT 1 AS a", {"order": "some"}, "option order: must be input or sorted"),
        ("SELECT 1 AS a", {"publischer": "p"}, "did you mean publisher"),
        ("SELECT CAST('NaN' AS DOUBLE) AS a", {}, "a is nan, which an event cannot hold"),
        ("SELECT 1 AS `a.b`, named_struct('b', 2) AS a", {}, "RequestRefused: .*a\\.b"),
    ],
)
def test_what_cannot_be_published_is_named(
    spark: SparkSession, site: Service, query: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        save(spark.sql(query), site, **options)
    assert stored(site) == []


def test_log_is_not_overwritten(spark: SparkSession, site: Service) -> None:
    with pytest.raises(Exception, match="cannot be overwritten"):
        numbers(spark, 1).write.format("culver").mode("overwrite").option("url", site.url).save()


def test_rows_of_killed_workers_are_stored_once(spark: SparkSession, site: Service, tmp_path: Path) -> None:
    save(numbers(spark, 9_000), site, "fragile", dieAfter=1_234, eventsPerRequest=500, marks=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"died-0", "died-1", "died-2"}
    assert Counter(event["n"] for event in stored(site)) == Counter(range(9_000))


def test_jobs_with_the_same_publisher_are_one(spark: SparkSession, site: Service) -> None:
    """Also at the same time, as the copies of a task are that Spark makes of slow ones."""
    failures: list[BaseException] = []

    def write() -> None:
        try:
            # A new thread has no session, and only sessions know the data sources that are registered with them.
            spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
            save(numbers(spark, 6_000), site, publisher="nightly", batch=3)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(each) for each in failures] == []
    save(numbers(spark, 6_000), site, publisher="nightly", batch=3, eventsPerRequest=777)
    save(numbers(spark, 10), site, publisher="nightly", batch=4)
    expected = Counter(range(6_000)) + Counter(range(10))
    assert Counter(event["n"] for event in stored(site)) == expected


def test_rows_in_another_order_are_refused_unless_they_are_sorted(spark: SparkSession, site: Service) -> None:
    rows = numbers(spark, 500, 1)
    backwards = rows.coalesce(1).sortWithinPartitions(f.desc("n"))
    save(rows, site, publisher="as-they-come")
    with pytest.raises(Exception, match="has published another event under sequence 0"):
        save(backwards, site, publisher="as-they-come")
    save(rows, site, publisher="sorted", order="sorted")
    save(backwards, site, publisher="sorted", order="sorted")
    assert Counter(event["n"] for event in stored(site)) == Counter(list(range(500)) * 2)


def test_rows_in_other_partitions_are_stored_twice_unless_columns_fix_these(
    spark: SparkSession, site: Service
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        for partitions in (2, 1):
            rows = numbers(spark, 600, partitions)
            save(rows, site, publisher="cut")
            save(rows.repartition(3, "n"), site, publisher="fixed", order="sorted")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    once, again = list(range(600)), list(range(300, 600))
    assert Counter(event["n"] for event in stored(site)) == Counter([*once, *again, *once])


def write_files(directory: Path, files: int, rows: int) -> None:
    directory.mkdir()
    for number in range(files):
        values = range(number * rows, (number + 1) * rows)
        pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), directory / f"{number:04}.parquet")


def test_batch_of_a_query_that_failed_before_its_commit_is_stored_once(
    spark: SparkSession, site: Service, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", 4, 1_500)
    rows = spark.readStream.schema("n BIGINT").option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "in"))
    spread = rows.repartition(3, "n")

    def play() -> None:
        query = (
            spread.writeStream.format("fragile")
            .option("url", site.url)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("failCommits", "true")
            .option("marks", str(tmp_path))
            .option("order", "sorted")
            .option("dieAfter", "300")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for _ in range(2):
        with pytest.raises(Exception, match="the driver fails before it commits"):
            play()
    play()
    marks = {path.name for path in tmp_path.glob("*-[0-9]")}
    assert marks == {"committing-0", "committing-1", "died-0", "died-1", "died-2"}
    assert Counter(event["n"] for event in stored(site)) == Counter(range(6_000))


def test_batches_of_a_query_may_be_written_one_by_one(
    spark: SparkSession, site: Service, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", 2, 100)

    def publish(rows: DataFrame, batch: int) -> None:
        for _ in range(2):
            save(rows, site, publisher="alerts", batch=batch)

    rows = spark.readStream.schema("n BIGINT").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    query = rows.writeStream.foreachBatch(publish).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert Counter(event["n"] for event in stored(site)) == Counter(range(200))


def test_changed_results_are_refused_as_a_whole(spark: SparkSession, site: Service, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1, 10)
    rows = spark.readStream.schema("n BIGINT").parquet(str(tmp_path / "in"))
    counts = rows.groupBy((f.col("n") % 2).alias("odd")).count()
    stream = (
        counts.writeStream.format("culver")
        .option("url", site.url)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises(Exception, match="cannot be overwritten"):
        stream.outputMode("complete").start().awaitTermination()
    assert stored(site) == []
