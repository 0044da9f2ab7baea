"""The table of all members: what is known of each, and which of two statements about one wins.

A statement about a member beats another one by its incarnation, then by its status. Facts win by their version. Each
of these is a maximum, so members that hear the same statements agree, in whatever order and however often they come.

    record      living members, and those that died or left a while ago
    tombstone   a record without facts: the member is forgotten, but old news cannot revive it

A check sum stands for the living members of each bucket. Suspicions do not count in it, since they pass.
"""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

import msgspec

from culver.overlay.gossip.gossip_messages import (
    BUCKETS,
    SUM_BYTES,
    FactsNews,
    MemberFacts,
    MemberStatus,
    News,
    StatusNews,
)

_ALIVE, _DEAD = MemberStatus.ALIVE, MemberStatus.DEAD


class MemberRecord(msgspec.Struct, gc=False):
    """What the table knows of a member. Others read it, and only the table changes it.

    `knows_us` is the one exception: its owner notes there whether this incarnation has shown that it knows the owner.
    """

    key: str
    incarnation: int
    status: MemberStatus
    facts: MemberFacts | None
    changed_at: float
    is_tombstone: bool = False
    knows_us: bool = False

    @property
    def is_living(self) -> bool:
        return self.status < _DEAD


class TableChange(msgspec.Struct, frozen=True, gc=False):
    """What a statement has changed of a member. `before` is None for one that was not known."""

    before: MemberStatus | None
    status: MemberStatus
    has_new_incarnation: bool
    has_new_facts: bool


class MemberTable:
    """Keeps a record of every member, the owner included."""

    def __init__(self) -> None:
        self._records: dict[str, MemberRecord] = {}
        self._sums = [0] * BUCKETS
        self._keys_of_bucket: list[dict[str, None]] = [{} for _ in range(BUCKETS)]
        self.living = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> MemberRecord | None:
        return self._records.get(key)

    def records(self) -> Iterator[MemberRecord]:
        """Yields all members that are not forgotten."""
        return (record for record in self._records.values() if not record.is_tombstone)

    def in_bucket(self, bucket: int) -> Iterator[MemberRecord]:
        """Yields the living members of a bucket."""
        return (self._records[key] for key in self._keys_of_bucket[bucket])

    def sums(self, count: int) -> list[int]:
        """Check sums, with the buckets folded into `count` of them: a power of 2, and `BUCKETS` at most."""
        folded = self._sums[:count]
        for bucket in range(count, BUCKETS):
            folded[bucket % count] ^= self._sums[bucket]
        return folded

    def is_news(self, news: News) -> bool:
        """Tells whether `merge` would change anything."""
        record = self._records.get(news.key)
        if record is None:
            return True
        status = news.status if isinstance(news, StatusNews) else _ALIVE
        if (news.incarnation, status) > (record.incarnation, record.status):
            return True
        return isinstance(news, FactsNews) and not record.is_tombstone and _wins(news.facts, record.facts)

    def merge(self, news: News, now: float) -> TableChange | None:
        """Takes a statement over if it beats what is known, and returns what has changed."""
        key, incarnation = news.key, news.incarnation
        status, facts = (news.status, None) if isinstance(news, StatusNews) else (_ALIVE, news.facts)
        record = self._records.get(key)
        if record is None:
            self._records[key] = record = MemberRecord(key, incarnation, status, facts, now)
            if record.is_living:
                self._enter(record)
            return TableChange(None, status, True, facts is not None)
        before = record.status
        newer = incarnation > record.incarnation
        wins = newer or (incarnation == record.incarnation and status > before)
        new_facts = facts is not None and (wins or not record.is_tombstone) and _wins(facts, record.facts)
        if not wins and not new_facts:
            return None
        if before < _DEAD:
            self._remove(record)
        if wins:
            record.incarnation, record.status, record.changed_at = incarnation, status, now
            record.is_tombstone = record.is_tombstone and not record.is_living
            record.knows_us = record.knows_us and not newer and record.is_living
        if new_facts:
            record.facts = facts
        if record.status < _DEAD:
            self._enter(record)
        return TableChange(before, record.status, newer, new_facts)

    def forget(self, now: float, forget_seconds: float, tombstone_seconds: float) -> list[str]:
        """Turns those that died or left long ago into tombstones, drops old tombstones, and returns the members that
        are forgotten now."""
        forgotten: list[str] = []
        for key, record in list(self._records.items()):
            age = now - record.changed_at
            if record.is_living or age < forget_seconds:
                continue
            if not record.is_tombstone:
                record.is_tombstone, record.facts = True, None
                forgotten.append(key)
            if age >= forget_seconds + tombstone_seconds:
                del self._records[key]
        return forgotten

    def _enter(self, record: MemberRecord) -> None:
        bucket = _bucket_of(record.key)
        self._sums[bucket] ^= _sum_of(record.key, record.incarnation, _version(record.facts))
        self._keys_of_bucket[bucket][record.key] = None
        self.living += 1

    def _remove(self, record: MemberRecord) -> None:
        bucket = _bucket_of(record.key)
        self._sums[bucket] ^= _sum_of(record.key, record.incarnation, _version(record.facts))
        del self._keys_of_bucket[bucket][record.key]
        self.living -= 1


def news_of(record: MemberRecord) -> News:
    """States what is known of a member. A suspicion is left out: it is the business of those who have it."""
    if not record.is_living:
        return StatusNews(record.key, record.incarnation, record.status)
    if record.facts is None:
        return StatusNews(record.key, record.incarnation, _ALIVE)
    return FactsNews(record.key, record.incarnation, record.facts)


def _version(facts: MemberFacts | None) -> int:
    return -1 if facts is None else facts.version


def _wins(facts: MemberFacts, known: MemberFacts | None) -> bool:
    """Compares contents too, where one version has two: all members must choose the same."""
    if known is None or facts.version != known.version:
        return facts.version > _version(known)
    return facts is not known and _content(facts) > _content(known)


def _content(facts: MemberFacts) -> bytes:
    return msgspec.msgpack.encode(facts, order="sorted")


# Simulated members share these; a real one profits little.
@lru_cache(maxsize=1 << 14)
def _bucket_of(key: str) -> int:
    return blake2b(key.encode(), digest_size=1).digest()[0] % BUCKETS


@lru_cache(maxsize=1 << 14)
def _sum_of(key: str, incarnation: int, version: int) -> int:
    # A cyclic redundancy check would not do: equal changes of two members cancel each other in it.
    text = f"{key}/{incarnation}/{version}"
    return int.from_bytes(blake2b(text.encode(), digest_size=SUM_BYTES).digest(), "big")
