"""The state that delivery keeps across a restart: cursors, gaps, and the base below which files may be gone.

    mailboxes   subscription | number | cursor | gaps (JSON)
    progress    base: no mailbox needs anything below it

A set that is acknowledged as a whole has a row of its own, whose name no subscription can have: "quotes.*0/2" stands
for the members of set quotes that gateway 0 of 2 has. The cursor of a member is the highest that any row gives it.

The file is sealed, see `culver.sealed`.

One thread writes. It puts everything that waits into one transaction, so that thousands of acknowledgements share one
sync of the disk. Writes take effect in the order in which they were handed over.

All gateways of a site share the file, and each writes the rows of its share; SQLite lets one write at a time. When
the number of gateways changes, another gateway reads a subscription's row, and nothing has to be moved.
"""

import json
import logging
import queue
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from culver.delivery.deliveries import DeliveryGap
from culver.delivery.mailboxes.mailboxes import SetCursor, StoredMailbox
from culver.delivery.shares import Share
from culver.disk import is_full
from culver.errors import StorageError, StorageFull, Unavailable
from culver.registry import Block
from culver.sealed import DatabaseFormat, SealedDatabase, SealFile, Table, open_sealed

logger = logging.getLogger(__name__)

_FORMAT = DatabaseFormat(
    what="the file of cursors",
    remedy="Restore it from a copy, with its -wal if the copy has one, and without the -seal. Without a copy, remove "
    "it together with -wal, -shm and -seal: every mailbox is then delivered again from its oldest event, under the "
    "same delivery ids.",
    application=0x43554C43,  # "CULC"
    number=1,
    oldest=0,  # without a number, and not sealed
    tables={
        "mailboxes": Table(
            {
                "subscription": "TEXT PRIMARY KEY",
                "number": "INTEGER NOT NULL",
                "cursor": "INTEGER NOT NULL",
                "gaps": "TEXT NOT NULL",
            },
            "WITHOUT ROWID",
        ),
        "progress": Table({"one": "INTEGER PRIMARY KEY CHECK (one = 1)", "base": "INTEGER NOT NULL"}),
    },
    indexes=("CREATE INDEX mailboxes_by_number ON mailboxes (number)",),
)
# A cursor never goes back, even if two writes about one subscription overtake one another.
_ACKNOWLEDGE = """
INSERT INTO mailboxes (subscription, number, cursor, gaps) VALUES (?, ?, ?, '[]') ON CONFLICT (subscription)
DO UPDATE SET number = excluded.number, cursor = max(cursor, excluded.cursor)
"""
_GAPS = """
INSERT INTO mailboxes (subscription, number, cursor, gaps) VALUES (?, ?, ?, ?) ON CONFLICT (subscription)
DO UPDATE SET number = excluded.number, cursor = max(cursor, excluded.cursor), gaps = excluded.gaps
"""
_READ = "SELECT subscription, number, cursor, gaps FROM mailboxes"
_FORGET_SET = "DELETE FROM mailboxes WHERE subscription GLOB ?"
_FORGET = "DELETE FROM mailboxes WHERE subscription = ? AND number <= ?"
_FORGET_BLOCK = """
DELETE FROM mailboxes WHERE number >= ? AND number < ? AND number NOT IN (SELECT value FROM json_each(?))
"""
_BASE = """
INSERT INTO progress (one, base) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET base = max(base, excluded.base)
"""
# Writes in one transaction. The event loop answers all who wait for it at once, which must not take long.
_LARGEST_TRANSACTION = 256
# How long another gateway may be writing.
_BUSY_SECONDS = 30.0

_SET_CURSOR = re.compile(r"(.+)\.\*(\d+)/(\d+)")

_Statement = tuple[str, tuple[Any, ...]]


class StoredCursors(NamedTuple):
    """What a file of cursors holds; see the module."""

    mailboxes: dict[str, StoredMailbox]
    sets: list[SetCursor]
    base: int


class CursorStore:
    """Its owner closes it. Every write returns a future that is done once the write is on disk. It fails with
    StorageFull or StorageError, and then nothing of the write was kept."""

    def __init__(self, database: SealedDatabase, path: Path, on_full: Callable[[], None]) -> None:
        self._database = database
        self._path = path
        self._on_full = on_full
        self._queue: queue.SimpleQueue[tuple[Sequence[_Statement], Future[None]] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="culver-cursors", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: Path,
        owns: Callable[[str], bool] = lambda subscription: True,
        on_full: Callable[[], None] = lambda: None,
        *,
        check: bool = True,
    ) -> tuple["CursorStore", StoredCursors]:
        """The store, and what is in it of subscriptions that are owned here. The store calls `on_full` in its own
        thread where the disk is full, and then tries once more. Without `check` it does not check the file, which the
        process of the site has done."""
        database: SealedDatabase | None = None
        try:
            database = open_sealed(path, _FORMAT, check=check, busy_seconds=_BUSY_SECONDS)
            connection = database.connection
            mailboxes, sets = {}, []
            for subscription, number, cursor, gaps in connection.execute(_READ):
                if (part := _SET_CURSOR.fullmatch(subscription)) is not None:
                    sets.append(SetCursor(part[1], Share(int(part[2]), int(part[3])), cursor))
                elif owns(subscription):
                    mailboxes[subscription] = StoredMailbox(number, cursor, _read_gaps(subscription, gaps))
            base = connection.execute("SELECT base FROM progress").fetchone()
        except (sqlite3.Error, ValueError, TypeError) as exc:
            if database is not None:
                database.close()
            if isinstance(exc, sqlite3.OperationalError):
                raise StorageError(f"cannot open the cursors in {path}: {exc}") from exc
            raise _FORMAT.damage(path, str(exc)) from exc
        return cls(database, path, on_full), StoredCursors(mailboxes, sets, base[0] if base else 0)

    @property
    def seal(self) -> SealFile:
        return self._database.seal

    def acknowledge(self, subscription: str, number: int, cursor: int) -> Future[None]:
        return self.acknowledge_all([(subscription, number, cursor)])

    def acknowledge_all(self, cursors: Iterable[tuple[str, int, int]]) -> Future[None]:
        """The subscription, its number and its cursor, of many at once."""
        return self._put([(_ACKNOWLEDGE, cursor) for cursor in cursors])

    def acknowledge_set(self, acknowledged: SetCursor) -> Future[None]:
        share = acknowledged.share
        name = f"{acknowledged.name}.*{share.number}/{share.gateways}"
        return self._put([(_ACKNOWLEDGE, (name, 0, acknowledged.cursor))])

    def forget_set(self, name: str) -> Future[None]:
        """Delete what is acknowledged of a set as a whole. If it stayed, nothing would be wrong: a set of the same
        name begins behind it."""
        return self._put([(_FORGET_SET, (f"{name}.[*]*",))])

    def write(self, mailboxes: Iterable[tuple[str, StoredMailbox]], base: int = 0) -> Future[None]:
        """Mailboxes with their gaps, and the base, in one transaction. With nothing to write, the future
        still waits for everything handed over before."""
        statements: list[_Statement] = []
        for subscription, stored in mailboxes:
            gaps = json.dumps([[gap.start, gap.end, gap.dropped, gap.reason] for gap in stored.gaps])
            statements.append((_GAPS, (subscription, stored.number, stored.cursor, gaps)))
        if base:
            statements.append((_BASE, (base,)))
        return self._put(statements)

    def forget(self, mailboxes: Iterable[tuple[str, int]], blocks: Iterable[Block] = ()) -> Future[None]:
        """Delete the mailboxes of subscriptions up to a registration number, and those of blocks' members."""
        statements: list[_Statement] = [(_FORGET, pair) for pair in mailboxes]
        for block in blocks:
            holes = json.dumps(block.holes.tolist())
            statements.append((_FORGET_BLOCK, (block.number, block.number + block.count, holes)))
        return self._put(statements)

    def close(self) -> None:
        """Write what waits, then stop. Blocks until that is done."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _put(self, statements: Sequence[_Statement]) -> Future[None]:
        future: Future[None] = Future()
        if self._closed:
            future.set_exception(Unavailable("the site is stopping"))
        else:
            self._queue.put((statements, future))
        return future

    def _run(self) -> None:
        ending = False
        while not ending:
            writes, ending = self._collect()
            if writes:
                self._commit(writes)
        self._database.close()

    def _collect(self) -> tuple[list[tuple[Sequence[_Statement], Future[None]]], bool]:
        """Wait for one write, then take all that wait with it."""
        writes: list[tuple[Sequence[_Statement], Future[None]]] = []
        while len(writes) < _LARGEST_TRANSACTION:
            try:
                item = self._queue.get(block=not writes)
            except queue.Empty:
                break
            if item is None:
                return writes, True
            if item[1].set_running_or_notify_cancel():
                writes.append(item)
        return writes, False

    def _commit(self, writes: Sequence[tuple[Sequence[_Statement], Future[None]]]) -> None:
        error = self._try(writes)
        if isinstance(error, StorageFull):
            self._on_full()
            error = self._try(writes)
        if error is not None:
            logger.error("cannot write cursors: %s", error.__cause__)
        for _, future in writes:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _try(self, writes: Sequence[tuple[Sequence[_Statement], Future[None]]]) -> StorageError | None:
        connection = self._database.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statements, _ in writes:
                for sql, parameters in statements:
                    connection.execute(sql, parameters)
            self._database.commit()
        except sqlite3.Error as exc:
            error = StorageError(f"the acknowledgement could not be stored: {exc}")
            code = getattr(exc, "sqlite_errorcode", 0)
            if code == sqlite3.SQLITE_FULL or (code & 0xFF == sqlite3.SQLITE_IOERR and is_full(self._path)):
                error = StorageFull("the disk is full: the acknowledgement could not be stored")
            error.__cause__ = exc
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return error
        return None


def _read_gaps(subscription: str, text: str) -> tuple[DeliveryGap, ...]:
    return tuple(
        DeliveryGap(subscription, start, end, dropped, reason)
        for start, end, dropped, reason in json.loads(text)
    )
