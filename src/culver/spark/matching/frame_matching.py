"""`culver.spark.match`: which filters each row of a DataFrame satisfies, in batch and in streaming queries.

The filters are compiled in the driver's process and saved as a package (see `filter_package`), which Spark brings to
each machine as an artifact of the session, also of Spark Connect. Streaming queries on Connect do not find artifacts
of their session, so they carry the package. Artifacts can neither be removed nor reach a batch that has begun, so the
driver itself serves filters that are replaced while a streaming query runs (see `filter_server`).
"""

import weakref
from typing import TYPE_CHECKING

from culver.errors import InvalidRequest
from culver.spark.matching.event_schema import EventSchema
from culver.spark.matching.filter_forms import FilterForms, package_of
from culver.spark.matching.filter_package import FilterPackage
from culver.spark.matching.replaceable_filters import Filters
from culver.spark.matching.worker_matching import (
    CarriedFilters,
    ServedFilters,
    ShippedFilters,
    WorkerMatching,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

# A message of Spark Connect may have twice as much.
_MOST_CARRIED_BYTES = 64 * 1024 * 1024

# By what keeps artifacts: a session of Spark Connect, otherwise the context, which sessions share. Machines that join
# later come for the file to this process; Spark Connect has uploaded it.
_shipped: "weakref.WeakKeyDictionary[SparkSession | SparkContext, dict[str, FilterPackage | None]]" = (
    weakref.WeakKeyDictionary()
)


def match(
    events: "DataFrame",
    filters: "FilterForms | Filters",
    *,
    ids: str = "matches",
    explode: bool = False,
    strict: bool = True,
) -> "DataFrame":
    """Find the filters that each row satisfies. The result has the columns of `events` and one more, named `ids`: an
    array with the ids of these filters, empty where there are none; or with `explode` one id, and a row for each. The
    ids of an event come in the order of the filters.

    `filters` is a dictionary from ids to texts, a DataFrame with the columns `id` and `filter`, a `culver.Matcher`,
    the path of a saved one, or `Filters`, which can be replaced while a streaming query runs. Nested fields have
    dotted names, such as `customer.country`. docs/spark-users.md has the table of types.

    With `strict`, a filter that names a column that does not exist, or compares it with a value of another type, is
    refused. Without, it does not match, as for an event that has no such attribute.

    Everything is checked here, before Spark begins to work: raises InvalidFilter with the filter's id in its details,
    InvalidEvent with the column as its field, and InvalidRequest for all else.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.types import ArrayType, StringType, StructType

    if not isinstance(events, DataFrame):
        raise InvalidRequest(f"events are a DataFrame, not {type(events).__name__}", field="events")
    session, schema = events.sparkSession, EventSchema.of(events, ids, strict=strict)
    source: ShippedFilters | CarriedFilters | ServedFilters
    if isinstance(filters, Filters) and events.isStreaming:
        if is_remote(session):
            raise InvalidRequest(
                "on Spark Connect, filters cannot be replaced while a query runs, because its workers do not reach "
                "this process: give match a dictionary, a DataFrame or a Matcher, and restart the query to change it",
                field="filters",
            )
        source = ServedFilters(*filters.serve(session, schema))
    else:
        package = filters.package if isinstance(filters, Filters) else package_of(filters)
        schema.check(package.matcher)
        if is_remote(session) and events.isStreaming:
            source = _carried(package)
        else:
            source = ShippedFilters(_ship(package, session))
    kind = StringType() if explode else ArrayType(StringType(), containsNull=False)
    result = StructType([*events.schema.fields]).add(ids, kind, nullable=False)
    return events.mapInArrow(WorkerMatching(source, ids, explode, schema.timezone), result)


def is_remote(session: "SparkSession") -> bool:
    """Whether it is a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _carried(package: FilterPackage) -> CarriedFilters:
    """Raises InvalidRequest where the package is larger than a query should be."""
    size = package.path.stat().st_size
    if size > _MOST_CARRIED_BYTES:
        raise InvalidRequest(
            f"on Spark Connect, filters travel within a streaming query: these take {size:,} bytes, more than the "
            f"limit of {_MOST_CARRIED_BYTES:,}; match in a batch job, or in a session without Connect",
            field="filters",
        )
    return CarriedFilters(package.digest, package.path.read_bytes())


def _ship(package: FilterPackage, session: "SparkSession") -> str:
    """Give the package to the session, whose machines fetch it before their next task; returns its digest."""
    remote = is_remote(session)
    shipped = _shipped.setdefault(session if remote else session.sparkContext, {})
    if package.digest not in shipped:
        session.addArtifacts(str(package.path), file=True)
        shipped[package.digest] = None if remote else package
    return package.digest
