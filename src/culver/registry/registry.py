"""The protocol of a registry, which stores subscriptions, durable and versioned.

A subscription keeps its id (the user's name for it); each filter it has ever had is a registration with a
number of its own that is never used again. A registration is in effect for events at log positions
`since <= position < until`, so a replacement changes over at one exact position:

    id "alerts"   number 7   [since 100 ............ until 250)
                  number 9                          [since 250 ............ )

A set holds many subscriptions of one form: a prepared filter and rows of values. Each request that adds rows makes a
block, whose members have consecutive numbers, and ids made of the set's name and their place in it:

    set "quotes"   block 10   numbers 10 11 12    ids quotes.0 quotes.1 quotes.2
                   block 20   numbers 20 21       ids quotes.3 quotes.4

A member is a subscription like any other. A member that is replaced or removed leaves its block and becomes a
registration of its own; the members that stay may end together. Members always have the columnar scheme.

Registrations of the scheme `encoded` are the mailboxes of other sites. They have ids of their own, and are neither
counted nor listed with the users' subscriptions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from culver.registry.registration import Block, BlockSpec, Registration, SubscriptionSpec


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes after some version, up to and including `version`. `ended` holds (number, until);
    `ended_blocks` are the blocks whose members have ended together."""

    version: int
    added: tuple[Registration | Block, ...]
    ended: tuple[tuple[int, int], ...]
    ended_blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class SetSummary:
    """A set: the number of its members in effect, the place that the next row gets, and a few of its filters."""

    name: str
    count: int
    next: int
    filters: tuple[str, ...]


AssignPosition = Callable[[int], int]
"""Takes the version that a change is about to get and returns the log position from which it takes effect. The
registry calls it inside the transaction, so that positions are in the order of versions, and changes nothing if it
raises. A change that would change nothing gets no version and no position."""


class Registry(Protocol):
    """Every change is a transaction, durable on return, and a new version. Thread-safe; its owner closes it."""

    @property
    def version(self) -> int:
        """The number of changes that the registry has seen."""

    @property
    def identity(self) -> bytes:
        """16 random bytes that no other registry has; they stay as long as the registry does."""

    @property
    def location(self) -> str:
        """Where it is stored, for messages."""

    def add(
        self, specs: Sequence[SubscriptionSpec], position: AssignPosition, now_us: int
    ) -> list[Registration]:
        """Add subscriptions. Raises Conflict (`field="id"`) where an id is taken, InvalidRequest where a subscription
        cannot have it, TooManySubscriptions at the limit; then none of them is added."""

    def replace(self, spec: SubscriptionSpec, position: AssignPosition, now_us: int) -> Registration:
        """Give subscription `spec.id` a new filter and options, but for `durable` (Conflict). Raises NotFound."""

    def remove(self, ids: Sequence[str], position: AssignPosition, now_us: int) -> list[Registration]:
        """End subscriptions; ids that do not exist are ignored. Returns what was ended."""

    def add_block(self, spec: BlockSpec, position: AssignPosition, now_us: int) -> Block:
        """Add rows to a set, which is made where there is none. Places go on behind the highest in effect. Raises
        Conflict (`field="first"`) where that is not the place asked for, InvalidRequest for a name that a set cannot
        have or a block without rows, TooManySubscriptions; then nothing of the block is added."""

    def remove_set(self, name: str, position: AssignPosition, now_us: int) -> list[Registration | Block]:
        """End all subscriptions with an id of the form NAME.NUMBER. Returns what was ended."""

    def remove_expired(self, position: AssignPosition, now_us: int) -> list[Registration | Block]:
        """End the subscriptions whose `expires_at_us` has come."""

    def remove_live(self, position: AssignPosition, now_us: int) -> list[Registration]:
        """End all live subscriptions: those that the site's last run has left behind."""

    def get(self, id: str) -> Registration:  # noqa: A002
        """The registration in effect. Raises NotFound."""

    def page(self, after: str | None, limit: int) -> list[Registration]:
        """Up to `limit` registrations in effect with an id behind `after`, ordered by id as text, without those of
        other sites."""

    def count(self) -> int:
        """The number of subscriptions in effect, without those of other sites."""

    def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        """Up to `limit` sets that have members in blocks, with a name behind `after`, ordered by name."""

    def registrations(self) -> Iterator[Registration | Block]:
        """All registrations not yet forgotten, ended ones too, by number; a block has the number of its first member.

        They need not be of one moment: registrations added meanwhile are included, and ends may not be. Take
        `version` before, and `changes` since that version afterwards."""

    def changes(self, after_version: int) -> Changes:
        """The registrations added and ended after that version. One that was both is in both lists; one that was
        forgotten is in neither, so forget only registrations whose end every follower has heard of."""

    def forget(self, numbers: Sequence[int], blocks: Sequence[int] = ()) -> None:
        """Drop ended registrations, and ended blocks by their first number, for good; the version stays."""

    def close(self) -> None:
        """Let everything go; other calls then raise Unavailable. Harmless to call again."""
