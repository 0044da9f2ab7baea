"""What a registry is: the subscriptions, durable and versioned.

A subscription keeps its id (the user's name for it); each filter it has ever had is a registration with a
number of its own that is never used again. A registration is in effect for events at log positions
`since <= position < until`, so a replacement changes over at one exact position:

    id "alerts"   number 7   [since 100 ............ until 250)
                  number 9                          [since 250 ............ )

Many subscriptions of one form are a set: a prepared filter and rows of values. Each request that adds rows makes a
block, whose members have numbers in a row and ids made of the set's name and their place in it:

    set "quotes"   block 10   numbers 10 11 12    ids quotes.0 quotes.1 quotes.2
                   block 20   numbers 20 21       ids quotes.3 quotes.4

A member is a subscription like any other. One that is replaced or removed leaves its block, and what became of it is
a registration of its own; the members that have stayed may end together. Members are always of the columnar scheme.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from culver.model import COLUMNAR
from culver.model.language import Predicate
from culver.registry.block import Block, BlockSpec
from culver.registry.registration import Registration


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """What a subscriber asks for. `id` None has the registry choose one. Times are microseconds UTC.
    A mailbox limit of None is the site's default; a live subscription (`durable=False`) has no mailbox. `scheme` is
    the name of the filter that matches it, which is for the caller to check."""

    predicate: Predicate
    id: str | None = None
    durable: bool = True
    expires_at_us: int | None = None
    mailbox_count: int | None = None
    mailbox_bytes: int | None = None
    mailbox_age_seconds: int | None = None
    scheme: str = COLUMNAR


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened after a version, up to and including `version`. `ended` holds (number, until);
    `ended_blocks` are the blocks whose members have ended together."""

    version: int
    added: tuple[Registration | Block, ...]
    ended: tuple[tuple[int, int], ...]
    ended_blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class SetSummary:
    """What is in effect under one name: how many members, and the number that the next row gets."""

    name: str
    count: int
    next: int
    filters: tuple[str, ...]  # of its blocks, distinct, a few of them


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

    def add_block(self, spec: BlockSpec, position: Position, now_us: int) -> Block:
        """Add rows to a set, which is made where there is none; they are numbered on from the highest number in
        effect. Raises Conflict (`field="first"`) where that is not the one asked for, InvalidRequest for
        a name that cannot be one, TooManySubscriptions; then nothing of the block is added."""

    def remove_set(self, name: str, position: Position, now_us: int) -> list[Registration | Block]:
        """End all subscriptions with an id of the form NAME.NUMBER. Returns what was ended."""

    def remove_expired(self, position: Position, now_us: int) -> list[Registration | Block]:
        """End the subscriptions whose `expires_at_us` has come."""

    def get(self, id: str) -> Registration:  # noqa: A002
        """The registration in effect. Raises NotFound."""

    def page(self, after: str | None, limit: int) -> list[Registration]:
        """Registrations in effect, ordered by id, after that id."""

    def count(self) -> int:
        """How many subscriptions are in effect."""

    def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        """The sets that have members in blocks, by name, after that name."""

    def registrations(self) -> Iterator[Registration | Block]:
        """All registrations not yet forgotten, ended ones too, by number; a block stands where its first is."""

    def changes(self, after_version: int) -> Changes: ...

    def forget(self, numbers: Sequence[int], blocks: Sequence[int] = ()) -> None:
        """Drop ended registrations for good, and blocks that ended (by their first number). Not a change: the
        version stays."""

    def close(self) -> None: ...
