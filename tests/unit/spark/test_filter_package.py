"""Packages of filters: written to a machine once, and removed when others were opened later."""

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest

from culver import Matcher
from culver.errors import StorageCorrupt, StorageError
from culver.spark.matching.filter_package import FilterPackage, OpenMatchers, on_this_machine


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where this machine keeps its packages."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"culver-filters-{os.getuid()}"


def package(text: str) -> FilterPackage:
    matcher = Matcher()
    matcher.add("a", text)
    return FilterPackage(matcher)


def never(path: Path) -> None:
    raise AssertionError("it is on this machine already")


def test_a_package_is_fetched_once_and_opened_once(machine: Path) -> None:
    packed, opened = package("x > 1"), OpenMatchers()
    matcher = opened.get(packed.digest, partial(shutil.copyfile, packed.path))
    assert matcher.match({"x": 2}) == ["a"]
    assert opened.get(packed.digest, never) is matcher
    assert OpenMatchers().get(packed.digest, never).match({"x": 1}) == []
    assert {path.name for path in machine.iterdir()} == {"lock", packed.digest}


def test_the_last_packages_stay_on_the_machine(machine: Path) -> None:
    packages = [package(f"x > {number}") for number in range(10)]
    for each in packages:
        with on_this_machine(each.digest, partial(shutil.copyfile, each.path)):
            pass
        for name in machine.iterdir():  # as if a second went by
            os.utime(name, ns=(0, name.stat().st_mtime_ns - 10**9))
        if each is packages[7]:
            with on_this_machine(packages[0].digest, never):
                pass
    kept = [each for each in packages if (machine / each.digest).exists()]
    assert kept == [packages[0], *packages[3:]]


def test_a_worker_keeps_what_it_has_opened_when_the_name_is_removed(machine: Path) -> None:
    packed, opened = package("x > 1"), OpenMatchers()
    matcher = opened.get(packed.digest, partial(shutil.copyfile, packed.path))
    (machine / packed.digest).unlink()
    assert matcher.match({"x": 2}) == ["a"]


def test_a_package_that_was_altered_on_the_way_is_refused(machine: Path) -> None:
    with pytest.raises(StorageCorrupt, match="altered"):
        OpenMatchers().get(package("x > 1").digest, lambda path: path.write_bytes(b"else"))
    packed = package("x > 2")
    OpenMatchers().get(packed.digest, partial(shutil.copyfile, packed.path))
    assert {path.name for path in machine.iterdir()} == {"lock", packed.digest}


def test_a_directory_that_others_may_write_to_is_refused(machine: Path) -> None:
    machine.mkdir(mode=0o755)
    with pytest.raises(StorageError, match="of this user alone"):
        OpenMatchers().get("0", never)


def test_the_file_of_a_package_goes_with_it() -> None:
    packed = package("x > 1")
    folder = packed.path.parent
    assert packed.path.exists()
    del packed
    assert not folder.exists()
