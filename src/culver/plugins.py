"""The one table of what can be chosen by name. A module is imported when its name is first asked for."""

import functools
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from culver.config import LogSettings
from culver.errors import InvalidConfiguration
from culver.matching import Filter
from culver.model import ENCODED

if TYPE_CHECKING:  # they import Arrow and Numba, which takes most of a second
    from culver.log import LogReader, PublicationLog
    from culver.pipeline import Engine
    from culver.placement import Forwarding, Placement
    from culver.site import RoutingStrategy

T = TypeVar("T")

FILTERS: Mapping[str, str] = {
    "reference": "culver.matching.filters.reference:ReferenceFilter",
    "counting": "culver.matching.filters.counting:CountingFilter",
    "columnar": "culver.matching.filters.columnar:ColumnarFilter",
    "encoded": "culver.matching.encoded.encoded_filter:EncodedFilter",
}

EXACT_FILTERS = tuple(sorted(FILTERS.keys() - {ENCODED}))
"""Those that read filter texts and give exactly the subscriptions that an event satisfies. Clients may choose one as
a subscription's scheme; `encoded` is for what sites tell one another."""

PLACEMENTS: Mapping[str, str] = {
    "replicated": "culver.placement.fixed_placements:Replicated",
    "hashed": "culver.placement.fixed_placements:Hashed",
    "mpartition": "culver.placement.mpartition:MPartition",
    "event-space": "culver.placement.mpartition:EventSpace",
    "one-dimension": "culver.placement.mpartition:OneDimension",
    "kmeans": "culver.placement.kmeans:KMeans",
}

FORWARDINGS: Mapping[str, str] = {
    "adaptive": "culver.placement.forwarding:AdaptiveForwarding",
    "response-time": "culver.placement.forwarding:ResponseTimeForwarding",
    "subscription-count": "culver.placement.forwarding:SubscriptionCountForwarding",
    "random": "culver.placement.forwarding:RandomForwarding",
}

ENGINES: Mapping[str, str] = {
    "inline": "culver.pipeline.inline_engine:InlineEngine",
    "spark": "culver.pipeline.spark.spark_engine:SparkEngine",
}

ROUTINGS: Mapping[str, str] = {
    "b-drp": "culver.site.wide_area.routing.drp_strategy:DrpStrategy",
    "clusters": "culver.site.wide_area.routing.cluster_strategy:ClusterStrategy",
}

LOGS: Mapping[str, str] = {
    "file": "culver.log.files.file_log:FileLog",
}
"""Logs by the scheme of their addresses."""


def filter_named(name: str) -> type[Filter]:
    """The class of a filter; call it for an empty one. Raises InvalidConfiguration with the known names."""
    return _load("filter", FILTERS, name)


def placement_named(name: str) -> type["Placement"]:
    """The class of a placement; call it with a number of slices, or its `from_state`. Raises InvalidConfiguration
    with the known names."""
    return _load("placement", PLACEMENTS, name)


@functools.cache
def forwarding_named(name: str) -> type["Forwarding"]:
    """The class of a forwarding policy; call it for one. Raises InvalidConfiguration with the known names."""
    return _load("forwarding", FORWARDINGS, name)


def engine_named(name: str) -> type["Engine"]:
    """The class of an engine; call it with its setup. Raises InvalidConfiguration with the known names."""
    return _load("engine", ENGINES, name, field="pipeline.engine")


def routing_named(name: str) -> type["RoutingStrategy"]:
    """The class of a way to route between sites; call it with its settings. Raises InvalidConfiguration with the
    known names."""
    return _load("routing", ROUTINGS, name, field="overlay.routing")


def open_log(address: str, settings: LogSettings) -> "PublicationLog":
    """Open the log at that address to publish to it; a site does so once. Raises InvalidConfiguration with the known
    schemes."""
    return _log_at(address).open(address, settings)


def open_reader(address: str) -> "LogReader":
    """Open a reader of the log at that address, in any process. Raises InvalidConfiguration as `open_log`."""
    return _log_at(address).open_reader(address)


def _log_at(address: str) -> type["PublicationLog"]:
    return _load("log", LOGS, address.partition(":")[0])


def _load(what: str, table: Mapping[str, str], name: str, field: str | None = None) -> type[T]:
    if name not in table:
        raise InvalidConfiguration(
            f"unknown {what} {name!r}; known: {', '.join(sorted(table))}",
            field=field or what,
            known=sorted(table),
        )
    module, _, attribute = table[name].partition(":")
    found: type[T] = getattr(importlib.import_module(module), attribute)
    return found
