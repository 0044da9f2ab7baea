"""Many subscriptions over one connection: an event comes once, each subscription gets what it would get alone."""

import asyncio
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from culver.config import DeliverySettings
from culver.delivery.hub import Hub
from culver.delivery.merged import lane as lanes
from culver.delivery.merged.merged_items import MergedEnd, MergedEvent, MergedGap, MergedItem
from culver.delivery.merged.merged_session import MergedSession
from culver.delivery.merged.selection import Selection
from culver.errors import InvalidRequest, NotFound, Unavailable
from support.notifications import Disk, block, live, registration, removed, site_disk

QUOTES = Selection(set_name="quotes")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with site_disk(tmp_path) as made:
        yield made


def events(items: list[MergedItem]) -> list[tuple[int, list[str], dict[int, list[str]]]]:
    assert all(isinstance(item, MergedEvent) for item in items), items
    return [(item.offset, item.to, item.groups) for item in items if isinstance(item, MergedEvent)]


def test_an_event_comes_once_with_all_that_it_is_for(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        alerts, others, now = registration(7), registration(8, "others"), live(9)
        hub.register([alerts, others, now, block()])
        session = hub.open_merged()
        for each in (alerts, others, now):
            session.add(each)
        assert session.follow(3, QUOTES) == 40
        assert await session.receive(10, 0) == []
        disk.feed(hub, 0, 3, {7: [0, 2], 8: [0], 9: [2], 12: [0], 13: [0, 1]})
        items = await session.receive(10, 0)
        assert events(items) == [
            (0, ["alerts", "others"], {3: ["quotes.2", "quotes.3"]}),
            (1, [], {3: ["quotes.3"]}),
            (2, ["alerts", "live-1"], {}),
        ]
        assert isinstance(items[0], MergedEvent)
        assert items[0].payload == b'{"n": 0}'
        assert items[0].deliveries == 4
        await session.close()
        await hub.close()

    asyncio.run(run())


def test_what_waits_in_mailboxes_comes_first_and_joins_what_is_new(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        alerts = registration(7)
        hub.register([alerts, block()])
        disk.feed(hub, 0, 4, {7: [1, 3], 10: [0, 3], 11: [2]})
        session = hub.open_merged()
        session.follow(1, QUOTES)
        session.add(alerts)
        received = events(await session.receive(10, 0)) + events(await session.receive(10, 0))
        assert sorted(received, key=str) == sorted(
            [
                (0, [], {1: ["quotes.0"]}),
                (2, [], {1: ["quotes.1"]}),
                (3, [], {1: ["quotes.0"]}),
                (1, ["alerts"], {}),
                (3, ["alerts"], {}),
            ],
            key=str,
        )
        assert await session.receive(10, 0) == []
        disk.feed(hub, 4, 5, {7: [4], 10: [4]})
        assert events(await session.receive(10, 0)) == [(4, ["alerts"], {1: ["quotes.0"]})]
        await hub.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "selection",
    [
        QUOTES,
        Selection(prefix="quotes."),
        Selection(subscriptions=frozenset({"quotes.0", "quotes.1", "unknown"})),
    ],
)
def test_a_group_is_acknowledged_as_a_whole_and_for_good(disk: Disk, selection: Selection) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([block(), registration(7)])
        disk.feed(hub, 0, 6, {7: [0], 10: [0, 3, 5], 11: [1, 2, 4]})
        session = hub.open_merged()
        session.follow(1, selection)
        assert [offset for offset, _, _ in events(await session.receive(10, 0))] == [0, 1, 2, 3, 4, 5]
        await session.acknowledge_group(1, 3)
        assert [hub.pending(name) for name in ("quotes.0", "quotes.1", "quotes.2")] == [1, 1, 0]
        assert hub.needed_from() == 0  # of alerts, which is not in the group
        await hub.acknowledge("alerts", 0)
        assert hub.needed_from() == 4
        await hub.acknowledge("quotes.0", 5)
        await hub.close()

        hub = disk.hub()
        hub.register([block(), registration(7)])
        assert [hub.pending(name) for name in ("quotes.0", "quotes.1", "quotes.2")] == [0, 1, 0]
        session = hub.open_merged()
        session.follow(1, selection)
        assert events(await session.receive(10, 0)) == [(4, [], {1: ["quotes.1"]})]
        with pytest.raises(InvalidRequest) as caught:
            await session.acknowledge_group(1, 6)
        assert caught.value.field == "offset"
        with pytest.raises(NotFound):
            await session.acknowledge_group(2, 1)
        await hub.close()

    asyncio.run(run())


def test_acknowledging_a_prefix_writes_only_the_members_that_had_something(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([registration(number, f"al.{number}") for number in range(7, 40)])
        disk.feed(hub, 0, 6, {7: [0, 5], 9: [3], 12: [5]})
        session = hub.open_merged()
        session.follow(1, Selection(prefix="al."))
        assert len(await session.receive(10, 0)) == 3
        await session.acknowledge_group(1, 3)
        await hub.close()
        with closing(sqlite3.connect(disk.path / "delivery" / "cursors.db")) as database:
            assert dict(database.execute("SELECT number, cursor FROM mailboxes")) == {7: 3, 9: 3}

    asyncio.run(run())


def test_a_group_beyond_limits_is_read_in_smaller_pieces(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_MOST_PAIRS", 5)

    async def run() -> None:
        hub = disk.hub()
        hub.register([block()])
        disk.feed(hub, 0, 9, {10: [0, 1, 2], 11: [0, 1, 2, 8], **{number: [2] for number in range(12, 24)}})
        session = hub.open_merged()
        session.follow(1, QUOTES)
        received = []
        while items := events(await session.receive(10, 0)):
            assert len(items) == 1 or sum(len(groups[1]) for _, _, groups in items) <= 5
            received += [(offset, len(groups[1])) for offset, _, groups in items]
        assert received == [(0, 2), (1, 2), (2, 14), (8, 1)]
        await hub.close()

    asyncio.run(run())


def test_members_that_join_and_leave_are_followed_and_left(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([block(count=5)])
        session = hub.open_merged()
        session.follow(1, QUOTES)
        session.follow(2, Selection(prefix="al"))
        assert await session.receive(10, 0) == []
        more = replace(block(number=100, first=5, count=3), since=2)
        alerts = registration(50, since=2)
        disk.feed(hub, 0, 2, {10: [0]})
        hub.register([more, alerts])
        disk.feed(hub, 2, 4, {10: [2], 101: [2], 50: [3]})
        assert events(await session.receive(10, 0)) == [
            (0, [], {1: ["quotes.0"]}),
            (2, [], {1: ["quotes.0", "quotes.6"]}),
            (3, [], {2: ["alerts"]}),
        ]
        hub.register([removed(alerts, 4), replace(more, until=4)])
        disk.feed(hub, 4, 5, {10: [4], 101: [4]})
        assert events(await session.receive(10, 0)) == [(4, [], {1: ["quotes.0"]})]
        hub.register([replace(block(count=5), until=5)])
        assert await session.receive(10, 0) == [MergedEnd(group=1)]
        await hub.close()

    asyncio.run(run())


def test_members_that_join_behind_the_group_get_what_is_theirs(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([block(count=5)])
        session = hub.open_merged()
        session.follow(1, QUOTES)
        assert await session.receive(10, 0) == []
        disk.feed(hub, 0, 4, {10: [0, 3], 101: [2, 3]})
        assert events(await session.receive(10, 0)) == [
            (0, [], {1: ["quotes.0"]}),
            (3, [], {1: ["quotes.0"]}),
        ]
        hub.register([replace(block(number=100, first=5, count=3), since=2)])
        await session.acknowledge_group(1, 3)  # by a client that has not heard of the new member
        assert [hub.pending(name) for name in ("quotes.0", "quotes.6")] == [1, 2]
        assert events(await session.receive(10, 0)) == [
            (2, [], {1: ["quotes.6"]}),
            (3, [], {1: ["quotes.0", "quotes.6"]}),
        ]
        await session.acknowledge_group(1, 3)
        assert [hub.pending(name) for name in ("quotes.0", "quotes.6")] == [0, 0]
        await hub.close()

    asyncio.run(run())


def test_full_queue_is_a_gap_for_live_ones_and_nothing_for_durable_ones(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub(DeliverySettings(live_buffer=4))
        alerts, now = registration(7), live(9)
        hub.register([alerts, now])
        session = hub.open_merged()
        session.add(alerts)
        session.add(now)
        assert await session.receive(10, 0) == []
        for start in range(0, 10, 2):
            disk.feed(hub, start, start + 2, {7: [start, start + 1], 9: [start + 1]})
        received: dict[str, list[int]] = {"alerts": [], "live-1": []}
        gaps = []
        while items := await session.receive(3, 0):
            for item in items:
                if isinstance(item, MergedGap):
                    gaps.append(item)
                elif isinstance(item, MergedEvent):
                    for name in item.to:
                        received[name].append(item.offset)
        assert received == {"alerts": list(range(10)), "live-1": [5, 7, 9]}
        assert gaps == [MergedGap(1, 4, 2, "overflow", ["live-1"], {})]
        await hub.close()

    asyncio.run(run())


def test_gaps_of_mailboxes_are_announced_once_and_name_their_subscriptions(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        alerts = registration(7, mailbox_count=1)
        hub.register([alerts, block(mailbox_count=1)])
        disk.feed(hub, 0, 4, {7: [0, 1, 2], 10: [1, 3], 11: [3]})
        await hub.housekeep(0)
        session = hub.open_merged()
        session.add(alerts)
        session.follow(5, QUOTES)
        assert await session.receive(10, 0) == [
            MergedGap(0, 2, 2, "overflow", ["alerts"], {}),
            MergedGap(1, 2, 1, "overflow", [], {5: ["quotes.0"]}),
        ]
        received = events(await session.receive(10, 0)) + events(await session.receive(10, 0))
        assert sorted(received) == [(2, ["alerts"], {}), (3, [], {5: ["quotes.0", "quotes.1"]})]
        await hub.housekeep(0)
        assert await session.receive(10, 0) == []
        await session.acknowledge_group(5, 3)
        await session.acknowledge("alerts", 2)
        await session.close()
        again = hub.open_merged()
        again.add(alerts)
        again.follow(5, QUOTES)
        assert await again.receive(10, 0) == []
        await hub.close()

    asyncio.run(run())


def test_ends_are_told_and_a_stopping_site_raises(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        alerts, now = registration(7), live(9)
        hub.register([alerts, now])
        session = hub.open_merged()
        session.add(alerts)
        session.add(now)
        waiting = asyncio.create_task(session.receive(10, None))
        await asyncio.sleep(0)
        hub.register([removed(alerts, 0)])
        assert await waiting == [MergedEnd(subscription="alerts")]
        session.remove("live-1")
        session.remove("live-1")
        disk.feed(hub, 0, 1, {9: [0]})
        assert await session.receive(10, 0) == []
        waiting = asyncio.create_task(session.receive(10, None))
        await asyncio.sleep(0)
        await hub.close()
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            hub.open_merged()

    asyncio.run(run())


@pytest.mark.parametrize("reads_first", [False, True])
def test_what_was_acknowledged_before_a_crash_does_not_come_again(disk: Disk, reads_first: bool) -> None:
    """Notifications that were in memory only are gone with a process; the cursors are not."""

    async def run() -> None:
        hub = disk.hub()
        alerts = registration(7)
        hub.register([alerts, block()])
        disk.feed(hub, 0, 2, {7: [0], 10: [1]})
        disk.publish(6)
        await hub.close()

        hub = disk.hub()
        hub.register([alerts, block()])
        session = hub.open_merged()
        session.add(alerts)
        session.follow(1, QUOTES)
        if reads_first:
            assert len([await session.receive(10, 0) for _ in range(3)]) == 3
        # What the client got before the crash lies beyond the frontier.
        await session.acknowledge_group(1, 4)
        await session.acknowledge("alerts", 3)
        disk.feed(hub, 2, 6, {7: [2, 3, 4], 10: [2, 5], 11: [3, 4, 5], 12: [4]})
        received = [each for _ in range(4) for each in events(await session.receive(10, 0))]
        expected = [(4, ["alerts"], {}), (5, [], {1: ["quotes.0", "quotes.1"]})]
        assert [each for each in received if each[0] > 1] == expected
        await hub.close()

    asyncio.run(run())


def test_answers_of_the_log_may_end_between_two_ranges(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.payloads._answer_bytes = 1  # every read answers for one event
        alerts, now = registration(7), live(9)
        hub.register([alerts, now, block()])
        session = hub.open_merged()
        session.add(alerts)
        session.add(now)
        session.follow(1, QUOTES)
        assert await session.receive(10, 0) == []
        for offset in range(4):
            disk.feed(hub, offset, offset + 1, {7: [offset], 9: [offset], 10: [offset]})
        received = [each for _ in range(4) for each in events(await session.receive(10, 0))]
        assert received == [(n, ["alerts", "live-1"], {1: ["quotes.0"]}) for n in range(4)]
        await hub.close()

    asyncio.run(run())


def test_members_that_leave_while_their_events_wait_get_no_more(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        alerts, alarms = registration(7, "al.1"), registration(8, "al.2")
        hub.register([alerts, alarms, block(count=3), replace(block(50, count=3), name="al-set")])
        session = hub.open_merged()
        session.follow(1, Selection(prefix="al"))
        assert await session.receive(10, 0) == []
        disk.feed(hub, 0, 3, {7: [0, 1], 8: [1], 50: [1], 10: [2]})
        hub.register([removed(alerts, 3), replace(block(50, count=3), name="al-set", until=3)])
        assert events(await session.receive(10, 0)) == [(1, [], {1: ["al.2"]})]
        await hub.close()

    asyncio.run(run())


def test_members_that_join_during_a_read_of_the_log_get_everything(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([block(count=5)])
        disk.feed(hub, 0, 4, {10: [0, 3], 101: [1, 2, 3]})
        session = hub.open_merged()
        session.follow(1, QUOTES)
        read = hub.payloads.read

        async def slow(offsets: Sequence[int]) -> list[bytes | None]:
            """Other tasks run meanwhile, as they do in a read that waits for the disk."""
            hub.payloads.read = read  # type: ignore[method-assign]
            hub.register([replace(block(number=100, first=5, count=3), since=1)])
            return await read(offsets)

        hub.payloads.read = slow  # type: ignore[method-assign]
        assert events(await session.receive(10, 0)) == [
            (0, [], {1: ["quotes.0"]}),
            (1, [], {1: ["quotes.6"]}),
            (2, [], {1: ["quotes.6"]}),
            (3, [], {1: ["quotes.0", "quotes.6"]}),
        ]
        await hub.close()

    asyncio.run(run())


def test_groups_answer_with_as_many_items_as_are_wanted(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([block()])
        disk.feed(hub, 0, 60, {10: list(range(40, 60))})
        session = hub.open_merged()
        session.follow(1, QUOTES)
        received = []
        while items := events(await session.receive(3, 0)):
            assert len(items) <= 3
            received += [offset for offset, _, _ in items]
        assert received == list(range(40, 60))
        await hub.close()

    asyncio.run(run())


class Crowd:
    """A hub with several connections that come, go, read, acknowledge and are restarted at random. The model keeps
    which offsets each subscription has, and what each attachment must still get."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = disk
        self.settings = DeliverySettings(live_buffer=self.rng.choice([3, 8, 1000]))
        self.block = block(count=6)
        self.singles = [registration(number, f"alerts.x{number}") for number in range(1, 5)]
        self.names = {each.number: each.id for each in self.singles}
        self.names |= {10 + place: f"quotes.{place}" for place in range(6)}
        self.matched: dict[str, list[int]] = {name: [] for name in self.names.values()}
        self.acked = dict.fromkeys(self.names.values(), -1)
        self.end = 0
        self.connections: list[MergedSession] = []
        # (connection, lane) -> what each subscription got there, and the acknowledged position it began at
        self.got: dict[tuple[int, str | int], dict[str, list[int]]] = {}
        self.began: dict[tuple[int, str | int], dict[str, int]] = {}
        self.hub = self.open()

    def open(self) -> Hub:
        hub = self.disk.hub(self.settings)
        hub.register([*self.singles, self.block])
        return hub

    def feed(self) -> None:
        count = self.rng.choice([1, 1, 2, 9])
        rows: dict[int, list[int]] = {}
        for number, name in self.names.items():
            rows[number] = [o for o in range(self.end, self.end + count) if self.rng.random() < 0.4]
            self.matched[name] += rows[number]
        self.disk.feed(self.hub, self.end, self.end + count, rows)
        self.end += count

    def connect(self) -> None:
        session, place = self.hub.open_merged(), len(self.connections)
        self.connections.append(session)
        for each in self.rng.sample(self.singles, 2):
            session.add(each)
            self.begin(place, each.id, [each.id])
        selection = self.rng.choice(
            [
                QUOTES,
                Selection(prefix="quotes."),
                Selection(subscriptions=frozenset({"quotes.1", "alerts.x2"})),
            ]
        )
        session.follow(1, selection)
        self.begin(place, 1, [name for name in self.matched if selection.includes(name)])

    def begin(self, place: int, lane: str | int, names: list[str]) -> None:
        self.got[place, lane] = {name: [] for name in names}
        self.began[place, lane] = {name: self.acked[name] for name in names}

    async def read(self, place: int, limit: int) -> bool:
        items = await self.connections[place].receive(limit, 0)
        for item in items:
            assert isinstance(item, MergedEvent)
            assert item.payload == b'{"n": %d}' % item.offset
            for name in item.to:
                self.got[place, name][name].append(item.offset)
            for group, names in item.groups.items():
                for name in names:
                    self.got[place, group][name].append(item.offset)
        return bool(items)

    async def acknowledge(self, place: int) -> None:
        lane = self.rng.choice([lane for at, lane in self.got if at == place])
        seen = [offset for offsets in self.got[place, lane].values() for offset in offsets]
        if not seen:
            return
        offset = self.rng.choice(seen)
        # A cumulative acknowledgement is right for a lane in order: it has got everything up to there.
        if isinstance(lane, int):
            await self.connections[place].acknowledge_group(lane, offset)
        else:
            await self.connections[place].acknowledge(lane, offset)
        for name in self.got[place, lane]:
            self.acked[name] = max(self.acked[name], offset)

    async def restart(self) -> None:
        for place in range(len(self.connections)):
            await self.connections[place].close()
        self.connections.clear()
        self.got.clear()
        self.began.clear()
        await self.hub.close()
        self.hub = self.open()

    async def check(self) -> None:
        for place in range(len(self.connections)):
            while await self.read(place, 5):
                pass
        for (place, lane), names in self.got.items():
            for name, offsets in names.items():
                expected = [o for o in self.matched[name] if o > self.began[place, lane][name]]
                assert offsets == sorted(set(offsets)), (lane, name)
                # What somebody else acknowledged meanwhile need not come.
                missing = set(expected) - set(offsets)
                assert all(offset <= self.acked[name] for offset in missing), (lane, name, missing)
                assert set(offsets) <= set(expected), (lane, name)
        for name, cursor in self.acked.items():
            assert self.hub.pending(name) == sum(offset > cursor for offset in self.matched[name]), name


@pytest.mark.parametrize("seed", range(40))
def test_each_subscription_gets_what_it_would_get_alone(disk: Disk, seed: int) -> None:
    async def run() -> None:
        crowd = Crowd(disk, seed)
        rng = crowd.rng
        for _ in range(60):
            match rng.choice(["feed", "feed", "feed", "connect", "read", "read", "acknowledge", "restart"]):
                case "feed":
                    crowd.feed()
                case "connect" if len(crowd.connections) < 3:
                    crowd.connect()
                case "read" if crowd.connections:
                    await crowd.read(rng.randrange(len(crowd.connections)), rng.choice([1, 3, 100]))
                case "acknowledge" if crowd.connections:
                    await crowd.acknowledge(rng.randrange(len(crowd.connections)))
                case "restart" if rng.random() < 0.3:
                    await crowd.restart()
        await crowd.check()
        await crowd.hub.close()

    asyncio.run(run())
