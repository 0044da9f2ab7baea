"""Events that were damaged before anybody could match them: every subscription announces them, and nobody gets one.

In most tests, the events 10 to 19 are lost, and 5 and 25 are intact.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from culver.config import DeliverySettings
from culver.delivery import told_once
from culver.delivery.deliveries import Delivery, DeliveryGap, Waiting
from culver.delivery.hub import Hub
from culver.delivery.live_buffer import LiveBuffer
from culver.delivery.ranges.lost_events import LostEvents
from culver.log import DamagedEvents
from culver.registry.registration import Registration
from support.notifications import SECOND_US, Disk, live, make_notifications, registration, site_disk

LOST = DamagedEvents("00000000000000000000.log", 40, 10, 20)
ALERTS = registration(7)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with site_disk(tmp_path) as made:
        made.publish(30)  # the log can be read: what was lost once stays lost
        yield made


def gap(start: int, end: int, subscription: str = "alerts") -> DeliveryGap:
    return DeliveryGap(subscription, start, end, None, "unavailable")


def feed(disk: Disk, hub: Hub, last: dict[int, int], intact: tuple[int, ...] = (7,)) -> None:
    """Registrations get the events 5 and 25, and have their last lost event at `last`."""
    disk.feed(hub, 0, 10, {number: [5] for number in intact})
    rows = {number: [offset] for number, offset in last.items()}
    hub.accept(disk.write(make_notifications(10, 20, rows, [0] * 10, damage=[LOST])))
    disk.feed(hub, 20, 30, {number: [25] for number in intact})


async def received(hub: Hub, of: Registration, limit: int = 100) -> list[int | DeliveryGap]:
    session = await hub.open_session(of)
    items: list[int | DeliveryGap] = []
    while some := await session.receive(limit, 0):
        items += [item.offset if isinstance(item, Delivery) else item for item in some]
    await session.close()
    return items


def play(*scenes: Callable[[], Awaitable[None]]) -> None:
    for scene in scenes:
        asyncio.run(_awaited(scene()))


async def _awaited(scene: Awaitable[None]) -> None:
    await scene


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_durable_and_live_subscriptions_announce_them_between_their_deliveries(
    disk: Disk, limit: int
) -> None:
    async def scene() -> None:
        hub = disk.hub()
        hub.register([ALERTS, live(9)])
        feed(disk, hub, {7: 19, 9: 19}, (7, 9))
        assert await received(hub, ALERTS, limit) == [5, gap(10, 20), 25]
        assert await received(hub, live(9), limit) == [5, gap(10, 20, "live-1"), 25]
        await hub.close()

    play(scene)


def test_they_are_announced_until_something_behind_them_is_acknowledged(disk: Disk) -> None:
    async def before() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        feed(disk, hub, {7: 19})
        await hub.acknowledge("alerts", 5)
        await hub.close()

    async def restarted() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for _ in range(2):
            assert await received(hub, ALERTS) == [gap(10, 20), 25]
        await hub.acknowledge("alerts", 14)
        assert await received(hub, ALERTS) == [gap(15, 20), 25], "what was delivered before a crash"
        await hub.acknowledge("alerts", 25)
        assert await received(hub, ALERTS) == []
        assert hub.pending("alerts") == 0
        await hub.close()

    async def at_last() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        assert await received(hub, ALERTS) == []
        await hub.close()

    play(before, restarted, at_last)


def test_a_subscription_announces_only_what_came_in_its_time(disk: Disk) -> None:
    replaced = [registration(1, "replaced", until=13), registration(2, "replaced", since=13, until=17)]
    newest = registration(3, "replaced", since=17)
    late, late_live = registration(4, "late", since=16), live(5, since=17)

    async def scene() -> None:
        hub = disk.hub()
        hub.register([*replaced, newest, late, late_live])
        feed(disk, hub, {1: 12, 2: 16, 3: 19, 4: 19, 5: 19}, ())
        assert await received(hub, newest) == [gap(10, 20, "replaced")]
        each = [gap(start, end, "replaced") for start, end in ((10, 13), (13, 17), (17, 20))]
        assert await received(hub, newest, 1) == each
        assert await received(hub, late) == [gap(16, 20, "late")]
        assert await received(hub, late_live) == [gap(17, 20, "live-1")]
        await hub.close()

    play(scene)


def test_neighbours_are_one_gap_and_others_are_told_apart(disk: Disk) -> None:
    async def scene() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for start, end, lost in ((0, 4, True), (4, 8, True), (8, 16, False), (16, 20, True)):
            damage = [LOST._replace(start=start, end=end)] if lost else []
            rows = {7: [end - 1]} if lost else {}
            hub.accept(disk.write(make_notifications(start, end, rows, damage=damage)))
        assert await received(hub, ALERTS) == [gap(0, 8), gap(16, 20)]
        await hub.close()

    play(scene)


def test_a_full_mailbox_drops_them_with_all_that_they_stand_for(disk: Disk) -> None:
    async def scene() -> None:
        hub = disk.hub(DeliverySettings(mailbox_count=1))
        hub.register([ALERTS, registration(8, "empty")])
        feed(disk, hub, {7: 19, 8: 19})
        disk.feed(hub, 30, 40, {8: [35]})
        await hub.housekeep(0)
        expected = [DeliveryGap("alerts", 5, 20, None, "overflow"), 25]
        assert await received(hub, ALERTS) == expected
        expected = [DeliveryGap("empty", 10, 20, None, "overflow"), 35]
        assert await received(hub, registration(8, "empty")) == expected
        await hub.acknowledge("alerts", 12)
        assert await received(hub, ALERTS) == [DeliveryGap("alerts", 13, 20, None, "overflow"), 25]
        await hub.close()

    play(scene)


def test_a_full_live_buffer_drops_them_with_all_that_they_stand_for() -> None:
    lost = LostEvents()
    lost.note(make_notifications(10, 20, {}, damage=[LOST]), 10)
    for since, start in ((0, 10), (14, 14)):
        buffer = LiveBuffer("live-1", 2, since, lost)
        buffer.push(np.array([19]))
        buffer.push(np.array([25, 26]))
        taken = buffer.take(10)
        assert taken == ([DeliveryGap("live-1", start, 20, None, "overflow")], [25, 26])
        buffer.put_back(*taken)
        buffer.push(np.array([27]))
        assert buffer.take(10) == ([DeliveryGap("live-1", start, 26, None, "overflow")], [26, 27])


def test_merged_files_still_tell_of_them_after_a_restart(disk: Disk) -> None:
    async def before() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for offset in range(10):
            disk.feed(hub, offset, offset + 1, {7: [offset]})
        hub.accept(make_notifications(10, 20, {7: [19]}, [0] * 10, damage=[LOST]), stored=False)
        hub.accept(make_notifications(20, 30, {7: [25], 99: [21]}), stored=False)
        for second in range(5):
            await hub.housekeep(second * SECOND_US)
        assert [name for name in disk.files() if name.endswith("00030.ntf")] == [
            "00000000000000000010-00000000000000000030.ntf"
        ]
        await hub.close()

    async def restarted() -> None:
        hub = disk.hub()
        assert hub.lost == [LOST]
        hub.register([ALERTS])
        assert await received(hub, ALERTS) == [*range(10), gap(10, 20), 25]
        await hub.close()

    play(before, restarted)


def test_a_file_that_reaches_back_is_believed_only_from_its_place_on(disk: Disk) -> None:
    """Its range was matched before the damage, too."""

    async def scene() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        disk.feed(hub, 0, 15, {7: [3, 12]})
        hub.accept(disk.write(make_notifications(10, 20, {7: [19]}, [0] * 10, damage=[LOST])))
        assert await received(hub, ALERTS) == [3, 12, gap(15, 20)]
        assert hub.lost == [LOST._replace(start=15)]
        await hub.close()

    play(scene)


def test_damage_is_told_once_for_each_place() -> None:
    parts = [LOST._replace(start=10, end=14), LOST._replace(start=14, end=20)]
    other = DamagedEvents(LOST.path, 4_000, 2, 3)
    assert told_once([*parts, other]) == [other, LOST]
    assert told_once([LOST, *parts]) == [LOST]


def test_what_waits_has_a_gap_in_the_place_of_lost_events(disk: Disk) -> None:
    async def scene() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        feed(disk, hub, {7: 19})
        assert hub.waiting(ALERTS, 0, 9) == Waiting([5, 25], [gap(10, 20)], 30, 30, -1)
        assert hub.waiting(ALERTS, 6, 1) == Waiting([], [gap(10, 20)], 20, 30, -1)
        assert hub.waiting(ALERTS, 15, 9) == Waiting([25], [gap(15, 20)], 30, 30, -1)
        await hub.close()

    play(scene)
