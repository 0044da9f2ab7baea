"""The records of a registry: registrations, blocks of them, and the requests that make them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.config import UNLIMITED_FILTERS
from culver.errors import InvalidFilter, StorageCorrupt
from culver.model import COLUMNAR
from culver.model.columns import Columns, read_columns, values_at, write_columns
from culver.model.language import Predicate, Prepared, prepare

_OPTIONS = ("expires_at_us", "mailbox_count", "mailbox_bytes", "mailbox_age_seconds")


@dataclass(frozen=True, slots=True)
class Registration:
    """A filter that a subscription has or had, in effect for log positions from `since` on, and before `until` unless
    that is None. `removed` tells the end of the subscription from a replacement. `version` is the registry version
    that added it, and `scheme` names the filter that matches it. What a durable one gets is published on `channel`,
    where that is not None."""

    number: int
    id: str
    filter: str
    durable: bool
    since: int
    until: int | None
    removed: bool
    version: int
    created_at_us: int
    expires_at_us: int | None
    mailbox_count: int | None
    mailbox_bytes: int | None
    mailbox_age_seconds: int | None
    scheme: str = COLUMNAR
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """A subscriber's request. The registry chooses an id where `id` is None. Times are microseconds UTC.
    A mailbox limit of None is the site's default; a live subscription (`durable=False`) has no mailbox. `scheme` is
    the name of the filter that matches it; the caller checks that there is one, and that there can be a `channel` of
    that name."""

    predicate: Predicate
    id: str | None = None
    durable: bool = True
    expires_at_us: int | None = None
    mailbox_count: int | None = None
    mailbox_bytes: int | None = None
    mailbox_age_seconds: int | None = None
    scheme: str = COLUMNAR
    channel: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BlockSpec:
    """A subscriber's request: `prepared` with each row of `columns`, as durable subscriptions. `first` is the place
    that the first row must get in its set; None takes the next one. The other fields are as in SubscriptionSpec."""

    name: str
    prepared: Prepared
    columns: Columns
    first: int | None = None
    expires_at_us: int | None = None
    mailbox_count: int | None = None
    mailbox_bytes: int | None = None
    mailbox_age_seconds: int | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    def block(self, number: int, first: int, since: int, version: int, now_us: int) -> "Block":
        return Block(
            number=number,
            count=len(self),
            name=self.name,
            first=first,
            filter=self.prepared.text,
            since=since,
            until=None,
            version=version,
            created_at_us=now_us,
            values=write_columns(self.columns),
            holes=np.empty(0, np.int64),
            **options_of(self),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Durable subscriptions that differ in number, id and values only.

    `number` and `first` are the number and the place in the set of the first row; those of the others follow.
    `filter` has parameters, and `values` holds the rows as `culver.model.columns.write_columns` makes them. `holes`
    are the numbers of the members that have left, ascending. `until` is set once the remaining members have ended
    together; then they are removed."""

    number: int
    count: int
    name: str
    first: int
    filter: str
    since: int
    until: int | None
    version: int
    created_at_us: int
    expires_at_us: int | None
    mailbox_count: int | None
    mailbox_bytes: int | None
    mailbox_age_seconds: int | None
    values: bytes
    holes: NDArray[np.int64]

    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the members, ascending."""
        numbers = np.arange(self.number, self.number + self.count, dtype=np.int64)
        return numbers if not len(self.holes) else np.delete(numbers, self.holes - self.number)

    def prepared(self) -> Prepared:
        """The filter. Raises StorageCorrupt where it does not parse."""
        try:
            return _prepared(self.filter)
        except InvalidFilter as exc:
            raise StorageCorrupt(f"the filter of block {self.number} cannot be read: {exc}") from exc

    def columns(self) -> Columns:
        """The rows. Raises StorageCorrupt where they cannot be read."""
        try:
            return read_columns(self.values)
        except (ValueError, OSError, StopIteration) as exc:
            raise StorageCorrupt(f"the rows of block {self.number} cannot be read: {exc}") from exc

    def registrations(self, numbers: Iterable[int]) -> Iterator[Registration]:
        """The members with these numbers, as registrations of their own."""
        prepared, columns = self.prepared(), self.columns()
        for number in numbers:
            at = number - self.number
            yield Registration(
                number=number,
                id=f"{self.name}.{self.first + at}",
                filter=prepared.written(values_at(columns, at)),
                durable=True,
                since=self.since,
                until=self.until,
                removed=self.until is not None,
                version=self.version,
                created_at_us=self.created_at_us,
                **options_of(self),
            )


def options_of(record: "Block | BlockSpec | SubscriptionSpec") -> dict[str, Any]:
    """The expiry and the limits of the mailbox, which all records have."""
    return {name: getattr(record, name) for name in _OPTIONS}


@lru_cache(maxsize=64)
def _prepared(text: str) -> Prepared:
    return prepare(text, UNLIMITED_FILTERS)
