"""Which gateway has which subscription: a function of its id and of the number of gateways alone.

    "alerts"                          any id: its hash
    "quotes.6" "quotes.7" "quotes.8"  members of a set: the hash of its name, and their places in turn
    "site~lyon~0123456789abcdef"      the mailbox of another site: gateway 0, where the links are

A set deals its members out one by one. So arithmetic tells which numbers of a block belong to a gateway, without a
hash for each of millions of ids.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from culver.model import SITE_PREFIX
from culver.registry import Block, new_ids, split_member


def share_of(subscription: str, gateways: int) -> int:
    """The gateway's number, from 0 to `gateways` - 1, the same on every machine and in every run."""
    if subscription.startswith(SITE_PREFIX):
        return 0
    member = split_member(subscription)
    if member is None:
        return _hash(subscription) % gateways
    name, place = member
    return (_hash(name) + place) % gateways


@dataclass(frozen=True, slots=True)
class Share:
    """The subscriptions of gateway `number` out of `gateways`."""

    number: int = 0
    gateways: int = 1

    def owns(self, subscription: str) -> bool:
        return self.gateways == 1 or share_of(subscription, self.gateways) == self.number

    def part_of(self, block: Block) -> Block:
        """The block with only the members of this share."""
        if self.gateways == 1:
            return block
        ours = (self.number - _hash(block.name) - block.first) % self.gateways
        places = np.arange(block.count, dtype=np.int64)
        others = places[places % self.gateways != ours] + block.number
        return replace(block, holes=np.union1d(block.holes, others) if len(block.holes) else others)

    def new_live_id(self) -> str:
        """An id for a live subscription that belongs to this share, where its subscriber is connected."""
        while True:
            (subscription,) = new_ids(1, durable=False)
            if self.owns(subscription):
                return subscription


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
