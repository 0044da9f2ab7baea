"""Matches the events that a site carries with the predicates of the members of its cluster: exactly, clause by
clause, unless a member has so many subscriptions that it tells of them encoded."""

from collections.abc import Sequence
from itertools import count

from culver.config import EventSettings
from culver.errors import InvalidInput, LimitExceeded
from culver.matching import ColumnarFilter, EncodedFilter, ExactPredicate, Filter, SitePredicate, predicate_of
from culver.model import ENCODED, Event
from culver.model.columns import encode
from culver.model.formats import parse_event

# The limits are those of the origin, which has published the event, and of the members, which take it.
_ANY_EVENT = EventSettings(
    max_bytes=1 << 30, max_attributes=1 << 20, max_depth=1 << 10, max_name_length=1 << 20
)


class MemberMatcher:
    """Implements the core's ClusterMatcher. An event that cannot be read here is for everybody: each member decides
    for itself."""

    def __init__(self) -> None:
        self._exact: Filter = ColumnarFilter()
        self._encoded: Filter = EncodedFilter()
        self._numbers: dict[str, int] = {}
        self._sites: dict[int, str] = {}
        self._next = count()

    def change(self, site: str, predicate: SitePredicate | None) -> None:
        number = self._numbers.pop(site, None)
        if number is not None:
            self._exact.remove([number])
            self._encoded.remove([number])
            del self._sites[number]
        if predicate is not None:
            self._numbers[site] = number = next(self._next)
            self._sites[number] = site
            if isinstance(predicate, ExactPredicate):
                self._exact.add([(number, predicate.predicate)])
            else:
                self._encoded.add([(number, predicate_of(predicate.text, ENCODED))])

    def match(self, payloads: Sequence[bytes]) -> list[frozenset[str]]:
        everybody = frozenset(self._numbers)
        found = [everybody] * len(payloads)
        rows: list[int] = []
        events: list[Event] = []
        for row, payload in enumerate(payloads):
            try:
                events.append(parse_event(payload, _ANY_EVENT))
            except (InvalidInput, LimitExceeded):
                continue
            rows.append(row)
        first = 0
        for batch in encode(events, 0):
            sites: list[set[str]] = [set() for _ in range(batch.num_rows)]
            for part in (self._exact, self._encoded):
                matches = part.match(batch)
                bounds, numbers = matches.offsets.tolist(), matches.numbers.tolist()
                for place, own in enumerate(sites):
                    own.update(self._sites[number] for number in numbers[bounds[place] : bounds[place + 1]])
            for place, own in enumerate(sites):
                found[rows[first + place]] = frozenset(own)
            first += batch.num_rows
        return found
