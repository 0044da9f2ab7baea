"""Packages of filters: written to a machine once, and removed when others were opened later."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from culver import Matcher
from culver.errors import NotFound, StorageCorrupt, StorageError
from culver.spark.matching.filter_package import FilterPackage, OpenMatchers


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where this machine keeps its packages."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
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
        OpenMatchers().get(each.digest, partial(shutil.copyfile, each.path))
        for name in machine.iterdir():  # as if a second went by
            os.utime(name, ns=(0, name.stat().st_mtime_ns - 10**9))
        if each is packages[7]:
            OpenMatchers().get(packages[0].digest, never)
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


@pytest.mark.parametrize("damage", [b"", b"else", None])
def test_a_package_that_is_damaged_on_the_machine_is_fetched_again(
    machine: Path, damage: bytes | None
) -> None:
    packed = package("x > 1")
    fetch = partial(shutil.copyfile, packed.path)
    OpenMatchers().get(packed.digest, fetch)
    content = (machine / packed.digest).read_bytes()
    (machine / packed.digest).write_bytes(content[:-1] + b"?" if damage is None else damage)
    assert OpenMatchers().get(packed.digest, fetch).match({"x": 2}) == ["a"]
    assert OpenMatchers().get(packed.digest, never).match({"x": 2}) == ["a"]


def test_a_disk_that_takes_no_package_is_named(machine: Path) -> None:
    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match=r"cannot bring filters to .*No space left"):
        OpenMatchers().get(package("x > 1").digest, full)
    assert {path.name for path in machine.iterdir()} == {"lock"}


def test_whoever_fetches_a_package_keeps_nobody_from_another(machine: Path) -> None:
    slow, quick = package("x > 1"), package("x > 2")

    def fetch(path: Path) -> None:
        OpenMatchers().get(quick.digest, partial(shutil.copyfile, quick.path))
        shutil.copyfile(slow.path, path)

    assert OpenMatchers().get(slow.digest, fetch).match({"x": 2}) == ["a"]


def test_a_worker_waits_for_the_one_that_fetches_the_same_package(machine: Path) -> None:
    packed = package("x > 1")
    machine.mkdir(mode=0o700)
    code = """
import fcntl, shutil, sys, time
lock, offset, source, target = sys.argv[1:]
with open(lock, "wb") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, int(offset))
    print(flush=True)
    time.sleep(0.3)
    shutil.copyfile(source, target)
"""
    given = [machine / "lock", int(packed.digest[:15], 16), packed.path, machine / packed.digest]
    with subprocess.Popen([sys.executable, "-c", code, *map(str, given)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert OpenMatchers().get(packed.digest, never).match({"x": 2}) == ["a"]


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


def test_what_is_checked_is_what_is_sent(tmp_path: Path) -> None:
    with Matcher() as matcher:
        matcher.add("a", "x > 1")
        of_matcher = FilterPackage(matcher)
        matcher.save(tmp_path / "saved")
        matcher.add("b", "x > 2")
        of_path = FilterPackage(tmp_path / "saved")
        matcher.save(tmp_path / "saved")
    for packed in (of_matcher, of_path):
        assert list(packed.matcher) == list(Matcher.open(packed.path)) == ["a"]


def test_a_path_without_a_saved_matcher_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"there is no file {tmp_path}/missing"):
        FilterPackage(tmp_path / "missing")


def test_packages_are_kept_where_spark_keeps_its_blocks(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/local/blockmgr-1,/other/blockmgr-2")
    (tmp_path / "local").mkdir()
    packed = package("x > 1")
    OpenMatchers().get(packed.digest, partial(shutil.copyfile, packed.path))
    assert (tmp_path / "local" / machine.name / packed.digest).exists()
    assert not machine.exists()
