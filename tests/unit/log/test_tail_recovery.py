"""What is left after a crash, and what damage does."""

import logging
import os
import random
import shutil
import zlib
from pathlib import Path

import pytest

from culver.errors import StorageCorrupt, StorageError
from culver.log.files import FileLog, FileLogReader
from culver.log.files.log_segment import HEADER
from support.logs import ONE_SEGMENT, SMALL_SEGMENTS, batch, last_segment, numbers


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that open thousands of logs and cut no power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


def write_groups(directory: Path, groups: list[list[int]]) -> list[int]:
    """Append groups of batches of these sizes; returns the file's size after each."""
    sizes = []
    with FileLog(directory, ONE_SEGMENT) as log:
        for group in groups:
            batches, number = [], log.next_offset
            for count in group:
                batches.append(batch(number, count, received_us=number))
                number += count
            log.append(batches)
            sizes.append(last_segment(directory).stat().st_size)
    return sizes


@pytest.mark.slow(seconds=3)
@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("group", [[1], [3], [1, 2, 1]])
def test_tail_torn_at_any_byte_is_cut_as_a_whole(tmp_path: Path, group: list[int]) -> None:
    _, before, after = write_groups(tmp_path / "whole", [[2], [1, 1], group])
    content = last_segment(tmp_path / "whole").read_bytes()
    torn = tmp_path / "torn"
    for cut in range(before, after):
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        (torn / last_segment(tmp_path / "whole").name).write_bytes(content[:cut])
        with FileLog(torn, ONE_SEGMENT) as log:
            assert log.next_offset == 4, cut
            assert last_segment(torn).stat().st_size == before
            assert log.append([batch(4, 2)]) == 4
            assert numbers(log, 0, 6) == list(range(6))


@pytest.mark.usefixtures("quick_disk")
def test_tail_of_which_only_some_pages_reached_the_disk_is_cut_as_a_whole(tmp_path: Path) -> None:
    _, before, after = write_groups(tmp_path / "whole", [[2], [1, 1], [40, 40, 40, 40]])
    name = last_segment(tmp_path / "whole").name
    content = last_segment(tmp_path / "whole").read_bytes()
    generator = random.Random(7)
    torn = tmp_path / "torn"
    for _ in range(300):
        damaged = bytearray(content)
        for start in range(before, after, 512):
            if generator.random() < 0.5:
                damaged[start : start + 512] = bytes(len(damaged[start : start + 512]))
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        (torn / name).write_bytes(damaged)
        with FileLog(torn, ONE_SEGMENT) as log:
            assert log.next_offset == (164 if bytes(damaged) == content else 4)
            assert numbers(log, 0, 4) == [0, 1, 2, 3]


@pytest.mark.slow(seconds=7)
@pytest.mark.usefixtures("quick_disk")
def test_flipped_bit_anywhere_is_found_and_never_read_as_something_else(tmp_path: Path) -> None:
    """Damage to the last group looks like a torn tail and is cut; a damaged header is made up for; anywhere else only
    the damaged batch is lost."""
    whole, damaged_log = tmp_path / "whole", tmp_path / "damaged"
    with FileLog(whole, SMALL_SEGMENTS) as log:
        for start in range(0, 12, 2):
            last_group = last_segment(whole), last_segment(whole).stat().st_size
            log.append([batch(start), batch(start + 1)])
    paths = sorted(whole.glob("*.log"))
    assert len(paths) >= 2
    assert last_group[0] == paths[-1]
    shutil.copytree(whole, damaged_log)
    generator = random.Random(11)
    for path in paths:
        content = path.read_bytes()
        for at in range(generator.randrange(3), len(content), 3):
            damaged = bytearray(content)
            damaged[at] ^= 1 << generator.randrange(8)
            (damaged_log / path.name).write_bytes(damaged)
            if path == last_group[0] and at >= last_group[1]:
                with FileLog(damaged_log, SMALL_SEGMENTS) as log:
                    assert numbers(log, 0, 12) == list(range(10))
            elif at < HEADER.size:
                open_and_read_all(damaged_log)
            else:
                with pytest.raises(StorageCorrupt) as caught:
                    open_and_read_all(damaged_log)
                assert caught.value.details["path"] == str(damaged_log / path.name)
                assert str(damaged_log / path.name) in caught.value.message
                assert "docs/storage.md" in caught.value.message
                start, end = caught.value.details["start"], caught.value.details["end"]
                assert end == start + 1
                with FileLog(damaged_log, SMALL_SEGMENTS) as log:
                    assert numbers(log, 0, start) == list(range(start))
                    assert numbers(log, end, 12) == list(range(end, 12))
                    assert log.append([batch(12)]) == 12
                for one in set(damaged_log.glob("*.log")):
                    shutil.copyfile(whole / one.name, one) if (whole / one.name).exists() else one.unlink()
        (damaged_log / path.name).write_bytes(content)
    open_and_read_all(damaged_log)


def open_and_read_all(directory: Path) -> None:
    with FileLog(directory, SMALL_SEGMENTS) as log:
        assert numbers(log, 0, 12) == list(range(12))


@pytest.mark.slow(seconds=2)
@pytest.mark.usefixtures("quick_disk")
def test_reader_finds_every_flipped_bit_in_what_it_reads(tmp_path: Path) -> None:
    write_groups(tmp_path, [[1], [2, 1]])
    path = last_segment(tmp_path)
    content = path.read_bytes()
    for at in range(HEADER.size, len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StorageCorrupt):
            list(FileLogReader(tmp_path).read(0, 4))
    path.write_bytes(content)
    assert numbers(FileLogReader(tmp_path), 0, 4) == [0, 1, 2, 3]


def test_cut_is_logged_with_the_file_and_the_offset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_groups(tmp_path, [[2], [1]])
    path = last_segment(tmp_path)
    os.truncate(path, path.stat().st_size - 1)
    with caplog.at_level(logging.WARNING, "culver.log"):
        FileLog(tmp_path, ONE_SEGMENT).close()
    assert str(path) in caplog.text
    assert "offset 2" in caplog.text


def test_bytes_that_imitate_a_record_do_not_turn_a_torn_tail_into_damage(tmp_path: Path) -> None:
    """A publisher may send what the log's own bytes looked like, but for the salt."""
    donor = tmp_path / "donor"
    write_groups(donor, [[1]] * 20)
    record = last_segment(donor).read_bytes()[HEADER.size :]
    torn = tmp_path / "torn"
    before, _ = write_groups(torn, [[2], [3]])
    path = last_segment(torn)
    path.write_bytes(path.read_bytes()[: before + 16] + record)
    with FileLog(torn, ONE_SEGMENT) as log:
        assert log.next_offset == 2


def test_segment_whose_making_was_cut_short_goes_on_at_the_offset_of_its_name(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for n in range(20):
            log.append([batch(n, received_us=n)])
        log.trim(20)
    for content in (b"", b"CULV", bytes(HEADER.size)):
        last_segment(tmp_path).unlink()
        (tmp_path / f"{20:020d}.log").write_bytes(content)
        with FileLog(tmp_path, SMALL_SEGMENTS) as log:
            assert log.next_offset == 20
            assert log.append([batch(20)]) == 20
            assert numbers(log, 20, 21) == [20]


def test_first_record_stands_in_for_a_damaged_header(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_groups(tmp_path, [[2], [1]])
    path = last_segment(tmp_path)
    path.write_bytes(bytes(HEADER.size) + path.read_bytes()[HEADER.size :])
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        assert numbers(log, 0, 3) == [0, 1, 2]
        assert log.append([batch(3)]) == 3
        assert not log.damage
    assert str(path) in caplog.text
    assert numbers(FileLogReader(tmp_path), 0, 4) == [0, 1, 2, 3]


def test_segment_whose_header_and_first_record_are_damaged_is_lost_alone(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for n in range(60):
            log.append([batch(n, received_us=n)])
    _, path, following, *_ = sorted(tmp_path.glob("*.log"))
    with path.open("r+b") as file:
        file.write(bytes(HEADER.size + 8))
    start, end = int(path.stem), int(following.stem)
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        with pytest.raises(StorageCorrupt, match="header"):
            list(log.read(start, 60))
        assert log.damage == [(str(path), 0, start, end)]
        assert numbers(log, 0, start) == list(range(start))
        assert numbers(log, end, 60) == list(range(end, 60))
        assert log.offset_at(end + 1) == end + 1
    with path.open("r+b") as file:
        file.truncate(HEADER.size + 8)
    last = last_segment(tmp_path)
    last.write_bytes(bytes(len(last.read_bytes())))
    with pytest.raises(StorageCorrupt, match="header"):
        FileLog(tmp_path, SMALL_SEGMENTS)


def test_segment_of_a_later_format_is_refused_by_its_number(tmp_path: Path) -> None:
    write_groups(tmp_path, [[2]])
    path = last_segment(tmp_path)
    content = bytearray(path.read_bytes())
    content[8] = 9
    content[36:40] = zlib.crc32(content[:36]).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(StorageCorrupt, match="format 9"):
        FileLog(tmp_path, ONE_SEGMENT)


def test_missing_segment_in_the_middle_is_damage(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for n in range(60):
            log.append([batch(n)])
    sorted(tmp_path.glob("*.log"))[1].unlink()
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        with pytest.raises(StorageCorrupt, match="cannot be read") as caught:
            list(log.read(0, 60))
        [(_, _, start, end)] = log.damage
        assert caught.value.details["end"] == end
        assert numbers(log, 0, start) + numbers(log, end, 60) == [*range(start), *range(end, 60)]


def test_failed_open_leaves_the_directory_unlocked(tmp_path: Path) -> None:
    write_groups(tmp_path, [[2]])
    path = last_segment(tmp_path)
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    with pytest.raises(StorageCorrupt):
        FileLog(tmp_path, ONE_SEGMENT)
    path.write_bytes(content)
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        assert log.next_offset == 2
        with pytest.raises(StorageError, match="another process"):
            FileLog(tmp_path, ONE_SEGMENT)
