"""What the hub finds on disk after a crash, and how it tidies the files up."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from culver.config import LogSettings
from culver.delivery.deliveries import Delivery, DeliveryGap
from culver.delivery.hub import Hub
from culver.delivery.ranges import notification_directory as delivery_files
from culver.delivery.ranges.file_keeper import FileKeeper
from culver.errors import StorageCorrupt, StorageError
from culver.pipeline.notifications import Notifications, notification_file_name
from support.notifications import (
    SECOND_US,
    Disk,
    make_notifications,
    registration,
    removed,
    rows_by_number,
    site_disk,
)

ALERTS = registration(7)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with site_disk(tmp_path) as made:
        made.publish(100)
        yield made


async def received(hub: Hub, subscription: str = "alerts", number: int = 7) -> list[int]:
    """All offsets in a mailbox, having checked the payloads and that nothing is missing."""
    session = await hub.open_session(registration(number, subscription))
    found: list[int] = []
    while items := await session.receive(1000, 0):
        for item in items:
            assert isinstance(item, Delivery)
            assert item.payload == b'{"n": %d}' % item.offset
            found.append(item.offset)
    await session.close()
    return found


def reopened(disk: Disk) -> tuple[int, list[int]]:
    """The frontier after a restart, and what is in the mailbox."""

    async def run() -> tuple[int, list[int]]:
        hub = disk.hub()
        hub.register([ALERTS])
        result = hub.frontier, await received(hub)
        assert hub.pending("alerts") == len(result[1])
        await hub.close()
        return result

    return asyncio.run(run())


def test_contiguous_files_are_taken_up_to_the_first_hole(disk: Disk) -> None:
    disk.write(make_notifications(0, 10, {7: [1, 5]}))
    disk.write(make_notifications(10, 20, {7: [12]}))
    disk.write(make_notifications(30, 40, {7: [33]}))
    assert reopened(disk) == (20, [1, 5, 12])
    assert notification_file_name(30, 40) in disk.files()


def test_a_file_behind_a_hole_waits_until_the_engine_gets_there(disk: Disk) -> None:
    waiting = make_notifications(30, 40, {7: [33]})

    async def run() -> None:
        disk.write(make_notifications(0, 20, {7: [12]}))
        disk.write(waiting)
        hub = disk.hub()
        hub.register([ALERTS])
        hub.accept(disk.write(make_notifications(20, 30, {7: [25]})))
        hub.accept(disk.write(waiting))
        await hub.housekeep(0)
        assert await received(hub) == [12, 25, 33]
        await hub.close()

    asyncio.run(run())
    assert reopened(disk) == (40, [12, 25, 33])


def test_a_waiting_file_that_the_engine_passed_with_other_bounds_is_removed(disk: Disk) -> None:
    async def run() -> None:
        disk.write(make_notifications(30, 40, {7: [33]}))
        hub = disk.hub()
        hub.register([ALERTS])
        hub.accept(disk.write(make_notifications(0, 35, {7: [33]})))
        await hub.housekeep(0)
        assert notification_file_name(30, 40) in disk.files()
        hub.accept(disk.write(make_notifications(35, 50, {7: [36]})))
        await hub.housekeep(0)
        assert disk.files() == [notification_file_name(0, 35), notification_file_name(35, 50)]
        assert await received(hub) == [33, 36]
        await hub.close()

    asyncio.run(run())


@pytest.mark.parametrize("damage", ["torn", "altered", "empty", "unfinished"])
def test_a_damaged_file_is_removed_with_a_warning_and_its_range_matched_again(
    disk: Disk, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk.write(make_notifications(0, 10, {7: [1]}))
    disk.write(make_notifications(10, 20, {7: [12]}))
    path = disk.notifications / notification_file_name(10, 20)
    content = path.read_bytes()
    match damage:
        case "torn":
            path.write_bytes(content[:-7])
        case "altered":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "empty":
            path.write_bytes(b"")
        case "unfinished":
            path.rename(path.with_suffix(".123.tmp"))
    with caplog.at_level(logging.WARNING):
        assert reopened(disk) == (10, [1])
    assert "removing" in caplog.text
    assert disk.files() == [notification_file_name(0, 10)]


def test_an_offset_in_several_files_is_delivered_once(disk: Disk) -> None:
    disk.write(make_notifications(0, 10, {7: [1, 8]}))
    disk.write(make_notifications(5, 20, {7: [8, 12, 19]}))
    disk.write(make_notifications(6, 9, {7: [8]}))
    disk.write(make_notifications(19, 25, {7: [19, 21]}))
    assert reopened(disk) == (25, [1, 8, 12, 19, 21])
    assert notification_file_name(6, 9) not in disk.files()

    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        hub.accept(disk.write(make_notifications(3, 8, {7: [7]})))  # known: of no use
        hub.accept(disk.write(make_notifications(20, 30, {7: [21, 29]})))
        await hub.housekeep(0)
        assert await received(hub) == [1, 8, 12, 19, 21, 29]
        assert notification_file_name(3, 8) not in disk.files()
        await hub.close()

    asyncio.run(run())
    assert reopened(disk) == (30, [1, 8, 12, 19, 21, 29])


def test_many_small_files_are_merged_into_one_with_the_same_content(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS, registration(3, "others")])
        for offset in range(70):
            hub.accept(
                disk.write(make_notifications(offset, offset + 1, {7: [offset], offset % 3 + 2: [offset]}))
            )
        await hub.acknowledge("alerts", 9)
        await hub.housekeep(0)
        assert disk.files() == [notification_file_name(0, 70)]
        assert await received(hub) == list(range(10, 70))
        assert await received(hub, "others", 3) == list(range(1, 70, 3))
        hub.accept(disk.write(make_notifications(70, 72, {7: [71]})))
        await hub.close()

    asyncio.run(run())
    assert reopened(disk) == (72, [*range(10, 70), 71])


def test_a_crash_between_writing_a_merged_file_and_deleting_its_inputs_changes_nothing(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for offset in range(70):
            hub.accept(disk.write(make_notifications(offset, offset + 1, {7: [offset]})))
        with monkeypatch.context() as patch:
            patch.setattr(delivery_files.NotificationFiles, "delete", lambda self, names: None)
            await hub.housekeep(0)
        assert len(disk.files()) == 71
        await hub.close()

    asyncio.run(run())
    assert reopened(disk) == (70, list(range(70)))
    assert disk.files() == [notification_file_name(0, 70)]


def test_a_merge_that_the_disk_refuses_is_put_off(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: delivery_files.NotificationFiles, content: Notifications) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for offset in range(70):
            hub.accept(disk.write(make_notifications(offset, offset + 1, {7: [offset]})))
        with monkeypatch.context() as patch:
            patch.setattr(delivery_files.NotificationFiles, "store", refuse)
            await hub.housekeep(0)
        assert len(disk.files()) == 70
        assert await received(hub) == list(range(70))
        await hub.housekeep(0)
        assert disk.files() == [notification_file_name(0, 70)]
        await hub.close()

    asyncio.run(run())


def test_files_that_nobody_needs_are_deleted_but_the_newest_stays(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS, registration(8, "others")])
        for start in range(0, 50, 10):
            rows = {7: [start], 8: [start + 1], 9: [start + 2]}
            hub.accept(disk.write(make_notifications(start, start + 10, rows)))
        await hub.acknowledge("alerts", 40)
        await hub.acknowledge("others", 21)
        assert hub.needed_from() == 31
        await hub.housekeep(2 * SECOND_US)  # young files are kept: a registration may be on its way
        assert len(disk.files()) == 5
        await hub.housekeep(4 * SECOND_US)
        assert disk.files() == [notification_file_name(30, 40), notification_file_name(40, 50)]
        hub.register([removed(registration(8, "others"), 50)])
        assert hub.needed_from() == 50
        await hub.housekeep(6 * SECOND_US)
        assert disk.files() == [notification_file_name(40, 50)]
        await hub.close()

    asyncio.run(run())
    assert reopened(disk) == (50, [])


def test_a_file_lost_below_the_base_is_not_missed_and_one_above_it_is(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for start in range(0, 50, 10):
            hub.accept(disk.write(make_notifications(start, start + 10, {7: [start]})))
        await hub.acknowledge("alerts", 10)
        await hub.housekeep(2 * SECOND_US)
        await hub.housekeep(4 * SECOND_US)
        assert disk.files()[0] == notification_file_name(20, 30)
        await hub.close()

    asyncio.run(run())
    disk.write(make_notifications(0, 10, {7: [0]}))  # as if its deletion had not reached the disk
    assert reopened(disk) == (50, [20, 30, 40])
    assert disk.files()[0] == notification_file_name(20, 30)
    (disk.notifications / notification_file_name(20, 30)).unlink()
    assert reopened(disk) == (20, [])


def test_rows_that_nobody_wants_any_more_are_left_out_when_files_are_merged(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS, registration(8, "others")])
        for offset in range(70):
            rows = {7: [offset], 8: [offset], 9: [offset]}
            hub.accept(disk.write(make_notifications(offset, offset + 1, rows)))
        await hub.acknowledge("others", 69)
        hub.accept(disk.write(make_notifications(70, 71, {8: [70]})))
        await hub.acknowledge("alerts", 3)
        # Merged while young: complete. Merged again when it has settled: only what is wanted.
        await hub.housekeep(0)
        (merged,) = hub.mailboxes.ranges
        assert set(rows_by_number(merged.notifications)) == {7, 8, 9}
        for offset in range(71, 140):
            hub.accept(disk.write(make_notifications(offset, offset + 1, {9: [offset]})))
        await hub.acknowledge("others", 70)
        # Two passes, more than the grace time apart, before the files are merged.
        hub.accept(disk.write(make_notifications(140, 150, {})))
        assert isinstance(hub._files, FileKeeper)
        hub._files.settle(2 * SECOND_US)
        hub._files.settle(4 * SECOND_US)
        await hub.housekeep(4 * SECOND_US)
        (merged,) = hub.mailboxes.ranges
        assert rows_by_number(merged.notifications) == {7: list(range(70))}
        assert await received(hub) == list(range(4, 70))
        await hub.close()

    disk.publish(50)
    asyncio.run(run())
    assert reopened(disk) == (150, list(range(4, 70)))


def test_the_frontier_passes_over_what_the_log_has_let_go(tmp_path: Path) -> None:
    with site_disk(tmp_path, LogSettings(segment_bytes=1024)) as disk:
        for _ in range(20):
            disk.publish(1)
        disk.log.trim(15)
        first = disk.log.first_offset
        assert 5 < first <= 15
        assert reopened(disk) == (first, [])
        disk.write(make_notifications(first - 2, 17, {7: [16]}))  # what came before it is lost
        assert reopened(disk) == (17, [16])
        disk.write(make_notifications(18, 20, {7: [19]}))
        assert reopened(disk) == (17, [16])


def test_events_of_the_log_that_cannot_be_read_do_not_stop_a_mailbox(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        for number in range(100, 103):
            disk.publish(1)
            assert disk.log.next_offset == number + 1
        damaged = max((disk.path / "log").glob("*.log"))
        content = damaged.read_bytes()
        at = content.index(b'{"n": 101}')
        damaged.write_bytes(content[:at] + b"?" + content[at + 1 :])
        for _ in range(100):
            disk.publish(1)  # so that the log does not have the damaged part in memory
        hub = disk.hub()
        hub.register([ALERTS])
        hub.accept(disk.write(make_notifications(0, 103, {7: [99, 100, 101, 102]})))
        items = await (await hub.open_session(ALERTS)).receive(10, 0)
        found = [item.offset for item in items if isinstance(item, Delivery)]
        assert 99 in found
        assert 101 not in found
        gaps = [item for item in items if isinstance(item, DeliveryGap)]
        assert sum(gap.dropped or 0 for gap in gaps) + len(found) == 4
        assert all(gap.reason == "unavailable" for gap in gaps)
        await hub.close()

    asyncio.run(run())


def test_damaged_cursors_are_reported_with_the_way_back(disk: Disk) -> None:
    reopened(disk)
    path = disk.path / "delivery" / "cursors.db"
    path.write_bytes(b"this is not a database" * 100)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with pytest.raises(StorageCorrupt, match="Restore it from a copy"):
        disk.hub()


def test_missing_cursors_are_named_and_mailboxes_delivered_again(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def acknowledge() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        hub.accept(disk.write(make_notifications(0, 10, {7: [1, 5]})))
        await hub.acknowledge("alerts", 1)
        await hub.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(acknowledge())
        assert reopened(disk) == (10, [5])
    assert caplog.text == ""
    for path in (disk.path / "delivery").glob("cursors.db*"):
        path.unlink()
    with caplog.at_level(logging.WARNING):
        assert reopened(disk) == (10, [1, 5])
    assert "cursors.db is missing" in caplog.text


def test_an_acknowledgement_that_cannot_be_stored_is_not_confirmed(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        hub.accept(disk.write(make_notifications(0, 2, {7: [0, 1]})))
        other = sqlite3.connect(disk.path / "delivery" / "cursors.db", isolation_level=None, timeout=0)
        other.execute("DROP TABLE mailboxes")
        with pytest.raises(StorageError):
            await hub.acknowledge("alerts", 1)
        assert hub.pending("alerts") == 2
        other.close()
        await hub.close()

    asyncio.run(run())


def test_what_has_no_file_yet_is_matched_again_after_a_crash(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([registration(7)])
        disk.publish(6)
        hub.accept(make_notifications(0, 2, {7: [0]}), stored=False)
        hub.accept(make_notifications(2, 4, {7: [2, 3]}), stored=False)
        assert (hub.frontier, hub.stored_frontier) == (4, 0)
        assert disk.files() == []
        await hub.housekeep(SECOND_US)
        assert (hub.frontier, hub.stored_frontier) == (4, 4)
        assert disk.files() == [notification_file_name(0, 4)]
        hub.accept(make_notifications(4, 6, {7: [5]}), stored=False)
        assert (hub.frontier, hub.stored_frontier) == (6, 4)

        # The process ends here, without a word; the next one goes on where files reach.
        again = disk.hub()
        again.register([registration(7)])
        assert again.frontier == again.stored_frontier == 4
        assert again.pending("alerts") == 3
        again.accept(make_notifications(4, 6, {7: [5]}), stored=False)
        session = await again.open_session(registration(7))
        assert [item.offset for item in await session.receive(10, 0) if isinstance(item, Delivery)] == [
            0,
            2,
            3,
            5,
        ]
        await again.close()
        await hub.close()

    asyncio.run(run())


def test_memory_is_bounded_while_the_disk_takes_no_files(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culver.delivery.hub._MOST_UNSTORED_BYTES", 1_000)

    async def run() -> None:
        hub = disk.hub()
        hub.register([registration(7)])
        disk.publish(1_000)
        refused = None
        while refused is None and hub.frontier < 1_000:
            following = make_notifications(hub.frontier, hub.frontier + 1, {7: [hub.frontier]})
            try:
                hub.accept(following, stored=False)
            except StorageError as exc:
                refused = exc
        assert refused is not None
        assert 0 < hub.frontier < 100
        await hub.housekeep(SECOND_US)
        start = hub.frontier
        hub.accept(make_notifications(start, start + 1, {7: [start]}), stored=False)
        assert hub.frontier == start + 1
        await hub.close()

    asyncio.run(run())
