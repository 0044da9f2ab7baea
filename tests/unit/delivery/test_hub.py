"""Sessions of durable and live subscriptions on a real log."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from culver.config import DeliverySettings, LogSettings
from culver.delivery.deliveries import Delivery, DeliveryGap, Waiting
from culver.delivery.hub import Hub
from culver.errors import Conflict, InvalidRequest, NotFound, Unavailable
from culver.pipeline.notifications import NotificationSink
from culver.registry.registration import Registration
from culver.roles import Session
from support.notifications import SECOND_US, Disk, live, make_notifications, registration, removed, site_disk

ALERTS = registration(7)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with site_disk(tmp_path) as made:
        yield made


def offsets(items: list[Delivery | DeliveryGap]) -> list[int]:
    assert all(isinstance(item, Delivery) for item in items)
    return [item.offset for item in items if isinstance(item, Delivery)]


def test_a_durable_session_receives_its_events_in_order(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS, registration(8, "others")])
        disk.feed(hub, 0, 3, {7: [0, 2], 8: [1]})
        disk.feed(hub, 3, 5, {7: [4]})
        session = await hub.open_session(ALERTS)
        first = await session.receive(2, 0)
        assert first == [Delivery("alerts", 0, b'{"n": 0}'), Delivery("alerts", 2, b'{"n": 2}')]
        assert first[0].id == "alerts:0" if isinstance(first[0], Delivery) else False
        assert offsets(await session.receive(10, 0)) == [4]
        assert await session.receive(10, 0) == []
        assert hub.pending("alerts") == 3
        assert hub.pending("others") == 1
        assert hub.pending("unknown") == 0
        await hub.close()

    asyncio.run(run())


def test_a_waiting_session_wakes_when_its_event_is_accepted(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS, live(9)])
        durable, alive = await hub.open_session(ALERTS), await hub.open_session(live(9))
        waiting = [asyncio.create_task(session.receive(10, None)) for session in (durable, alive)]
        await asyncio.sleep(0)
        disk.feed(hub, 0, 1, {8: [0]})
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        disk.feed(hub, 1, 3, {7: [1], 9: [2]})
        assert [offsets(await task) for task in waiting] == [[1], [2]]
        await hub.close()

    asyncio.run(run())


def test_unacknowledged_deliveries_come_again_with_the_same_id_after_a_restart(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        disk.feed(hub, 0, 4, {7: [0, 1, 3]})
        session = await hub.open_session(ALERTS)
        before = await session.receive(10, 0)
        await session.acknowledge(0)
        await hub.close()

        hub = disk.hub()
        hub.register([ALERTS])
        assert hub.frontier == 4
        assert hub.pending("alerts") == 2
        session = await hub.open_session(ALERTS)
        assert await session.receive(10, 0) == before[1:]
        await session.acknowledge(3)
        assert hub.pending("alerts") == 0
        await hub.close()

    asyncio.run(run())


def test_sessions_of_one_subscription_each_receive_everything_unacknowledged(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        disk.feed(hub, 0, 4, {7: [0, 1, 2, 3]})
        first, second = await hub.open_session(ALERTS), await hub.open_session(ALERTS)
        assert offsets(await first.receive(10, 0)) == [0, 1, 2, 3]
        await first.acknowledge(1)
        assert offsets(await second.receive(10, 0)) == [2, 3]
        assert offsets(await (await hub.open_session(ALERTS, after=2)).receive(10, 0)) == [3]
        assert hub.pending("alerts") == 2
        await hub.close()

    asyncio.run(run())


def test_rewinding_delivers_again_but_not_what_is_acknowledged(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        disk.feed(hub, 0, 4, {7: [0, 1, 2, 3]})
        session = await hub.open_session(ALERTS)
        await session.receive(10, 0)
        await session.acknowledge(1)
        session.rewind(-1)
        assert offsets(await session.receive(10, 0)) == [2, 3]
        session.rewind(2)
        assert offsets(await session.receive(10, 0)) == [3]
        session.rewind(1_000_000)  # nobody can have seen that: what comes next is not skipped
        disk.feed(hub, 4, 5, {7: [4]})
        assert offsets(await session.receive(10, 0)) == [4]
        await hub.close()

    asyncio.run(run())


def test_acknowledging_what_has_not_been_reached_is_refused(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        disk.feed(hub, 0, 2, {7: [0, 1]})
        session = await hub.open_session(ALERTS)
        with pytest.raises(InvalidRequest) as caught:
            await session.acknowledge(2)
        assert caught.value.field == "delivery_id"
        await session.acknowledge(1)
        await session.acknowledge(0)
        assert hub.pending("alerts") == 0
        await hub.close()

    asyncio.run(run())


def test_many_acknowledgements_at_once_are_all_on_disk_on_return(disk: Disk) -> None:
    async def run() -> None:
        many = [registration(number, f"s{number}") for number in range(300)]
        hub = disk.hub()
        hub.register(many)
        disk.feed(hub, 0, 2, {number: [0, 1] for number in range(300)})
        await asyncio.gather(*(hub.acknowledge(f"s{number}", number % 2) for number in range(300)))
        # As after a kill: what is read back is what another process would see now.
        copy = disk.hub()
        copy.register(many)
        assert [copy.pending(f"s{number}") for number in range(300)] == [1, 0] * 150
        await copy.close()
        await hub.close()

    asyncio.run(run())


def test_a_replaced_subscription_keeps_its_mailbox(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        session = await hub.open_session(ALERTS)
        disk.feed(hub, 0, 4, {7: [0, 3]})
        new = registration(9, since=4)
        hub.register([replace(ALERTS, until=4), new])
        disk.feed(hub, 4, 6, {9: [4, 5]})
        assert offsets(await session.receive(10, 0)) == [0, 3, 4, 5]
        assert session.registration == new
        assert (await hub.housekeep(0)).numbers == []
        await session.acknowledge(3)
        assert (await hub.housekeep(0)).numbers == [7]
        assert (await hub.housekeep(0)).numbers == []
        assert hub.pending("alerts") == 2
        waiting = asyncio.create_task(session.receive(10, None))
        await asyncio.sleep(0)
        disk.feed(hub, 6, 7, {9: [6]})
        assert offsets(await waiting) == [6]
        await hub.close()

    asyncio.run(run())


def test_a_removed_subscription_ends_its_sessions_and_leaves_nothing_to_its_successor(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub(DeliverySettings(mailbox_count=1))
        hub.register([ALERTS])
        session = await hub.open_session(ALERTS)
        disk.feed(hub, 0, 4, {7: [0, 1, 2]})
        await hub.housekeep(0)
        waiting = asyncio.create_task((await hub.open_session(ALERTS, after=3)).receive(1, None))
        await asyncio.sleep(0)
        hub.register([removed(ALERTS, 4)])
        with pytest.raises(NotFound):
            await waiting
        with pytest.raises(NotFound):
            await session.receive(1, 0)
        with pytest.raises(NotFound):
            await session.acknowledge(1)
        with pytest.raises(NotFound):
            await hub.open_session(ALERTS)
        assert hub.needed_from() == 4
        again = registration(9, since=4)
        hub.register([again])
        await hub.close()

        hub = disk.hub()
        hub.register([removed(ALERTS, 4), again])
        disk.feed(hub, 4, 5, {9: [4]})
        assert offsets(await (await hub.open_session(again)).receive(10, 0)) == [4]
        assert (await hub.housekeep(0)).numbers == [7]
        await hub.close()

    asyncio.run(run())


def test_overflow_drops_the_oldest_and_announces_how_many_also_after_a_restart(disk: Disk) -> None:
    async def run() -> None:
        small = registration(7, mailbox_count=3)
        hub = disk.hub()
        hub.register([small])
        disk.feed(hub, 0, 10, {7: [1, 2, 4, 5, 8, 9]})
        await hub.housekeep(0)
        assert hub.pending("alerts") == 3
        gap = DeliveryGap("alerts", 1, 5, 3, "overflow")
        session = await hub.open_session(small)
        items = await session.receive(10, 0)
        assert items[0] == gap
        assert offsets(items[1:]) == [5, 8, 9]
        assert await session.receive(10, 0) == []
        await hub.close()

        hub = disk.hub()
        hub.register([small])
        session = await hub.open_session(small)
        assert await session.receive(1, 0) == [gap]
        assert offsets(await session.receive(1, 0)) == [5]
        await session.acknowledge(5)
        assert offsets(await (await hub.open_session(small)).receive(10, 0)) == [8, 9]
        await hub.close()

        hub = disk.hub()
        hub.register([small])
        assert offsets(await (await hub.open_session(small)).receive(10, 0)) == [8, 9]
        await hub.close()

    asyncio.run(run())


def test_a_session_is_told_only_what_it_has_not_received_of_a_gap(disk: Disk) -> None:
    async def run() -> None:
        small = registration(7, mailbox_count=1)
        hub = disk.hub()
        hub.register([small])
        disk.feed(hub, 0, 5, {7: [0, 1, 2, 3, 4]})
        session = await hub.open_session(small)
        assert offsets(await session.receive(2, 0)) == [0, 1]
        waiting = asyncio.create_task((await hub.open_session(small, after=4)).receive(10, None))
        await hub.housekeep(0)
        assert await session.receive(1, 0) == [DeliveryGap("alerts", 2, 4, 2, "overflow")]
        assert offsets(await session.receive(10, 0)) == [4]
        assert not waiting.done()
        await hub.close()
        with pytest.raises(Unavailable):
            await waiting

    asyncio.run(run())


def test_the_bytes_of_a_mailbox_are_limited(disk: Disk) -> None:
    async def run() -> None:
        small = registration(7, mailbox_bytes=20)
        hub = disk.hub()
        hub.register([small])
        disk.feed(hub, 0, 4, {7: [0, 1, 2, 3]})  # of 8 bytes each
        await hub.housekeep(0)
        items = await (await hub.open_session(small)).receive(10, 0)
        assert items[0] == DeliveryGap("alerts", 0, 2, 2, "overflow")
        assert offsets(items[1:]) == [2, 3]
        await hub.close()

    asyncio.run(run())


def test_what_is_too_old_expires_and_wakes_the_session(disk: Disk) -> None:
    async def run() -> None:
        brief = registration(7, mailbox_age_seconds=10)
        hub = disk.hub()
        hub.register([brief, registration(8, "patient")])
        disk.publish(2, received_us=100 * SECOND_US)
        disk.publish(2, received_us=105 * SECOND_US)
        disk.feed(hub, 0, 4, {7: [0, 1, 2, 3], 8: [0]})
        await hub.housekeep(110 * SECOND_US)
        assert hub.pending("alerts") == 4
        waiting = asyncio.create_task((await hub.open_session(brief, after=1)).receive(1, None))
        session = await hub.open_session(brief)
        await hub.housekeep(112 * SECOND_US)
        assert await session.receive(1, 0) == [DeliveryGap("alerts", 0, 2, 2, "expired")]
        assert offsets(await session.receive(10, 0)) == [2, 3]
        assert offsets(await waiting) == [2]
        assert hub.pending("patient") == 1
        await hub.housekeep(200 * SECOND_US)
        assert hub.pending("alerts") == 0
        items = await (await hub.open_session(brief)).receive(10, 0)
        assert items == [DeliveryGap("alerts", 0, 4, 4, "expired")]
        await hub.close()

    asyncio.run(run())


def test_a_slow_live_subscriber_gets_a_gap_with_the_exact_count(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub(DeliverySettings(live_buffer=4))
        hub.register([live(9)])
        session = await hub.open_session(live(9))
        disk.feed(hub, 0, 3, {9: [0, 1, 2]})
        disk.feed(hub, 3, 10, {9: [4, 6, 9]})
        assert await session.receive(1, 0) == [DeliveryGap("live-1", 0, 2, 2, "overflow")]
        assert offsets(await session.receive(10, 0)) == [2, 4, 6, 9]
        disk.feed(hub, 10, 20, {9: list(range(10, 20))})
        items = await session.receive(10, 0)
        assert items[0] == DeliveryGap("live-1", 10, 16, 6, "overflow")
        assert offsets(items[1:]) == [16, 17, 18, 19]
        await hub.close()

    asyncio.run(run())


def test_a_live_subscriber_gets_what_came_between_registering_and_connecting(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([])
        disk.feed(hub, 0, 2, {9: [1]})
        hub.register([live(9, since=1)])  # the pipeline was quicker
        disk.feed(hub, 2, 4, {9: [3]})
        assert hub.needed_from() == 1
        session = await hub.open_session(live(9, since=1))
        assert offsets(await session.receive(10, 0)) == [1, 3]
        assert hub.needed_from() == 4
        with pytest.raises(Conflict):
            await hub.open_session(live(9, since=1))
        await session.acknowledge(3)
        session.rewind(0)
        assert await session.receive(10, 0) == []
        await hub.close()

    asyncio.run(run())


def test_a_live_subscriber_that_was_away_is_told_so(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([live(9, since=5), live(10, "live-2", since=5)])
        disk.feed(hub, 0, 7, {9: [5, 6], 10: [6]})
        session = await hub.open_session(live(9, since=5), after=2)
        items = await session.receive(10, 0)
        assert items[0] == DeliveryGap("live-1", 3, 5, None, "disconnected")
        assert offsets(items[1:]) == [5, 6]
        seamless = await hub.open_session(live(10, "live-2", since=5), after=4)
        assert offsets(await seamless.receive(10, 0)) == [6]
        await hub.close()

    asyncio.run(run())


def test_an_ended_live_subscription_raises_not_found_and_may_be_forgotten(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([live(9), live(10, "live-2")])
        session = await hub.open_session(live(9))
        closed = await hub.open_session(live(10, "live-2"))
        await closed.close()
        await closed.close()
        hub.register([removed(live(9), 1), removed(live(10, "live-2"), 0)])
        with pytest.raises(NotFound):
            await session.receive(1, None)
        with pytest.raises(NotFound):
            await hub.open_session(live(10, "live-2"))
        assert (await hub.housekeep(0)).numbers == [10]
        disk.feed(hub, 0, 1, {9: [0]})
        assert (await hub.housekeep(0)).numbers == [9]
        await hub.close()

    asyncio.run(run())


@pytest.mark.parametrize("one", [ALERTS, live(7)], ids=["durable", "live"])
def test_a_cancelled_receive_loses_nothing(disk: Disk, one: Registration) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([one])
        session = await hub.open_session(one)
        disk.feed(hub, 0, 3, {7: [0, 1]})
        task = asyncio.create_task(session.receive(10, None))
        await asyncio.sleep(0)  # it reads the log now
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert offsets(await session.receive(10, 0)) == [0, 1]
        await hub.close()

    asyncio.run(run())


def test_a_wait_that_is_up_returns_nothing(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        session = await hub.open_session(ALERTS)
        assert await session.receive(10, 0.01) == []
        await session.close()
        with pytest.raises(Unavailable):
            await session.receive(10, None)
        await hub.close()

    asyncio.run(run())


def test_closing_ends_all_sessions(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS, live(9)])
        tasks = [
            asyncio.create_task((await hub.open_session(one)).receive(1, None)) for one in (ALERTS, live(9))
        ]
        await asyncio.sleep(0)
        await hub.close()
        for task in tasks:
            with pytest.raises(Unavailable):
                await task
        with pytest.raises(Unavailable):
            await hub.open_session(ALERTS)
        disk.feed(hub, 0, 1, {7: [0]})
        with pytest.raises(Unavailable):
            await hub.acknowledge("alerts", 0)
        assert (await hub.housekeep(0)).numbers == []

    asyncio.run(run())


def test_events_that_the_log_has_lost_are_announced_as_a_gap(tmp_path: Path) -> None:
    async def run(disk: Disk) -> None:
        hub = disk.hub()
        hub.register([ALERTS, live(9)])
        alive = await hub.open_session(live(9))
        for offset in range(20):
            disk.feed(hub, offset, offset + 1, {7: [offset], 9: [offset]})
        disk.log.trim(20)
        first = disk.log.first_offset
        assert 0 < first < 20
        for session, name in ((await hub.open_session(ALERTS), "alerts"), (alive, "live-1")):
            items = await session.receive(100, 0)
            assert items[0] == DeliveryGap(name, 0, first, first, "unavailable")
            assert offsets(items[1:]) == list(range(first, 20))
        await hub.close()

    with site_disk(tmp_path, LogSettings(segment_bytes=1024)) as disk:
        asyncio.run(run(disk))


def test_notifications_that_leave_a_hole_are_refused(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        with pytest.raises(ValueError, match="hole"):
            hub.accept(make_notifications(1, 2, {7: [1]}))
        assert hub.frontier == 0
        assert hub.mailboxes.index_version == 0
        hub.accept(make_notifications(0, 2, {7: [1]}, version=5))
        assert hub.mailboxes.index_version == 5
        await hub.close()

    asyncio.run(run())


def test_nothing_is_let_go_before_the_registrations_are_known(disk: Disk) -> None:
    async def run() -> None:
        hub = disk.hub()
        hub.register([ALERTS])
        for offset in range(3):
            disk.feed(hub, offset, offset + 1, {7: [offset]})
        await hub.close()
        files = disk.files()

        hub = disk.hub()
        assert hub.needed_from() == 0
        for second in range(1, 5):
            assert (await hub.housekeep(second * SECOND_US)).numbers == []
        assert disk.files() == files
        hub.register([ALERTS])
        assert hub.pending("alerts") == 3
        await hub.close()

    asyncio.run(run())


def test_sessions_that_read_the_same_event_share_one_payload(disk: Disk) -> None:
    async def run() -> None:
        many = [registration(number, f"s{number}") for number in range(130)]
        hub = disk.hub()
        hub.register(many)
        sessions = [await hub.open_session(one) for one in many]
        receiving = [asyncio.create_task(session.receive(10, None)) for session in sessions]
        await asyncio.sleep(0)
        disk.feed(hub, 0, 1, {number: [0] for number in range(130)})
        payloads = [item.payload for task in receiving for item in await task if isinstance(item, Delivery)]
        assert len(payloads) == 130
        assert len({id(payload) for payload in payloads}) == 1
        await hub.close()

    asyncio.run(run())


def test_a_hub_is_a_sink_for_the_pipeline_and_its_sessions_fit_the_gateway(disk: Disk) -> None:
    async def run() -> None:
        hub: Hub = disk.hub()
        hub.register([ALERTS, live(9)])
        sink: NotificationSink = hub
        sessions: list[Session] = [await hub.open_session(ALERTS), await hub.open_session(live(9))]
        assert sink is hub
        assert [session.registration.number for session in sessions] == [7, 9]
        await hub.close()

    asyncio.run(run())


def test_what_waits_is_told_by_range_as_often_as_asked(disk: Disk) -> None:
    async def run() -> None:
        small = registration(7, mailbox_count=3)
        hub = disk.hub()
        hub.register([small])
        disk.feed(hub, 0, 10, {7: [1, 2, 4, 5, 8]})
        assert hub.waiting(small, 0, 9) == Waiting([1, 2, 4, 5, 8], [], 10, 10, -1)
        assert hub.waiting(small, 2, 2) == Waiting([2, 4], [], 5, 10, -1)
        assert hub.waiting(small, 9, 2) == Waiting([], [], 10, 10, -1)
        await hub.housekeep(0)
        gap = DeliveryGap("alerts", 1, 3, 2, "overflow")
        assert hub.waiting(small, 0, 9) == Waiting([4, 5, 8], [gap], 10, 10, -1)
        assert hub.waiting(small, 3, 9).gaps == []
        session = await hub.open_session(small)
        await session.acknowledge(5)
        assert hub.waiting(small, 0, 9) == Waiting([8], [], 10, 10, 5)
        await hub.close()

        hub = disk.hub()
        hub.register([small])
        assert hub.waiting(small, 6, 9) == Waiting([8], [], 10, 10, 5)
        hub.register([removed(small, 10)])
        with pytest.raises(NotFound):
            hub.waiting(small, 6, 9)
        await hub.close()

    asyncio.run(run())
