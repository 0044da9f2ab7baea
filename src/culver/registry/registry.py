"""What a registry is: the subscriptions, durable and versioned.

A subscription keeps its id (the user's name for it); each filter it has ever had is a registration with a
number of its own that is never used again. A registration is in effect for events at log positions
`since <= position < until`, so a replacement changes over at one exact position:

    id "alerts"   number 7   [since 100 ............ until 250)
                  number 9                          [since 250 ............ )
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from culver.model.predicate import Predicate


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """What a subscriber asks for. `id` None has the registry choose one. Times are microseconds UTC.
    A mailbox limit of None is the site's default; a live subscription (`durable=False`) has no mailbox."""

    predicate: Predicate
    id: str | None = None
    durable: bool = True
    expires_at_us: int | None = None
    mailbox_count: int | None = None
    mailbox_bytes: int | None = None
    mailbox_age_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    number: int
    id: str
    filter: str
    durable: bool
    since: int
    until: int | None  # None: in effect; otherwise replaced or removed from that position on
    removed: bool  # True: the subscription is gone, not merely replaced
    version: int  # the registry version that added it
    created_at_us: int
    expires_at_us: int | None
    mailbox_count: int | None
    mailbox_bytes: int | None
    mailbox_age_seconds: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened after a version, up to and including `version`. `ended` holds (number, until)."""

    version: int
    added: tuple[Registration, ...]
    ended: tuple[tuple[int, int], ...]


Position = Callable[[int], int]
"""Given the version that a change is about to get, the log position from which it takes effect. Called
inside the transaction, so that version order is position order."""


class Registry(Protocol):
    """Every change is one transaction, durable on return, and raises the version by one. Thread-safe."""

    @property
    def version(self) -> int: ...

    def add(self, specs: Sequence[SubscriptionSpec], position: Position, now_us: int) -> list[Registration]:
        """Raises Conflict (`field="id"`) when an id is taken, TooManySubscriptions at the limit; then
        nothing of the batch is added."""

    def replace(self, spec: SubscriptionSpec, position: Position, now_us: int) -> Registration:
        """Give subscription `spec.id` a new filter and options; `durable` cannot change (Conflict).
        Raises NotFound."""

    def remove(self, ids: Sequence[str], position: Position, now_us: int) -> list[Registration]:
        """End subscriptions; ids that do not exist are ignored. Returns what was ended."""

    def remove_expired(self, position: Position, now_us: int) -> list[Registration]:
        """End the subscriptions whose `expires_at_us` has come."""

    def get(self, id: str) -> Registration:  # noqa: A002
        """The registration in effect. Raises NotFound."""

    def page(self, after: str | None, limit: int) -> list[Registration]:
        """Registrations in effect, ordered by id, after that id."""

    def count(self) -> int:
        """How many subscriptions are in effect."""

    def registrations(self) -> Iterator[Registration]:
        """All registrations not yet forgotten, ended ones too, by number."""

    def changes(self, after_version: int) -> Changes: ...

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop ended registrations for good. Not a change: the version stays."""

    def close(self) -> None: ...
