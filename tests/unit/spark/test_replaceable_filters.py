"""Filters bind what uses them: queries that run, and those that are not started yet."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from culver.errors import InvalidFilter, Unavailable
from culver.spark import Filters
from culver.spark.matching.event_schema import EventSchema

SCHEMA = EventSchema(pa.schema([("price", pa.float64())]), "UTC", strict=True)


def a_session() -> Any:
    """Stands for Spark's."""
    conf = SimpleNamespace(get=lambda name, default: default)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: conf), streams=SimpleNamespace(active=[])
    )


def packages_of(folder: Path) -> int:
    return len(list(folder.glob("culver-package-*")))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_query_that_has_ended_binds_neither_its_schema_nor_its_version(folder: Path) -> None:
    session = a_session()
    with Filters({"a": "price > 1"}) as filters:
        address, use = filters.serve(session, SCHEMA)
        assert filters.serve(session, SCHEMA) == (address, use)
        with pytest.raises(InvalidFilter):
            filters.replace({"a": "prise > 1"})
        session.streams.active = [SimpleNamespace(id="query")]
        first = address.version("query", 0, use)
        filters.replace({"a": "price > 2"})
        address.fetch(first, folder / "fetched")
        with pytest.raises(InvalidFilter):
            filters.replace({"a": "prise > 1"})
        session.streams.active = []
        filters.replace({"a": "prise > 1"})
        with pytest.raises(Unavailable, match="no longer serves"):
            address.fetch(first, folder / "fetched")
        assert packages_of(folder) == 1
        session.streams.active = [SimpleNamespace(id="query")]  # started again
        address.version("query", 0, use)
        with pytest.raises(InvalidFilter):
            filters.replace({"b": "prise > 1"})


def used(filters: Filters) -> list[Callable[[], object]]:
    return [
        lambda: filters.package,
        lambda: filters.replace({}),
        lambda: len(filters),
        lambda: filters.serve(a_session(), SCHEMA),
    ]


def test_filters_that_are_closed_keep_no_files(folder: Path) -> None:
    filters = Filters({"a": "price > 1"})
    filters.serve(a_session(), SCHEMA)
    assert packages_of(folder) == 1
    filters.close()
    assert packages_of(folder) == 0
    for use in used(filters):
        with pytest.raises(Unavailable, match="closed"):
            use()
