"""The forms in which `match` takes filters, made into a package."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from culver.errors import InvalidRequest
from culver.matcher import Matcher
from culver.spark.matching.filter_package import FilterPackage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FilterForms: TypeAlias = "Mapping[str, str] | DataFrame | Matcher | str | Path"

_COLUMNS = ("id", "filter")


def package_of(filters: FilterForms) -> FilterPackage:
    """Raises InvalidFilter, with `id` in its details, for a filter that cannot be parsed, Conflict for an id that
    occurs twice, and InvalidRequest."""
    if isinstance(filters, Matcher):
        return FilterPackage(filters)
    if isinstance(filters, str | Path):
        return FilterPackage(Path(filters))
    matcher = Matcher()
    for identifier, text in _items(filters):
        matcher.add(identifier, text)
    return FilterPackage(matcher)


def _items(filters: Any) -> Iterable[tuple[str, str]]:
    from pyspark.sql import DataFrame

    if isinstance(filters, Mapping):
        return filters.items()
    if isinstance(filters, DataFrame):
        return _rows(filters)
    raise InvalidRequest(
        "filters are a dictionary from ids to texts, a DataFrame with the columns id and filter, a culver.Matcher, "
        f"the path of a saved one or culver.spark.Filters, not {type(filters).__name__}",
        field="filters",
    )


def _rows(frame: "DataFrame") -> Iterable[tuple[str, str]]:
    if frame.isStreaming:
        raise InvalidRequest(
            "the DataFrame of filters is a streaming one; replace filters with culver.spark.Filters instead",
            field="filters",
        )
    missing = [name for name in _COLUMNS if name not in frame.columns]
    if missing:
        raise InvalidRequest(f"the DataFrame of filters has no column {missing[0]!r}", field=missing[0])
    table = frame.selectExpr("CAST(id AS STRING) id", "CAST(filter AS STRING) filter").toArrow()
    for name in _COLUMNS:
        if table.column(name).null_count:
            raise InvalidRequest(f"the DataFrame of filters has a row without {name}", field=name)
    return zip(table.column("id").to_pylist(), table.column("filter").to_pylist(), strict=True)
