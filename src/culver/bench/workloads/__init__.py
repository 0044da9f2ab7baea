"""The workloads that every figure is quoted on, by name."""

from culver.bench.workloads.news import NewsWorkload
from culver.bench.workloads.quotes import QuotesWorkload
from culver.bench.workloads.uniform_ranges import RangesWorkload
from culver.bench.workloads.workload import Workload
from culver.errors import InvalidConfiguration

__all__ = ["WORKLOADS", "Workload", "named"]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in (RangesWorkload(), QuotesWorkload(), NewsWorkload())
}


def named(name: str) -> Workload:
    """The workload with that name, in upper or lower case. Raises InvalidConfiguration, which lists the known
    names."""
    try:
        return WORKLOADS[name.upper()]
    except KeyError:
        known = ", ".join(WORKLOADS)
        raise InvalidConfiguration(
            f"there is no workload {name!r}; known workloads: {known}", field="workload"
        ) from None
