"""Blocks in the registry's file; every method is part of the caller's transaction.

    blocks   one row per block, by the number of its first member
    holes    the numbers of members that have left a block which is still there

When the last member of a block leaves, the block is deleted with its holes.
"""

import sqlite3
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import fields
from heapq import merge
from typing import Any

import numpy as np

from culver.registry.registration import Block, Registration
from culver.registry.registry import SetSummary
from culver.registry.subscription_ids import split_member

_FIELDS = [field.name for field in fields(Block) if field.name not in ("values", "holes")]
_COLUMNS = ", ".join(_FIELDS).replace("name", "prefix")
_INSERT = f"INSERT INTO blocks ({_COLUMNS}, members, content) VALUES ({', '.join('?' * 15)})"
# The number of blocks whose rows stay in memory: those read last.
_VALUES_KEPT = 8
_FILTERS_SHOWN = 4

MemberKey = tuple[str, int, int]
"""A member's id, its number, and the number of its block."""


class BlockTable:
    """Keeps in memory the rows of a few blocks only, which never change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._values: OrderedDict[int, bytes] = OrderedDict()

    def insert(self, block: Block) -> None:
        values = [getattr(block, name) for name in _FIELDS]
        values[_FIELDS.index("name")] += "."
        self._execute(_INSERT, (*values, block.count, block.values))

    def select(self, condition: str, values: tuple[Any, ...]) -> list[Block]:
        rows = self._execute(f"SELECT {_COLUMNS} FROM blocks WHERE {condition}", values).fetchall()
        return [self._block(row) for row in rows]

    def find(self, subscription: str) -> Registration | None:
        """The member in effect with this id."""
        parts = split_member(subscription)
        if parts is None:
            return None
        name, place = parts
        condition = "prefix = ? AND first <= ? AND until IS NULL ORDER BY first DESC LIMIT 1"
        for block in self.select(condition, (f"{name}.", place)):
            number = block.number + place - block.first
            if number < block.number + block.count and number not in block.holes:
                return next(block.registrations([number]))
        return None

    def leave(self, number: int) -> None:
        """Take a member out of its block, because it becomes a registration of its own."""
        (block,) = self._execute("SELECT max(number) FROM blocks WHERE number <= ?", (number,)).fetchone()
        self._execute("INSERT INTO holes (number) VALUES (?)", (number,))
        self._execute("UPDATE blocks SET members = members - 1 WHERE number = ?", (block,))
        self._delete("number = ? AND members = 0", block)

    def end(self, blocks: Iterable[Block], until: int, version: int) -> None:
        for block in blocks:
            self._execute(
                "UPDATE blocks SET until = ?, ended_version = ? WHERE number = ?",
                (until, version, block.number),
            )

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._delete("number = ? AND until IS NOT NULL", number)

    def count(self) -> int:
        (count,) = self._execute("SELECT sum(members) FROM blocks WHERE until IS NULL").fetchone()
        return int(count or 0)

    def next_place(self, name: str) -> int:
        (last,) = self._execute(
            "SELECT max(first + count) FROM blocks WHERE prefix = ? AND until IS NULL", (f"{name}.",)
        ).fetchone()
        return max([last or 0, *(1 + place for place, _ in self.single_members(name))])

    def single_members(self, name: str) -> list[tuple[int, int]]:
        """The places and numbers of a set's members in effect that are in no block."""
        rows = self._execute(
            "SELECT id, number FROM registrations WHERE until IS NULL AND id > ? AND id < ?",
            (f"{name}.", f"{name}/"),
        )
        parts = ((split_member(id_), number) for id_, number in rows)
        return [(member[1], number) for member, number in parts if member is not None and member[0] == name]

    def members_after(self, after: str, limit: int) -> Iterator[Iterator[MemberKey]]:
        """For each set that a page of `limit` may need, its members with an id behind `after`, in order."""
        # The ids of a set are together, except that sets such as `a.1` and `a.2` lie between those of a set `a`.
        holding = [after[: place + 1] for place, character in enumerate(after) if character == "."]
        following = self._execute(
            "SELECT DISTINCT prefix FROM blocks WHERE until IS NULL AND prefix > ? ORDER BY prefix LIMIT ?",
            (after, limit),
        ).fetchall()
        for prefix in holding:
            yield self._members(prefix, after[len(prefix) :])
        for (prefix,) in following:
            yield self._members(prefix, "")

    def registrations(self, members: Iterable[MemberKey]) -> list[Registration]:
        numbers: dict[int, list[int]] = {}
        for _, number, block_number in members:
            numbers.setdefault(block_number, []).append(number)
        result: list[Registration] = []
        for block_number, wanted in numbers.items():
            (block,) = self.select("number = ?", (block_number,))
            result += block.registrations(wanted)
        return result

    def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        rows = self._execute(
            "SELECT prefix, sum(members) FROM blocks WHERE until IS NULL AND prefix > ? GROUP BY prefix "
            "ORDER BY prefix LIMIT ?",
            ("" if after is None else f"{after}.", limit),
        ).fetchall()
        return [self._summary(prefix[:-1], members) for prefix, members in rows]

    def _summary(self, name: str, members: int) -> SetSummary:
        filters = self._execute(
            "SELECT DISTINCT filter FROM blocks WHERE prefix = ? AND until IS NULL LIMIT ?",
            (f"{name}.", _FILTERS_SHOWN),
        )
        count = members + len(self.single_members(name))
        return SetSummary(name, count, self.next_place(name), tuple(text for (text,) in filters))

    def _block(self, row: tuple[Any, ...]) -> Block:
        number, count, prefix = row[:3]
        values = self._values.pop(number, None)
        if values is None:
            (values,) = self._execute("SELECT content FROM blocks WHERE number = ?", (number,)).fetchone()
        self._values[number] = values
        if len(self._values) > _VALUES_KEPT:
            self._values.popitem(last=False)
        left = self._execute(
            "SELECT number FROM holes WHERE number >= ? AND number < ? ORDER BY number",
            (number, number + count),
        ).fetchall()
        named = dict(zip(_FIELDS, row, strict=True)) | {"name": prefix[:-1]}
        return Block(**named, values=values, holes=np.array(left, np.int64).reshape(-1))

    def _delete(self, condition: str, number: int) -> None:
        deleted = self._execute(f"DELETE FROM blocks WHERE {condition} RETURNING count", (number,)).fetchone()
        if deleted is not None:
            self._execute("DELETE FROM holes WHERE number >= ? AND number < ?", (number, number + deleted[0]))
            self._values.pop(number, None)

    def _members(self, prefix: str, after: str) -> Iterator[MemberKey]:
        """Yield the members of a set with an id behind `prefix + after`, in the order of ids.

        Ids are ordered as texts, so that `a.10` comes before `a.9`. Places of equally many digits have the same order
        as texts and as numbers: merging one run of places for each count of digits orders all of them."""
        blocks = self._execute(
            "SELECT first, count, number FROM blocks WHERE prefix = ? AND until IS NULL ORDER BY first",
            (prefix,),
        ).fetchall()
        end = blocks[-1][0] + blocks[-1][1] if blocks else 0
        return merge(*(self._run(prefix, after, blocks, digits) for digits in range(1, len(str(end)) + 1)))

    def _run(
        self, prefix: str, after: str, blocks: list[tuple[int, int, int]], digits: int
    ) -> Iterator[MemberKey]:
        """Yield the members whose place has so many digits, in the order of their places."""
        places = range(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
        start = places.start + bisect_right(places, after, key=str)
        for first, count, block in blocks[bisect_right(blocks, start, key=lambda each: each[0] + each[1]) :]:
            if first >= places.stop:
                return
            for place in range(max(first, start), min(first + count, places.stop)):
                number = block + place - first
                if not self._execute("SELECT 1 FROM holes WHERE number = ?", (number,)).fetchone():
                    yield f"{prefix}{place}", number, block
