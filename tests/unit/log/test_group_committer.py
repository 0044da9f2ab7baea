"""Group commit: what publishers are promised, and what it costs."""

import asyncio
import errno
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from culver.config import LogSettings
from culver.errors import StorageError, StorageFull, Unavailable
from culver.log.files import FileLog, group_committer
from culver.log.files.disk_thread import DiskThread, StagedWrite, WriteFailure
from culver.log.files.group_committer import GroupCommitter
from culver.log.files.log_segment import RecordBody, list_segments
from culver.model.columns.arrow_message import Packed
from culver.model.columns.event_batch import pack
from culver.model.event import Event
from support.logs import Listener, event, numbers


class GatedLog(FileLog):
    """Counts appends, which all wait in a thread; can hold them up, and can have a full disk."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, LogSettings())
        self.gate = threading.Semaphore(10**6)
        self.entered = threading.Semaphore(0)
        self.groups: list[int] = []
        self.threads: set[int] = set()
        self.full = False

    def hold(self) -> None:
        self.gate = threading.Semaphore(0)

    async def begun(self) -> None:
        """Wait until the next commit has begun."""
        await asyncio.to_thread(self.entered.acquire)

    def stage(self, group: Sequence[RecordBody]) -> StagedWrite | None:
        return None

    def append_group(self, group: Sequence[RecordBody]) -> int:
        self.entered.release()
        self.gate.acquire()
        self.threads.add(threading.get_ident())
        if self.full:
            raise StorageFull("full", path="here")
        self.groups.append(sum(body.events for body in group))
        return super().append_group(group)


def committer(
    log: FileLog,
    settings: LogSettings | None = None,
    listener: Listener | None = None,
) -> GroupCommitter:
    return GroupCommitter(log, settings or LogSettings(), listener or Listener(), lambda: 1_000)


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_requests_that_arrive_during_a_commit_share_the_next_one(tmp_path: Path) -> None:
    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as publisher:
                log.hold()
                first = asyncio.ensure_future(publisher.publish([event(0)]))
                await log.begun()
                others = [asyncio.ensure_future(publisher.publish([event(n)])) for n in range(1, 501)]
                await settle()
                log.gate.release(2)
                assert await first == (0, 1)
                assert await asyncio.gather(*others) == [(n, n + 1) for n in range(1, 501)]
            assert log.groups == [1, 500]
            assert numbers(log, 0, 501) == list(range(501))

    asyncio.run(main())


def test_many_publishers_need_few_commits_and_one_thread_off_the_loop(tmp_path: Path) -> None:
    async def publish(publisher: GroupCommitter) -> list[tuple[int, int]]:
        return [await publisher.publish([event(0)]) for _ in range(20)]

    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as publisher:
                answers = await asyncio.gather(*[publish(publisher) for _ in range(100)])
            assert sorted(itertools.chain(*answers)) == [(n, n + 1) for n in range(2_000)]
            assert len(log.groups) < 400
            assert len(log.threads) == 1
            assert threading.get_ident() not in log.threads

    asyncio.run(main())


def test_dense_publishers_share_commits_that_begin_apart_and_a_lone_one_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_committer, "_SHORTEST_PACE_SECONDS", 3600.0)
    monkeypatch.setattr(group_committer, "_LONGEST_PACE_SECONDS", 3600.0)

    async def run() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as committing:
                for number in range(5):  # one after the other: nothing waits when a commit ends
                    await committing.publish([event(number)])
                log.hold()
                first = asyncio.ensure_future(committing.publish([event(5)]))
                await log.begun()
                second = asyncio.ensure_future(committing.publish([event(6)]))
                await settle()
                log.gate.release(10)
                await first
                third = asyncio.ensure_future(committing.publish([event(7)]))
                await settle()
                assert not second.done()
                committing._go_on()  # as the timer does
                assert (await second, await third) == ((6, 7), (7, 8))
            assert log.groups == [1, 1, 1, 1, 1, 1, 2]

    asyncio.run(run())


def test_pause_whose_time_is_up_ends_with_the_next_publication_though_its_timer_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_committer, "_SHORTEST_PACE_SECONDS", 3600.0)
    monkeypatch.setattr(group_committer, "_LONGEST_PACE_SECONDS", 3600.0)

    async def run() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as committing:
                log.hold()
                first = asyncio.ensure_future(committing.publish([event(0)]))
                await log.begun()
                second = asyncio.ensure_future(committing.publish([event(1)]))
                log.gate.release(10)
                await first
                await settle()
                assert not second.done()
                committing._begun -= 3600.0  # an hour passes; the timer does not notice
                assert await committing.publish([event(2)]) == (2, 3)
                assert await second == (1, 2)
            assert log.groups == [1, 2]

    asyncio.run(run())


def test_what_is_done_once_hardly_changes_the_pace_and_what_is_done_always_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked = 0.0
    monkeypatch.setattr(group_committer, "thread_time", lambda: worked)

    async def main() -> None:
        nonlocal worked
        with GatedLog(tmp_path) as log:
            async with committer(log) as committing:
                await committing.publish([event(0)])
                worked += 0.004
                await committing.publish([event(1)])
                assert committing._pace_seconds == group_committer._SHORTEST_PACE_SECONDS
                for number in range(2, 100):
                    worked += 0.002
                    await committing.publish([event(number)])
                assert committing._pace_seconds == pytest.approx(0.003, rel=0.01)

    asyncio.run(main())


def test_closing_does_not_wait_for_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_committer, "_SHORTEST_PACE_SECONDS", 3600.0)
    monkeypatch.setattr(group_committer, "_LONGEST_PACE_SECONDS", 3600.0)

    async def run() -> None:
        with GatedLog(tmp_path) as log:
            committing = committer(log)
            async with committing:
                log.hold()
                first = asyncio.ensure_future(committing.publish([event(0)]))
                await log.begun()
                second = asyncio.ensure_future(committing.publish([event(1)]))
                await settle()
                log.gate.release(10)
                await first
            assert await second == (1, 2)

    asyncio.run(run())


def test_events_of_many_shapes_keep_their_order_and_offsets(tmp_path: Path) -> None:
    """Such a group is encoded as several batches."""

    def wide(n: int) -> Event:
        return Event({}, {"n": n, **{f"a{n}_{i}": i for i in range(200)}}, b"{}")

    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as publisher:
                log.hold()
                tasks = [
                    asyncio.ensure_future(publisher.publish([wide(n), wide(n + 1)])) for n in range(0, 40, 2)
                ]
                await settle()
                log.gate.release(len(tasks))
                assert await asyncio.gather(*tasks) == [(n, n + 2) for n in range(0, 40, 2)]
            assert numbers(log, 0, 40) == list(range(40))
            assert len(list(log.read(0, 40))) > 2 * len(log.groups)

    asyncio.run(main())


def test_listener_hears_where_few_events_will_be_while_the_disk_is_at_work(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[tuple[int, list[int]]] = []

        def committing(first: int, batches: Sequence[pa.RecordBatch]) -> None:
            told.append((first, [batch.num_rows for batch in batches]))

        with GatedLog(tmp_path) as log:
            async with committer(log, listener=Listener(committing=committing)) as publisher:
                log.hold()
                waiting = asyncio.ensure_future(publisher.publish([event(0), event(1)]))
                await log.begun()
                assert told == [(0, [2])]
                assert not waiting.done()
                log.full = True
                log.gate.release()
                assert [type(e) for e in await asyncio.gather(waiting, return_exceptions=True)] == [
                    StorageFull
                ]
                log.full = False
                log.gate.release(10)
                await publisher.publish([event(0)])
                await publisher.publish([event(n) for n in range(1_000)])
                await publisher.publish([event(0)])
        assert told == [(0, [2]), (0, [1]), (1, []), (1_001, [1])]

    asyncio.run(main())


def test_failing_listener_does_not_fail_the_publisher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(first: int, events: Sequence[Event]) -> None:
        raise RuntimeError("listener")

    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log, listener=Listener(fail)) as publisher:
                assert await publisher.publish([event(0)]) == (0, 1)
                assert await publisher.publish([event(1)]) == (1, 2)

    asyncio.run(main())
    assert "listener" in caplog.text


def test_one_commit_takes_a_bounded_number_of_events(tmp_path: Path) -> None:
    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as publisher:
                log.hold()
                tasks = [asyncio.ensure_future(publisher.publish([event(0)] * 6_000)) for _ in range(10)]
                await settle()
                log.gate.release(10)
                await asyncio.gather(*tasks)
        assert sum(log.groups) == 60_000
        assert max(log.groups) == 18_000

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [LogSettings(max_pending_events=10), LogSettings(max_pending_bytes=10 * len(event(0).payload))],
)
def test_publishers_beyond_the_bound_wait_and_are_served_in_order(
    tmp_path: Path, settings: LogSettings
) -> None:
    async def main() -> None:
        finished: list[int] = []

        async def publish(n: int) -> None:
            assert await publisher.publish([event(0)] * 3) == (3 * n, 3 * n + 3)
            finished.append(n)

        with GatedLog(tmp_path) as log:
            async with committer(log, settings) as publisher:
                log.hold()
                tasks = [asyncio.create_task(publish(n)) for n in range(20)]
                await settle()
                assert publisher._held_events == 9
                assert len(publisher._waiting) == 17
                log.gate.release(20)
                await asyncio.gather(*tasks)
        assert finished == list(range(20))
        assert max(log.groups) <= 9

    asyncio.run(main())


def test_request_larger_than_the_bounds_is_taken_alone_and_in_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log, LogSettings(max_pending_events=10)) as publisher:
                log.hold()
                tasks = [asyncio.ensure_future(publisher.publish([event(0)] * size)) for size in (4, 50, 4)]
                await settle()
                log.gate.release(3)
                assert await asyncio.gather(*tasks) == [(0, 4), (4, 54), (54, 58)]
            assert log.groups == [4, 50, 4]

    asyncio.run(main())


def test_full_disk_fails_every_request_of_the_group_and_the_next_succeeds(tmp_path: Path) -> None:
    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as publisher:
                log.hold()
                log.full = True
                tasks = [asyncio.ensure_future(publisher.publish([event(n)])) for n in range(10)]
                await settle()
                log.gate.release(2)
                errors = await asyncio.gather(*tasks, return_exceptions=True)
                assert [type(error) for error in errors] == [StorageFull] * 10
                assert len({id(error) for error in errors}) == 10
                assert all(isinstance(e, StorageFull) and e.details == {"path": "here"} for e in errors)
                assert log.next_offset == 0
                log.full = False
                log.gate.release(1)
                assert await publisher.publish([event(0)]) == (0, 1)

    asyncio.run(main())


def test_request_that_cannot_be_encoded_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def picky_pack(events: Sequence[Event], received_us: int) -> list[Packed]:
        if any(e.data["n"] == 666 for e in events):
            raise pa.ArrowInvalid("no such thing")
        return pack(events, received_us)

    monkeypatch.setattr("culver.log.files.group_committer.pack", picky_pack)

    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log) as publisher:
                log.hold()
                tasks = [asyncio.ensure_future(publisher.publish([event(n)])) for n in (0, 1, 666, 2)]
                await settle()
                log.gate.release(4)
                answers = await asyncio.gather(*tasks, return_exceptions=True)
                assert [answers[0], answers[1], answers[3]] == [(0, 1), (1, 2), (2, 3)]
                assert "no such thing" in str(answers[2])
            assert numbers(log, 0, 3) == [0, 1, 2]

    asyncio.run(main())


def test_cancelled_publisher_withdraws_its_request_and_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        with GatedLog(tmp_path) as log:
            async with committer(log, LogSettings(max_pending_events=6)) as publisher:
                log.hold()
                tasks = [asyncio.ensure_future(publisher.publish([event(0)]))]
                await log.begun()
                tasks += [asyncio.ensure_future(publisher.publish([event(n)])) for n in range(1, 10)]
                await settle()
                tasks[0].cancel()  # its commit has begun: it goes into the log all the same
                tasks[5].cancel()  # let in, waiting for the next commit
                tasks[8].cancel()  # waiting to be let in
                await settle()
                log.gate.release(10)
                answers = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = [n for n, answer in enumerate(answers) if isinstance(answer, asyncio.CancelledError)]
            assert cancelled == [0, 5, 8]
            kept = [0, 1, 2, 3, 4, 6, 7, 9]
            assert numbers(log, 0, 100) == kept
            assert [answers[n] for n in kept[1:]] == [(at, at + 1) for at in range(1, 8)]
            assert (publisher._held_events, publisher._held_bytes) == (0, 0)

    asyncio.run(main())


def test_closing_commits_what_is_pending_and_then_refuses(tmp_path: Path) -> None:
    async def main() -> None:
        with GatedLog(tmp_path) as log:
            publisher = committer(log, LogSettings(max_pending_events=5))
            with pytest.raises(Unavailable):
                await publisher.publish([event(0)])
            async with publisher:
                log.hold()
                tasks = [asyncio.ensure_future(publisher.publish([event(n)])) for n in range(20)]
                await settle()
                closing = asyncio.create_task(publisher.close())
                await settle()
                with pytest.raises(Unavailable):
                    await publisher.publish([event(99)])
                assert not closing.done()
                log.gate.release(20)
                await closing
                assert await asyncio.gather(*tasks) == [(n, n + 1) for n in range(20)]
            with pytest.raises(Unavailable):
                await publisher.publish([event(99)])
            assert numbers(log, 0, 100) == list(range(20))
        assert not any(thread.name == "culver-log" for thread in threading.enumerate())

    asyncio.run(main())


class StagedLog(FileLog):
    """Tells which groups were staged and which were appended in the thread."""

    def __init__(self, directory: Path, settings: LogSettings) -> None:
        super().__init__(directory, settings)
        self.staged: list[int] = []
        self.appended: list[int] = []

    def stage(self, group: Sequence[RecordBody]) -> StagedWrite | None:
        staged = super().stage(group)
        if staged is not None:
            self.staged.append(sum(body.events for body in group))
        return staged

    def append_group(self, group: Sequence[RecordBody]) -> int:
        self.appended.append(sum(body.events for body in group))
        return super().append_group(group)


def test_small_groups_are_staged_on_the_loop_and_others_appended_in_the_thread(tmp_path: Path) -> None:
    async def main() -> None:
        with StagedLog(tmp_path, LogSettings()) as log:
            async with committer(log) as publisher:
                assert await publisher.publish([event(0)]) == (0, 1)
                assert await publisher.publish([event(n) for n in range(1, 401)]) == (1, 401)
                assert await publisher.publish([event(401), event(402)]) == (401, 403)
            assert (log.staged, log.appended) == ([1, 2], [400])
            assert numbers(log, 0, 403) == list(range(403))
        with FileLog(tmp_path, LogSettings()) as again:
            assert numbers(again, 0, 403) == list(range(403))

    asyncio.run(main())


def test_group_that_needs_a_new_segment_is_appended_in_the_thread(tmp_path: Path) -> None:
    async def main() -> None:
        with StagedLog(tmp_path, LogSettings(segment_bytes=4096)) as log:
            async with committer(log) as publisher:
                for number in range(60):
                    assert await publisher.publish([event(number)]) == (number, number + 1)
            segments = len(list_segments(tmp_path))
            assert segments > 2
            assert (len(log.staged), len(log.appended)) == (61 - segments, segments - 1)
            assert numbers(log, 0, 60) == list(range(60))

    asyncio.run(main())


def test_small_group_that_cannot_be_written_fails_and_the_next_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = DiskThread.write

    def onto_a_full_device(
        disk: DiskThread, staged: StagedWrite, done: Callable[[WriteFailure | None], None]
    ) -> None:
        really(disk, staged._replace(descriptor=full), done)

    full = os.open("/dev/full", os.O_WRONLY)

    async def main() -> None:
        with FileLog(tmp_path, LogSettings()) as log:
            async with committer(log) as publisher:
                assert await publisher.publish([event(0)]) == (0, 1)
                with monkeypatch.context() as broken:
                    broken.setattr(DiskThread, "write", onto_a_full_device)
                    with pytest.raises(StorageFull):
                        await publisher.publish([event(666)])
                assert await publisher.publish([event(1)]) == (1, 2)
            assert numbers(log, 0, 2) == [0, 1]

    try:
        asyncio.run(main())
    finally:
        os.close(full)


def test_small_group_that_cannot_be_synced_is_hidden_and_the_log_refuses_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(disk: DiskThread, staged: StagedWrite, done: Callable[[WriteFailure | None], None]) -> None:
        os.pwrite(staged.descriptor, staged.data, staged.position)
        done(WriteFailure(OSError(errno.EIO, "gone"), True))

    async def main() -> None:
        with FileLog(tmp_path, LogSettings()) as log:
            async with committer(log) as publisher:
                assert await publisher.publish([event(0)]) == (0, 1)
                with monkeypatch.context() as broken:
                    broken.setattr(DiskThread, "write", fail)
                    with pytest.raises(StorageError, match="fdatasync failed"):
                        await publisher.publish([event(666)])
                with pytest.raises(StorageError, match="fdatasync failed"):
                    await publisher.publish([event(1)])
        with FileLog(tmp_path, LogSettings()) as again:
            assert numbers(again, 0, 9) == [0]

    asyncio.run(main())
