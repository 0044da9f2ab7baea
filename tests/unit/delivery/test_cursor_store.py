from pathlib import Path

import pytest

from culver.delivery.deliveries import DeliveryGap
from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailboxes import StoredMailbox
from culver.errors import StorageError, Unavailable

GAPS = (DeliveryGap("a", 1, 5, 3, "overflow"), DeliveryGap("a", 5, 9, None, "expired"))


def reread(path: Path) -> tuple[dict[str, StoredMailbox], int]:
    store, (stored, _, base) = CursorStore.open(path)
    store.close()
    return stored, base


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    store, (stored, _, base) = CursorStore.open(path)
    assert (stored, base) == ({}, 0)
    store.acknowledge("b", 4, 17).result()
    store.write([("a", StoredMailbox(3, 2, GAPS))], base=12).result()
    assert reread(path) == ({"a": StoredMailbox(3, 2, GAPS), "b": StoredMailbox(4, 17, ())}, 12)
    store.close()


def test_cursors_and_the_base_never_go_back(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    store, _ = CursorStore.open(path)
    store.acknowledge("a", 4, 17).result()
    store.acknowledge("a", 5, 9).result()
    store.write([("a", StoredMailbox(5, 3, GAPS))], base=12).result()
    store.write([], base=7).result()
    store.close()
    assert reread(path) == ({"a": StoredMailbox(5, 17, GAPS)}, 12)


def test_acknowledging_leaves_the_gaps_alone(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    store, _ = CursorStore.open(path)
    store.write([("a", StoredMailbox(3, -1, GAPS))]).result()
    store.acknowledge("a", 3, 4).result()
    store.close()
    assert reread(path)[0] == {"a": StoredMailbox(3, 4, GAPS)}


def test_forgetting_spares_a_later_subscription_of_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    store, _ = CursorStore.open(path)
    for name in ("a", "b"):
        store.acknowledge(name, 4, 17)
    store.forget([("a", 4), ("b", 3), ("c", 9)])
    store.close()
    assert reread(path)[0] == {"b": StoredMailbox(4, 17, ())}


def test_closing_writes_what_waits_and_refuses_what_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "cursors.db"
    store, _ = CursorStore.open(path)
    waiting = [store.acknowledge(f"s{number}", number, number) for number in range(1_000)]
    store.close()
    store.close()
    assert all(future.done() and future.exception() is None for future in waiting)
    assert isinstance(store.acknowledge("a", 1, 1).exception(), Unavailable)
    assert len(reread(path)[0]) == 1_000


def test_a_directory_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open the cursors"):
        CursorStore.open(tmp_path / "missing" / "cursors.db")
