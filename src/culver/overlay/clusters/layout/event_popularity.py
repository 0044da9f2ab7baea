"""Measures where publications and subscriptions fall, and proposes how to divide the event space (section 3.2).

For each of the first attributes that it sees, it counts by cells:

    cell 0       no value, another type, or a string that came after the table was full
    cell i       strings: the i-th value; numbers: the i-th interval, between quantiles of the first values

Cells with many subscriptions for each publication want many clusters, the others few. So cells are sorted by that
and cut into parts. The attribute and the cuts win whose parts together cost the least traffic, each part with the
number of clusters that suits it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from culver.model import Domain, Value, domain_of
from culver.model.language import Between, Clause, Computed, OneOf
from culver.overlay.clusters.layout.cluster_count import (
    WORTHWHILE_GAIN,
    MeasuredTraffic,
    best_count,
    expected_traffic,
)
from culver.overlay.clusters.layout.event_division import EventDivision

_NUMBER_CELLS = 16
_FIRST_NUMBERS = 256
_MOST_WAITING = 1024
_MOST_CUTS = 12
_MOST_SPANS = 4096
_ALL_CELLS = -1


class DivisionProposal(NamedTuple):
    """`clusters` has one number for each part. `traffic` is what equation 1 expects, and `undivided` what it expects
    of one clustering for all."""

    division: EventDivision
    clusters: tuple[int, ...]
    traffic: float
    undivided: float


class PopularityCounts:
    """Counts since it was made. Its memory is bounded: attributes, values and combinations of cells beyond the limits
    count together."""

    def __init__(self, most_attributes: int = 16, most_values: int = 256) -> None:
        self._most_attributes = most_attributes
        self._most_values = most_values
        self._attributes: dict[str, _AttributeCells] = {}
        self._publications = 0
        self._matched = 0.0
        self._subscriptions = 0

    def published(self, attributes: Mapping[str, Value], matched: float) -> None:
        """Count an event that this share of all brokers wants."""
        for name, value in attributes.items():
            self._track(name, domain_of(value))
        for name, cells in self._attributes.items():
            cells.published_value(attributes.get(name), matched)
        self._publications += 1
        self._matched += matched

    def subscribed(self, clauses: Sequence[Clause]) -> None:
        """Count a subscription that its broker tells to its cluster."""
        for clause in clauses:
            for constraint in clause:
                if isinstance(constraint, Between | OneOf):
                    self._track(constraint.attribute, constraint.domain)
        for cells in self._attributes.values():
            cells.subscribed_clauses(clauses)
        self._subscriptions += 1

    def propose(self, version: int, brokers: int, parts: int = 3) -> DivisionProposal:
        """The division into at most so many parts with the least expected traffic, or the undivided event space where
        that saves no more than `WORTHWHILE_GAIN`. Part 0 is the most popular one."""
        everything = MeasuredTraffic(
            self._publications,
            self._subscriptions,
            self._matched / self._publications if self._publications else 0.0,
            brokers,
        )
        whole = best_count(everything)
        undivided = expected_traffic(whole, everything)
        best = DivisionProposal(EventDivision(version), (whole,), undivided, undivided)
        limit = (1 - WORTHWHILE_GAIN) * undivided
        for name in sorted(self._attributes):
            found = self._attributes[name].divided(brokers, parts)
            if found is None:
                continue
            traffic, groups, clusters = found
            if traffic < min(limit, best.traffic):
                division = self._attributes[name].division(groups, version, name)
                best = DivisionProposal(division, clusters, traffic, undivided)
        return best

    def _track(self, name: str, domain: Domain) -> None:
        if (
            name not in self._attributes
            and domain in (Domain.STRING, Domain.NUMBER)
            and len(self._attributes) < self._most_attributes
        ):
            # Whatever came before had no such attribute.
            made = _AttributeCells(name, domain, self._most_values)
            self._attributes[name] = made
            made.came_before(self._publications, self._matched, self._subscriptions)


class _AttributeCells:
    """The counts of one attribute. Its first value decides whether the cells are of strings or of numbers."""

    def __init__(self, name: str, domain: Domain, most_values: int) -> None:
        self._name = name
        self._domain = domain
        self._most_values = most_values
        self._cells: dict[str, int] = {}
        self._bounds: tuple[int | float, ...] = ()
        # What came before there were bounds.
        self._first: list[tuple[int | float, float]] = []
        self._waiting: list[Sequence[Clause]] = []
        self._published: Counter[int] = Counter()
        self._matched: defaultdict[int, float] = defaultdict(float)
        # How many subscriptions can match in these cells; bit i stands for cell i.
        self._spans: Counter[int] = Counter()

    def came_before(self, publications: int, matched: float, subscriptions: int) -> None:
        self._published[0] += publications
        self._matched[0] += matched
        self._spans[_ALL_CELLS] += subscriptions

    def published_value(self, value: Value | None, matched: float) -> None:
        if value is not None and domain_of(value) is self._domain and self._domain is Domain.NUMBER:
            assert isinstance(value, int | float)
            if not self._bounds:
                self._first.append((value, matched))
                if len(self._first) == _FIRST_NUMBERS:
                    self._set_bounds()
                return
        cell = self._cell_of(value)
        self._published[cell] += 1
        self._matched[cell] += matched

    def subscribed_clauses(self, clauses: Sequence[Clause]) -> None:
        if self._domain is Domain.NUMBER and not self._bounds:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(clauses)
            return
        span = self._span_of(clauses)
        if span not in self._spans and len(self._spans) >= _MOST_SPANS:
            span = _ALL_CELLS
        self._spans[span] += 1

    def divided(self, brokers: int, parts: int) -> tuple[float, list[int], tuple[int, ...]] | None:
        """The least traffic, the part of each cell, and the clusters of each part. None where there is one cell."""
        cells = len(self._bounds) + 2 if self._bounds else len(self._cells) + 1
        if (self._domain is Domain.NUMBER and not self._bounds) or cells < 2:
            return None
        alone = [self._measured(1 << cell, [cell], brokers) for cell in range(cells)]
        order = sorted(range(cells), key=lambda cell: (-_popularity(alone[cell]), cell))
        cuts = _even_cuts([alone[cell].publications + alone[cell].subscriptions for cell in order])
        costs: dict[tuple[int, int], tuple[float, int]] = {}
        for first, last in combinations((0, *cuts, cells), 2):
            group = order[first:last]
            measured = self._measured(sum(1 << cell for cell in group), group, brokers)
            clusters = best_count(measured)
            costs[first, last] = expected_traffic(clusters, measured), clusters
        best: tuple[float, tuple[int, ...]] | None = None
        for number in range(1, parts):
            for chosen in combinations(cuts, number):
                edges = (0, *chosen, cells)
                traffic = sum(costs[edge][0] for edge in pairwise(edges))
                if best is None or traffic < best[0]:
                    best = traffic, edges
        if best is None:
            return None
        groups = [0] * cells
        for part, (first, last) in enumerate(pairwise(best[1])):
            for cell in order[first:last]:
                groups[cell] = part
        return best[0], groups, tuple(costs[edge][1] for edge in pairwise(best[1]))

    def division(self, parts: Sequence[int], version: int, attribute: str) -> EventDivision:
        """The division in which cell i is in `parts[i]`. Strings of the part of cell 0 need not be listed."""
        rest, inner = parts[0], tuple(parts[1:])
        most = max(parts) + 1
        if self._bounds:
            return EventDivision(version, most, rest, attribute, (), self._bounds, inner)
        listed = sorted((value, inner[cell - 1]) for value, cell in self._cells.items())
        return EventDivision(
            version, most, rest, attribute, tuple(each for each in listed if each[1] != rest)
        )

    def _set_bounds(self) -> None:
        numbers = sorted(value for value, _ in self._first)
        step = len(numbers) / _NUMBER_CELLS
        self._bounds = tuple(sorted({numbers[int(step * place)] for place in range(1, _NUMBER_CELLS)}))
        first, self._first = self._first, []
        waiting, self._waiting = self._waiting, []
        for value, matched in first:
            self.published_value(value, matched)
        for clauses in waiting:
            self.subscribed_clauses(clauses)

    def _cell_of(self, value: Value | None) -> int:
        if value is None or domain_of(value) is not self._domain:
            return 0
        if isinstance(value, str):
            if value not in self._cells and len(self._cells) < self._most_values:
                self._cells[value] = len(self._cells) + 1
            return self._cells.get(value, 0)
        return self._each_cell_apart().part_of(lambda _: value)

    def _span_of(self, clauses: Iterable[Clause]) -> int:
        span = 0
        for clause in clauses:
            about = [
                each for each in clause if not isinstance(each, Computed) and each.attribute == self._name
            ]
            if not about:
                return _ALL_CELLS
            for constraint in about:
                if isinstance(constraint, OneOf) and not constraint.negated:
                    for value in constraint.values:
                        self._cell_of(value)
            for cell in self._each_cell_apart().parts_of([clause]):
                span |= 1 << cell
        return span

    def _each_cell_apart(self) -> EventDivision:
        """A division in which the parts are the cells. It never leaves this module, so it may have many."""
        cells = len(self._bounds) + 2 if self._bounds else len(self._cells) + 1
        return self.division(range(cells), 0, self._name)

    def _measured(self, mask: int, cells: Iterable[int], brokers: int) -> MeasuredTraffic:
        published = sum(self._published[cell] for cell in cells)
        matched = sum(self._matched[cell] for cell in cells)
        subscriptions = sum(count for span, count in self._spans.items() if span & mask)
        ratio = min(1.0, matched / published) if published else 0.0
        return MeasuredTraffic(published, subscriptions, ratio, brokers)


def _popularity(measured: MeasuredTraffic) -> float:
    """Grows with the number of clusters that suits these cells."""
    return measured.subscriptions / (measured.publications * (1 - measured.matching_ratio) + 1e-9)


def _even_cuts(weights: Sequence[float]) -> list[int]:
    """Places between cells that divide them into pieces of about the same weight."""
    step = sum(weights) / (_MOST_CUTS + 1)
    if len(weights) <= _MOST_CUTS + 1 or step <= 0:
        return list(range(1, len(weights)))[:_MOST_CUTS]
    cuts: list[int] = []
    so_far = 0.0
    for place, weight in enumerate(weights[:-1], start=1):
        so_far += weight
        if so_far >= step * (len(cuts) + 1) and len(cuts) < _MOST_CUTS:
            cuts.append(place)
    return cuts
