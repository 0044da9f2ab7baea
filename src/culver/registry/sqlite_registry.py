"""The registry in an SQLite file, in WAL mode; `registry_database` describes its tables."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from culver.config import RegistrySettings
from culver.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    StorageCorrupt,
    StorageError,
    TooManySubscriptions,
    Unavailable,
)
from culver.model import ENCODED, SITE_PREFIX
from culver.registry.block_store import BlockTable
from culver.registry.registration import Block, BlockSpec, Registration, SubscriptionSpec, options_of
from culver.registry.registry import AssignPosition, Changes, SetSummary
from culver.registry.registry_database import FORMAT, open_database, translate
from culver.registry.subscription_ids import PLACES, check_id, check_set_name, new_ids
from culver.sealed import SealedDatabase, SealFile

_FIELDS = [field.name for field in fields(Registration)]
_COLUMNS = ", ".join(_FIELDS)
_INSERT = f"INSERT INTO registrations ({_COLUMNS}) VALUES ({', '.join('?' * 15)})"
_INSERT_ENDED = f"INSERT INTO registrations ({_COLUMNS}, ended_version) VALUES ({', '.join('?' * 16)})"
_PAGE_ROWS = 5_000
_LAST_NUMBER = 2**63 - 1
# All ids with the prefix lie between these two.
_SITES = (SITE_PREFIX, SITE_PREFIX[:-1] + chr(ord(SITE_PREFIX[-1]) + 1))
_row: Callable[[Registration], tuple[Any, ...]] = attrgetter(*_FIELDS)


class SqliteRegistry:
    """Implements Registry with one connection behind a lock, so that calls from several threads queue up. Checks the
    whole file first; without `check` it leaves that to the process of the site that has it open."""

    def __init__(self, path: Path, settings: RegistrySettings, *, check: bool = True) -> None:
        self._path = path
        self._settings = settings
        self._lock = threading.Lock()
        self._database: SealedDatabase | None = open_database(path, check=check)
        self._blocks = BlockTable(self._database.connection)
        try:
            with self._reading() as connection:
                self.version = _number(connection, "SELECT version FROM state")
                self.identity: bytes = connection.execute("SELECT identity FROM state").fetchone()[0]
                singles = _number(connection, "SELECT count(*) FROM registrations WHERE until IS NULL")
                of_sites = "SELECT count(*) FROM registrations WHERE until IS NULL AND id >= ? AND id < ?"
                self._count = singles - _number(connection, of_sites, _SITES) + self._blocks.count()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self, specs: Sequence[SubscriptionSpec], position: AssignPosition, now_us: int
    ) -> list[Registration]:
        if not specs:
            return []
        ids = _choose_ids(specs)
        chosen = [spec.id for spec in specs if spec.id is not None]
        with self._changing() as (connection, version):
            more = sum(spec.scheme != ENCODED for spec in specs)
            self._check_limit(more)
            for id_ in chosen:
                if self._find(connection, id_) is not None:
                    raise Conflict(
                        f"subscription id {id_!r} is taken; choose another, or replace that subscription",
                        field="id",
                        id=id_,
                    )
            since = position(version)
            number = _take_numbers(connection, len(specs))
            added = [
                _new(number + at, id_, spec, since, version, now_us)
                for at, (id_, spec) in enumerate(zip(ids, specs, strict=True))
            ]
            connection.executemany(_INSERT, map(_row, added))
            self._commit(connection, version, more)
        return added

    def add_block(self, spec: BlockSpec, position: AssignPosition, now_us: int) -> Block:
        check_set_name(spec.name)
        if not spec.columns or not len(spec):
            raise InvalidRequest("a block needs at least one row of values", field="rows")
        with self._changing() as (connection, version):
            self._check_limit(len(spec))
            first = self._blocks.next_place(spec.name)
            if spec.first not in (None, first):
                raise Conflict(
                    f"the next row of set {spec.name!r} gets number {first}, not {spec.first}",
                    field="first",
                    next=first,
                )
            if first + len(spec) > PLACES:
                raise Conflict(f"set {spec.name!r} has no numbers left; use another name", field="name")
            since = position(version)
            number = _take_numbers(connection, len(spec))
            block = spec.block(number, first, since, version, now_us)
            self._blocks.insert(block)
            self._commit(connection, version, len(spec))
        return block

    def replace(self, spec: SubscriptionSpec, position: AssignPosition, now_us: int) -> Registration:
        if spec.id is None:
            raise InvalidRequest("a replacement needs the id of the subscription to replace", field="id")
        with self._changing() as (connection, version):
            old = self._find(connection, spec.id)
            if old is None:
                raise _unknown(spec.id)
            if old.durable != spec.durable:
                kind = "durable" if old.durable else "live"
                raise Conflict(
                    f"subscription {spec.id!r} is {kind} and cannot change that; remove it and make a new one",
                    field="durable",
                )
            since = position(version)
            self._end(connection, [old], since, version, removed=False)
            added = _new(_take_numbers(connection, 1), spec.id, spec, since, version, now_us)
            connection.execute(_INSERT, _row(added))
            self._commit(connection, version, 0)
        return added

    def remove(self, ids: Sequence[str], position: AssignPosition, now_us: int) -> list[Registration]:
        with self._changing() as (connection, version):
            found = (self._find(connection, id_) for id_ in dict.fromkeys(ids))
            olds = [old for old in found if old is not None]
            return self._remove(connection, olds, [], position, version)[0]

    def remove_set(self, name: str, position: AssignPosition, now_us: int) -> list[Registration | Block]:
        with self._changing() as (connection, version):
            blocks = self._blocks.select("prefix = ? AND until IS NULL", (f"{name}.",))
            numbers = sorted(number for _, number in self._blocks.single_members(name))
            olds = [old for number in numbers for old in _select(connection, "number = ?", (number,))]
            return _by_number(*self._remove(connection, olds, blocks, position, version))

    def remove_expired(self, position: AssignPosition, now_us: int) -> list[Registration | Block]:
        condition = "until IS NULL AND expires_at_us <= ?"
        with self._changing() as (connection, version):
            blocks = self._blocks.select(condition, (now_us,))
            olds = _sorted_select(connection, condition, (now_us,))
            return _by_number(*self._remove(connection, olds, blocks, position, version))

    def remove_live(self, position: AssignPosition, now_us: int) -> list[Registration]:
        with self._changing() as (connection, version):
            olds = _sorted_select(connection, "until IS NULL AND durable = 0", ())
            return self._remove(connection, olds, [], position, version)[0]

    def get(self, id: str) -> Registration:  # noqa: A002
        with self._reading() as connection:
            found = self._find(connection, id)
        if found is None:
            raise _unknown(id)
        return found

    def page(self, after: str | None, limit: int) -> list[Registration]:
        behind = "" if after is None else after
        with self._reading() as connection:
            condition = "until IS NULL AND id > ? AND NOT (id >= ? AND id < ?) ORDER BY id LIMIT ?"
            singles = _select(connection, condition, (behind, *_SITES, limit))
            members = self._blocks.members_after(behind, limit)
            firsts = [(single.id, single.number, 0) for single in singles]
            page = list(islice(merge(firsts, *members), limit))
            found = {single.id: single for single in singles}
            in_blocks = [member for member in page if member[0] not in found]
            found.update({r.id: r for r in self._blocks.registrations(in_blocks)})
            return [found[id_] for id_, _, _ in page]

    def sets(self, after: str | None, limit: int) -> list[SetSummary]:
        with self._reading():
            return self._blocks.sets(after, limit)

    def count(self) -> int:
        return self._count

    @property
    def seal(self) -> SealFile:
        """The seal of the file, until `close`."""
        assert self._database is not None
        return self._database.seal

    @property
    def location(self) -> str:
        return str(self._path)

    def registrations(self) -> Iterator[Registration | Block]:
        # A few thousand at a time, so that changes need not wait for all of them.
        number = 0
        while True:
            with self._reading() as connection:
                page = _select(connection, "number > ? ORDER BY number LIMIT ?", (number, _PAGE_ROWS))
                last = page[-1].number if page else _LAST_NUMBER
                blocks = self._blocks.select("number > ? AND number <= ?", (number, last))
            yield from _by_number(page, blocks)
            if not page:
                return
            number = last

    def changes(self, after_version: int) -> Changes:
        with self._reading() as connection:
            singles = _select(connection, "version > ? ORDER BY version, number", (after_version,))
            blocks = self._blocks.select("version > ?", (after_version,))
            added: list[Registration | Block] = [*singles, *blocks]
            added.sort(key=attrgetter("version", "number"))
            ended = connection.execute(
                "SELECT number, until FROM registrations WHERE ended_version > ? ORDER BY ended_version, number",
                (after_version,),
            ).fetchall()
            ended_blocks = self._blocks.select("ended_version > ?", (after_version,))
            return Changes(self.version, tuple(added), tuple(ended), tuple(ended_blocks))

    def forget(self, numbers: Sequence[int], blocks: Sequence[int] = ()) -> None:
        with self._transaction() as connection:
            self._blocks.forget(blocks)
            connection.executemany(
                "DELETE FROM registrations WHERE number = ? AND until IS NOT NULL",
                [(number,) for number in numbers],
            )
            self._seal()

    def close(self) -> None:
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                try:
                    database.close()
                except sqlite3.Error as exc:
                    raise translate(exc, self._path) from exc

    def _check_limit(self, more: int) -> None:
        if self._count + more > self._settings.max_subscriptions:
            raise TooManySubscriptions(
                f"the site holds {self._count} subscriptions, and registry.max_subscriptions is "
                f"{self._settings.max_subscriptions}; remove some or raise it",
                field="subscriptions",
                limit=self._settings.max_subscriptions,
            )

    def _find(self, connection: sqlite3.Connection, id_: str) -> Registration | None:
        found = _select(connection, "id = ? AND until IS NULL", (id_,))
        return found[0] if found else self._blocks.find(id_)

    def _remove(
        self,
        connection: sqlite3.Connection,
        olds: list[Registration],
        blocks: list[Block],
        position: AssignPosition,
        version: int,
    ) -> tuple[list[Registration], list[Block]]:
        if not olds and not blocks:
            return [], []
        until = position(version)
        self._end(connection, olds, until, version, removed=True)
        self._blocks.end(blocks, until, version)
        fewer = sum(old.scheme != ENCODED for old in olds) + sum(len(block.numbers()) for block in blocks)
        self._commit(connection, version, -fewer)
        return (
            [replace(old, until=until, removed=True) for old in olds],
            [replace(block, until=until) for block in blocks],
        )

    def _end(
        self,
        connection: sqlite3.Connection,
        olds: list[Registration],
        until: int,
        version: int,
        *,
        removed: bool,
    ) -> None:
        for old in olds:
            ended = connection.execute(
                "UPDATE registrations SET until = ?, removed = ?, ended_version = ? WHERE number = ?",
                (until, removed, version, old.number),
            )
            if not ended.rowcount:  # a member of a block
                self._blocks.leave(old.number)
                left = replace(old, until=until, removed=removed)
                connection.execute(_INSERT_ENDED, (*_row(left), version))

    def _commit(self, connection: sqlite3.Connection, version: int, more: int) -> None:
        """Make a change durable, and only then visible in `version` and `count`."""
        moved = connection.execute("UPDATE state SET version = ? WHERE version = ?", (version, version - 1))
        if moved.rowcount != 1:
            raise StorageError(
                f"another process has changed the registry {self._path}; run one site per data directory"
            )
        self._seal()
        self.version = version
        self._count += more

    def _seal(self) -> None:
        assert self._database is not None
        self._database.commit()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._database is None:
                raise Unavailable("the registry is closed")
            try:
                yield self._database.connection
            except StorageCorrupt as exc:
                raise FORMAT.damage(self._path, exc.message) from exc
            except (sqlite3.Error, OverflowError, UnicodeEncodeError) as exc:
                raise translate(exc, self._path) from exc

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction, rolled back unless it is committed inside."""
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _changing(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A transaction, and the version that its change gets."""
        with self._transaction() as connection:
            yield connection, self.version + 1


def _choose_ids(specs: Sequence[SubscriptionSpec]) -> list[str]:
    """The ids of the subscriptions: those asked for, or new ones. Raises InvalidRequest or Conflict."""
    made = {
        durable: iter(new_ids(sum(s.id is None and s.durable == durable for s in specs), durable=durable))
        for durable in (True, False)
    }
    ids = [
        next(made[spec.durable])
        if spec.id is None
        else check_id(spec.id, durable=spec.durable, of_site=spec.scheme == ENCODED)
        for spec in specs
    ]
    id_, times = Counter(ids).most_common(1)[0]
    if times > 1:
        raise Conflict(f"subscription id {id_!r} is given twice in one request", field="id", id=id_)
    return ids


def _new(
    number: int, id_: str, spec: SubscriptionSpec, since: int, version: int, now_us: int
) -> Registration:
    return Registration(
        number=number,
        id=id_,
        filter=spec.predicate.text,
        durable=spec.durable,
        since=since,
        until=None,
        removed=False,
        version=version,
        created_at_us=now_us,
        scheme=spec.scheme,
        channel=spec.channel,
        **options_of(spec),
    )


def _select(connection: sqlite3.Connection, condition: str, values: tuple[Any, ...]) -> list[Registration]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM registrations WHERE {condition}", values)
    return [Registration(r[0], r[1], r[2], bool(r[3]), r[4], r[5], bool(r[6]), *r[7:]) for r in rows]


def _sorted_select(
    connection: sqlite3.Connection, condition: str, values: tuple[Any, ...]
) -> list[Registration]:
    # Sorting here lets SQLite use an index; with ORDER BY it would walk the whole table in that order.
    return sorted(_select(connection, condition, values), key=attrgetter("number"))


def _by_number(singles: list[Registration], blocks: list[Block]) -> list[Registration | Block]:
    return sorted([*singles, *blocks], key=attrgetter("number"))


def _take_numbers(connection: sqlite3.Connection, count: int) -> int:
    """The first of so many numbers that no registration has had."""
    query = "UPDATE state SET last_number = last_number + ? RETURNING last_number"
    (last,) = connection.execute(query, (count,)).fetchone()
    return int(last) - count + 1


def _number(connection: sqlite3.Connection, query: str, values: tuple[Any, ...] = ()) -> int:
    row = connection.execute(query, values).fetchone()
    return 0 if row is None else int(row[0])


def _unknown(id_: str) -> NotFound:
    return NotFound(f"there is no subscription {id_!r}", id=id_)
