"""The subscriber of subscriptions that deliver to a channel, with a mailbox and a channel service in memory."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from culver.channels import Channels
from culver.delivery import Delivery, DeliveryGap, Hub
from culver.delivery.channel_targets import ChannelTargets
from culver.errors import ConnectionFailed, NotFound, Unavailable
from culver.registry.registration import Registration
from culver.site import channel_deliveries
from culver.site.channel_deliveries import ChannelDeliveries, publisher_number
from support.gateway import run
from support.notifications import registration
from support.until import settled, until

IDENTITY = bytes(range(16))

Item = Delivery | DeliveryGap


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_deliveries, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(channel_deliveries, "_LONGEST_PAUSE_SECONDS", 0.002)


class Mailbox:
    """A hub with one mailbox."""

    def __init__(self) -> None:
        self.channel_targets = ChannelTargets()
        self.items: list[Item] = []
        self.cursor = -1
        self.sessions = 0
        self.ended = False
        self._changed = asyncio.Event()

    def put(self, *items: Item) -> None:
        self.items += items
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def register(self, registered: Registration) -> None:
        self.channel_targets.register([registered])

    async def open_session(self, registration: Registration) -> "MailboxSession":
        self.sessions += 1
        return MailboxSession(self)

    async def changed(self) -> None:
        await self._changed.wait()


class MailboxSession:
    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._position = mailbox.cursor

    async def receive(self, limit: int, wait_seconds: float | None) -> list[Item]:
        while True:
            if self._mailbox.ended:
                raise NotFound("the subscription has ended")
            found = [item for item in self._mailbox.items if last_of(item) > self._position][:limit]
            if found:
                self._position = last_of(found[-1])
                return found
            await self._mailbox.changed()

    async def acknowledge(self, offset: int) -> None:
        self._mailbox.cursor = max(offset, self._mailbox.cursor)

    async def close(self) -> None:
        self._mailbox.sessions -= 1


def last_of(item: Item) -> int:
    return item.end - 1 if isinstance(item, DeliveryGap) else item.offset


class Service:
    """A client of channels that notes what it publishes. `failure` is raised while it is set, and `refused` are the
    sequences that fail once."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, int, int, bytes]] = []
        self.publishers: set[tuple[int, int]] = set()
        self.failure: Exception | None = None
        self.refused: set[int] = set()
        self.opened = 0

    async def publisher_id(self) -> int:
        self.opened += 1
        if self.failure is not None:
            raise self.failure
        return 1

    async def publish_chained(
        self, channel: str, message: bytes, *, publisher: int, epoch: int, previous: int, sequence: int
    ) -> int:
        if self.failure is not None:
            raise self.failure
        if sequence in self.refused:
            self.refused.discard(sequence)
            raise ConnectionFailed("no answer")
        self.publishers.add((publisher, epoch))
        self.messages.append((channel, previous, sequence, message))
        return 1

    @property
    def links(self) -> list[tuple[int, int]]:
        return [(previous, sequence) for _, previous, sequence, _ in self.messages]


Scenario = Callable[[ChannelDeliveries, Mailbox, Service], Any]


def play(scenario: Scenario) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[ChannelDeliveries, Mailbox, Service]]:
        mailbox, service = Mailbox(), Service()
        deliveries = ChannelDeliveries(cast(Hub, mailbox), cast(Channels, service), IDENTITY)
        mailbox.register(targeting())
        async with deliveries.running():
            yield deliveries, mailbox, service
        assert mailbox.sessions == 0

    async def main() -> None:
        async with opened() as (deliveries, mailbox, service):
            await scenario(deliveries, mailbox, service)

    run(main())


def targeting(number: int = 1, channel: str | None = "c") -> Registration:
    return replace(registration(number, "s"), channel=channel)


def delivery(offset: int) -> Delivery:
    return Delivery("s", offset, b"%d" % offset)


def gap(start: int, end: int) -> DeliveryGap:
    return DeliveryGap("s", start, end, None, "overflow")


def test_each_message_has_its_offset_as_its_id_and_names_the_one_before() -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        mailbox.put(delivery(4), delivery(9))
        await until(lambda: mailbox.cursor == 9)
        mailbox.put(delivery(10))
        await until(lambda: mailbox.cursor == 10)
        assert service.messages == [("c", 0, 5, b"4"), ("c", 5, 10, b"9"), ("c", 10, 11, b"10")]
        assert service.publishers == {(publisher_number(IDENTITY, "s"), 1)}
        assert deliveries.published == 3

    play(scenario)


def test_deliveries_without_an_answer_are_published_again_under_the_same_ids() -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        mailbox.put(delivery(1))
        await until(lambda: mailbox.cursor == 1)
        service.refused = {6}
        mailbox.put(delivery(3), delivery(5), delivery(7))
        await until(lambda: mailbox.cursor == 7)
        again = [(2, 4), (4, 6), (6, 8)]
        assert service.links == [(0, 2), (2, 4), (6, 8), *again]
        assert deliveries.failures == {}

    play(scenario)


def test_gap_is_told_with_the_message_after_it_and_kept_until_then() -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        mailbox.put(delivery(1))
        await until(lambda: mailbox.cursor == 1)
        mailbox.put(gap(2, 20))
        await settled()
        assert (mailbox.cursor, len(service.messages)) == (1, 1)
        mailbox.put(delivery(30), delivery(31))
        await until(lambda: mailbox.cursor == 31)
        assert service.links[1:] == [(20, 31), (31, 32)]

    play(scenario)


def test_gap_before_a_failure_is_told_after_it() -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        service.refused = {31}
        mailbox.put(gap(2, 20), delivery(30))
        await until(lambda: mailbox.cursor == 30)
        assert service.links == [(20, 31)]

    play(scenario)


def test_message_after_a_long_silence_names_none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_deliveries, "_LINK_SECONDS", 0.0)

    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        mailbox.put(delivery(1))
        await until(lambda: mailbox.cursor == 1)
        mailbox.put(gap(2, 4), delivery(5))
        await until(lambda: mailbox.cursor == 5)
        mailbox.put(delivery(6))
        await until(lambda: mailbox.cursor == 6)
        assert service.links == [(0, 2), (4, 6), (0, 7)]

    play(scenario)


@pytest.mark.parametrize("failure", [ConnectionFailed("away"), Unavailable("away"), RuntimeError("away")])
def test_service_that_is_away_leaves_everything_in_the_mailbox_until_it_is_back(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        service.failure = failure
        mailbox.put(delivery(1), delivery(2))
        await until(lambda: service.opened > 3)
        assert deliveries.failures == {"s": "away"}
        assert (mailbox.cursor, service.messages) == (-1, [])
        service.failure = None
        await until(lambda: mailbox.cursor == 2)
        assert deliveries.failures == {}

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert [record.getMessage() for record in caplog.records] == ["deliveries of s wait: away"]


def test_replacement_goes_on_with_the_mailbox_and_may_change_the_channel() -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        await until(lambda: mailbox.sessions == 1)
        mailbox.register(targeting(2))
        mailbox.put(delivery(1))
        await until(lambda: mailbox.cursor == 1)
        mailbox.register(targeting(3, "d"))
        mailbox.put(delivery(2))
        await until(lambda: mailbox.cursor == 2)
        mailbox.register(targeting(4, None))
        await until(lambda: mailbox.sessions == 0)
        mailbox.put(delivery(3))
        await settled()
        # The first message on another channel names none before it: its subscribers know of none.
        assert service.messages == [("c", 0, 2, b"1"), ("d", 0, 3, b"2")]

    play(scenario)


def test_subscription_that_has_ended_is_left_alone_and_can_be_made_anew() -> None:
    async def scenario(deliveries: ChannelDeliveries, mailbox: Mailbox, service: Service) -> None:
        await until(lambda: mailbox.sessions == 1)
        mailbox.ended = True
        mailbox.wake()
        await until(lambda: mailbox.sessions == 0)
        mailbox.register(replace(targeting(), until=5, removed=True))
        mailbox.ended = False
        mailbox.register(targeting(2))
        mailbox.put(delivery(7))
        await until(lambda: mailbox.cursor == 7)
        assert service.links == [(0, 8)]

    play(scenario)


def test_publisher_is_the_same_after_a_restart_and_another_for_other_subscriptions_and_sites() -> None:
    numbers = [
        publisher_number(identity, name) for identity in (IDENTITY, bytes(16)) for name in ("s", "t", "é")
    ]
    assert len(set(numbers)) == 6
    assert all(0 <= number < 2**64 for number in numbers)
    assert publisher_number(IDENTITY, "s") == numbers[0]
