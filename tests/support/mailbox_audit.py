"""What mailboxes got of numbered events, against what their filters ask for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from support.mailbox_reader import Mailbox
from support.numbered import Journal, QuoteFilter


@dataclass(frozen=True, slots=True)
class Audit:
    """`lost`, `duplicated` and `foreign` (deliveries that no filter explains) must be 0."""

    deliveries: int
    lost: int
    duplicated: int
    foreign: int

    @classmethod
    def of(
        cls,
        mailboxes: Sequence[Mailbox],
        filters: Iterable[QuoteFilter],
        journal: Journal,
        say: Callable[[str], None],
    ) -> Self:
        """`say` gets a line for each mailbox that lacks something."""
        assert len(np.unique(journal.offsets)) == len(journal.offsets), "two events have one position"
        deliveries = lost = duplicated = foreign = 0
        for mailbox, wanted in zip(mailboxes, filters, strict=True):
            required, possible = wanted.matching(journal.acknowledged), wanted.matching(journal.unknown)
            numbers = np.array(list(mailbox.numbers.values()), np.int64)
            got = np.unique(numbers)
            missing = np.setdiff1d(required, got)
            deliveries += len(numbers)
            duplicated += len(numbers) - len(got) + mailbox.repeated
            lost += len(missing)
            foreign += len(np.setdiff1d(got, np.concatenate([required, possible])))
            if len(missing):
                at = journal.offsets[np.searchsorted(journal.acknowledged, missing[:5])].tolist()
                say(f"{wanted.text!r} lost {len(missing)}, the first at offsets {at}; {mailbox.gaps}")
        return cls(deliveries, lost, duplicated, foreign)
