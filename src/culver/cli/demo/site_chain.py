"""The sites of the overlay's demo and the links between them.

    paris ---- lyon ---- bonn ---- oslo ---- rome
      |                                       |
      +--------------- cost 8 ----------------+

The spare link between the two ends costs more than the chain, so nothing goes that way until the chain breaks. Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

NAMES = ("paris", "lyon", "bonn", "oslo", "rome", "bern", "kyiv", "riga", "baku", "lima", "doha", "male")

_DASHES = 4


@dataclass(frozen=True, slots=True)
class SiteChain:
    """`spare_cost` is the cost of the link between the two ends; None where there is none."""

    names: tuple[str, ...]
    spare_cost: int | None

    @classmethod
    def of(cls, count: int) -> "SiteChain":
        """A chain of so many sites; two need no spare link."""
        return cls(NAMES[:count], count + 3 if count > 2 else None)

    def dialled_by(self, name: str) -> Iterator[tuple[str, int]]:
        """The sites that this one dials, and the costs of the links."""
        for earlier, later in pairwise(self.names):
            if later == name:
                yield earlier, 1
        if self.spare_cost is not None and name == self.names[-1]:
            yield self.names[0], self.spare_cost

    def drawing(self) -> list[str]:
        chain = f" {'-' * _DASHES} ".join(self.names)
        if self.spare_cost is None:
            return [chain]
        left, right = len(self.names[0]) // 2, len(chain) - len(self.names[-1]) // 2 - 1
        bars = f"{'|':>{left + 1}}{'|':>{right - left}}"
        spare = f" cost {self.spare_cost} ".center(right - left - 1, "-")
        return [chain, bars, f"{' ' * left}+{spare}+"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event at a subscriber: when, since its publication, and where in the log of that site."""

    seconds: float
    offset: int


def way_lines(
    origin: str,
    acknowledged_seconds: float,
    paths: Mapping[str, Sequence[str]],
    round_trips: Mapping[tuple[str, str], float | None],
    arrivals: Mapping[str, Arrival],
    carriers: Collection[str] = (),
) -> list[str]:
    """The way of an event from its origin to some sites, of which `paths` has the ways, hop by hop. Sites come in the
    order in which a walk along the tree of these paths meets them. `carriers` match it for the sites behind them."""
    destinations: dict[tuple[str, str], list[str]] = {}
    for destination, path in paths.items():
        for hop in pairwise((origin, *path)):
            destinations.setdefault(hop, []).append(destination)
    width = max(len(name) for name in (origin, *(after for _, after in destinations)))
    lines = [f"{origin:<{width}}  {_milliseconds(0.0)}  published"]
    lines.append(f"{'':<{width}}  {_milliseconds(acknowledged_seconds)}  acknowledged: it is on disk")
    for (before, after), behind in destinations.items():
        trip = round_trips.get((before, after))
        measured = "" if trip is None else f", over a link with a round trip of {1000 * trip:.1f} ms"
        lines.append(
            f"{'|':>3}{'':<{width - 3}}  {'':>10}  {before} sends one packet for {{{', '.join(behind)}}}{measured}"
        )
        if after in carriers:
            lines.append(f"{after:<{width}}  {'':>10}  carrier of a cluster: matches it for the members")
        if after in arrivals:
            arrival = arrivals[after]
            told = f"at the subscriber, from offset {arrival.offset} of the log of {after}"
            lines.append(f"{after:<{width}}  {_milliseconds(arrival.seconds)}  {told}")
        elif after not in carriers:
            lines.append(f"{after:<{width}}  {'':>10}  in transit: stores nothing, sends it on")
    return lines


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:>7.1f} ms"
