"""One site at a time has a data directory, and not before the gateways of the one before it are gone."""

import os
import threading
from pathlib import Path

import pytest

from culver.errors import Conflict, InvalidConfiguration
from culver.site import directory_locks
from culver.site.directory_locks import gateway_lock, site_lock


def test_second_site_is_refused(tmp_path: Path) -> None:
    with site_lock(tmp_path), pytest.raises(Conflict, match="another Culver"), site_lock(tmp_path):
        pass
    with site_lock(tmp_path):
        pass


def test_site_waits_for_gateways_of_an_earlier_one(tmp_path: Path) -> None:
    began = threading.Event()
    order: list[str] = []

    def start() -> None:
        began.set()
        with site_lock(tmp_path):
            order.append("site")

    with gateway_lock(tmp_path), gateway_lock(tmp_path):
        site = threading.Thread(target=start)
        site.start()
        began.wait()
        order.append("gateways end")
    site.join()
    assert order == ["gateways end", "site"]


def test_gateways_that_do_not_end_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_locks, "_PATIENCE_SECONDS", 0.05)
    with gateway_lock(tmp_path), pytest.raises(Conflict, match="gateways of an earlier"), site_lock(tmp_path):
        pass


def test_gateways_may_start_while_the_site_has_its_lock(tmp_path: Path) -> None:
    with site_lock(tmp_path), gateway_lock(tmp_path), gateway_lock(tmp_path):
        pass


def test_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidConfiguration, match="cannot use"), site_lock(tmp_path / "file" / "data"):
        pass


def test_new_data_directory_is_for_its_user_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = os.umask(0)
    try:
        with site_lock(tmp_path / "of" / "site"):
            assert (tmp_path / "of" / "site").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert not caplog.records


def test_data_directory_that_others_may_look_into_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with site_lock(tmp_path / "open"):
        pass
    assert f"may look into the data directory {tmp_path / 'open'}; chmod 700" in caplog.text
