import os
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from culver.errors import StorageCorrupt
from culver.log import DamagedEvents
from culver.matching.index.search.buffer_pool import result_buffer
from culver.pipeline import notifications
from culver.pipeline.notifications import (
    Notifications,
    notification_file_name,
    parse_notification_file_name,
    read_notifications,
    write_notifications,
)
from culver.pipeline.spark.spark_engine import NotificationCollector
from support.notifications import offsets_of


def some(start: int, end: int, pairs: dict[int, list[int]] | None = None) -> Notifications:
    """Registration number -> offsets."""
    grouped = sorted((pairs or {}).items())
    rows = [offset - start for _, offsets in grouped for offset in offsets]
    counts = [len(offsets) for _, offsets in grouped]
    return Notifications(
        start,
        end,
        7,
        np.array([number for number, _ in grouped], np.int64),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array(rows, np.uint16),
        np.full(end - start, 11, np.uint32),
    )


class RecordingSink:
    def __init__(self) -> None:
        self.accepted: list[tuple[int, int]] = []

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        assert stored
        self.accepted.append((notifications.start, notifications.end))


def test_file_reads_as_it_was_written(tmp_path: Path) -> None:
    written = some(100, 105, {3: [100, 104], 9: [102]})
    read = read_notifications(write_notifications(tmp_path, written, durable=True))
    assert (read.start, read.end, read.index_version) == (100, 105, 7)
    assert offsets_of(read, 3) == [100, 104]
    assert offsets_of(read, 9) == [102]
    assert offsets_of(read, 4) == []
    assert offsets_of(read, 10) == []
    assert read.sizes.tolist() == [11] * 5
    assert read.damage == ()


def test_what_nobody_could_match_is_in_the_file(tmp_path: Path) -> None:
    damage = (DamagedEvents("log/0.log", 40, 101, 103), DamagedEvents("log/0.log", 900, 104, 105))
    written = replace(some(100, 105, {3: [102, 104]}), damage=damage)
    assert read_notifications(write_notifications(tmp_path, written, durable=True)).damage == damage


@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "not aligned"])
@pytest.mark.parametrize("surplus", [0, 1, 2_047, 2_048])
@pytest.mark.parametrize("step", [1 << 30, 1 << 16], ids=["at once", "in steps"])
def test_many_rows_read_as_they_were_written(tmp_path: Path, shift: int, surplus: int, step: int) -> None:
    pairs = (1 << 19) + surplus
    rows = result_buffer(pairs // 4 + 1).view(np.uint16)[shift : shift + pairs]
    rows[:] = np.arange(pairs) % 50_000
    bounds = np.array([0, 50_000, pairs], np.int64)
    written = Notifications(5, 50_006, 7, np.array([3, 9]), bounds, rows, np.zeros(50_001, np.uint32))
    path = write_notifications(tmp_path, written, durable=True, most_bytes_at_once=step)
    read = read_notifications(path)
    assert (read.rows == rows).all()
    assert len(read.rows) == pairs
    assert offsets_of(read, 3) == list(range(5, 50_005))
    with path.open("r+b") as file:
        file.seek(-pairs, 2)  # in the middle of the rows
        byte = file.read(1)
        file.seek(-pairs, 2)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(StorageCorrupt):
        read_notifications(path)


def test_many_rows_go_to_the_disk_in_steps_past_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others who wait for the disk get their turn in between."""
    really, written = os.pwrite, list[int]()

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        written.append(len(data))
        return really(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    rows = notifications.aligned_rows(1 << 20)
    bounds = np.array([0, len(rows)], np.int64)
    content = Notifications(0, 9, 1, np.array([3]), bounds, rows, np.zeros(9, np.uint32))
    write_notifications(tmp_path, content, durable=True, most_bytes_at_once=1 << 19)
    assert written == [1 << 19] * 4


def test_same_content_gives_the_same_bytes_and_leaves_no_other_file(tmp_path: Path) -> None:
    content = some(0, 2, {1: [0, 1]})
    first = write_notifications(tmp_path, content, durable=True).read_bytes()
    assert write_notifications(tmp_path, content, durable=False).read_bytes() == first
    assert len(list(tmp_path.iterdir())) == 1


def test_every_flipped_or_missing_byte_is_noticed(tmp_path: Path) -> None:
    path = write_notifications(tmp_path, some(0, 3, {1: [0], 2: [1, 2]}), durable=False)
    intact = path.read_bytes()
    for at in range(len(intact)):
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 0x10]) + intact[at + 1 :])
        with pytest.raises(StorageCorrupt):
            read_notifications(path)
        path.write_bytes(intact[:at])
        with pytest.raises(StorageCorrupt):
            read_notifications(path)


@pytest.mark.parametrize("name", ["x.ntf", "0-1.ntf", f"{1:020d}-{2:020d}.tmp", f"{1:020d}_{2:020d}.ntf", ""])
def test_other_names_are_not_notification_files(name: str) -> None:
    assert parse_notification_file_name(name) is None


def test_file_name_is_the_range() -> None:
    assert parse_notification_file_name(notification_file_name(5, 2**40)) == (5, 2**40)


def test_collector_waits_for_the_next_range_and_takes_files_in_order(tmp_path: Path) -> None:
    sink = RecordingSink()
    collector = NotificationCollector(tmp_path, sink, position=0)
    write_notifications(tmp_path, some(10, 20), durable=False)
    collector.collect()
    assert sink.accepted == []
    write_notifications(tmp_path, some(0, 10), durable=False)
    collector.collect()
    assert sink.accepted == [(0, 10), (10, 20)]
    assert collector.position == 20
    collector.collect()
    assert len(sink.accepted) == 2


def test_collector_takes_the_longest_of_overlapping_files(tmp_path: Path) -> None:
    sink = RecordingSink()
    for start, end in [(0, 10), (5, 15), (8, 30), (20, 25), (30, 31)]:
        write_notifications(tmp_path, some(start, end), durable=False)
    NotificationCollector(tmp_path, sink, position=6).collect()
    assert sink.accepted == [(5, 15), (8, 30), (30, 31)]


def test_collector_removes_files_of_which_it_has_all_from_others(tmp_path: Path) -> None:
    sink = RecordingSink()
    for start, end in [(0, 50), (0, 80), (10, 80), (90, 100)]:
        write_notifications(tmp_path, some(start, end), durable=False)
    NotificationCollector(tmp_path, sink, position=0).collect()
    assert sink.accepted == [(0, 80)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        notification_file_name(0, 80),
        notification_file_name(90, 100),
    ]


def test_collector_removes_a_torn_file_and_waits_for_its_range(tmp_path: Path) -> None:
    sink = RecordingSink()
    path = write_notifications(tmp_path, some(0, 10, {1: [3]}), durable=False)
    path.write_bytes(path.read_bytes()[:-3])
    NotificationCollector(tmp_path, sink, position=0).collect()
    assert sink.accepted == []
    assert not path.exists()
