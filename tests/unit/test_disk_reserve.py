"""The reserve of disk space in its three states."""

import errno
import os
from pathlib import Path

import pytest

from culver.disk_reserve import DiskReserve

SIZE = 1 << 20


def refuse(descriptor: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def opened(path: Path) -> DiskReserve:
    reserve = DiskReserve(path, SIZE)
    reserve.open()
    return reserve


def test_a_whole_reserve_takes_its_space_and_is_given_up_after_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = opened(path)
    told: list[tuple[bool, int]] = []
    reserve.on_change = lambda spent: told.append((spent, path.stat().st_size))
    assert not reserve.spent
    assert path.stat().st_blocks * 512 >= SIZE
    reserve.give_up()
    reserve.give_up()
    assert reserve.spent
    assert path.stat().st_blocks == 0
    reserve.restore()
    reserve.restore()
    assert not reserve.spent
    assert told == [(True, SIZE), (False, SIZE)]


def test_a_spent_reserve_stays_spent_through_a_restart_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reserve"
    opened(path).give_up()
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        again = opened(path)
        assert again.spent
        again.restore()
        assert again.spent
        again.close()
    assert path.stat().st_size == 0
    assert not opened(path).spent


def test_a_disk_without_room_for_the_reserve_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "reserve"
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    reserve = opened(path)
    assert not reserve.spent
    assert not path.exists()
    assert str(path) in caplog.text
    reserve.give_up()
    assert not reserve.spent


def test_a_start_with_hardly_any_space_gives_the_reserve_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskReserve, "_free_bytes", lambda reserve: 4096)
    assert opened(tmp_path / "reserve").spent


def test_a_size_of_zero_means_no_reserve(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = DiskReserve(path, 0)
    reserve.open()
    reserve.give_up()
    assert not reserve.spent
    assert not path.exists()


def test_the_file_stays_behind_a_site_that_stops_only_where_space_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "reserve"
    with monkeypatch.context() as short:
        short.setattr(DiskReserve, "_free_bytes", lambda reserve: 2 * SIZE)
        opened(path).close()
    assert path.stat().st_size == SIZE
    opened(path).close()
    assert not path.exists()
