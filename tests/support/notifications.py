"""Notifications, registrations and a site's disk for tests of delivery."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from culver.config import DeliverySettings, LogSettings
from culver.delivery.hub import Hub
from culver.delivery.ranges.retained_ranges import rows_of
from culver.log import DamagedEvents
from culver.log.files import FileLog
from culver.pipeline.notifications import Notifications, write_notifications
from culver.registry.registration import Block, Registration
from culver.site.gateway_group import GatewayGroup
from support.logs import batch

SECOND_US = 1_000_000


def make_notifications(
    start: int,
    end: int,
    rows: Mapping[int, Sequence[int]],
    sizes: Sequence[int] | None = None,
    version: int = 1,
    damage: Sequence[DamagedEvents] = (),
) -> Notifications:
    """The range `[start, end)` in which registration `number` gets the events at `rows[number]`."""
    numbers = sorted(number for number in rows if len(rows[number]))
    flat = [offset - start for number in numbers for offset in sorted(rows[number])]
    bounds = np.cumsum([0, *(len(rows[number]) for number in numbers)])
    return Notifications(
        start,
        end,
        version,
        np.array(numbers, np.int64),
        bounds.astype(np.int64),
        np.array(flat, np.uint16),
        np.array(sizes if sizes is not None else [10] * (end - start), np.uint32),
        damage=tuple(damage),
    )


def rows_by_number(content: Notifications) -> dict[int, list[int]]:
    """The offsets that each registration gets, as plain lists."""
    return {int(number): offsets_of(content, int(number)) for number in content.numbers}


def offsets_of(content: Notifications, number: int) -> list[int]:
    """The offsets that one registration gets, ascending."""
    rows = rows_of(content, number)
    return [content.start + row for row in rows.tolist()]


def registration(
    number: int, subscription: str = "alerts", *, since: int = 0, **changes: Any
) -> Registration:
    made = Registration(
        number=number,
        id=subscription,
        filter="TRUE",
        durable=True,
        since=since,
        until=None,
        removed=False,
        version=number,
        created_at_us=0,
        expires_at_us=None,
        mailbox_count=None,
        mailbox_bytes=None,
        mailbox_age_seconds=None,
    )
    return replace(made, **changes)


def live(number: int, subscription: str = "live-1", *, since: int = 0) -> Registration:
    return registration(number, subscription, since=since, durable=False)


def removed(ended: Registration, until: int) -> Registration:
    return replace(ended, until=until, removed=True)


class Disk:
    """The log and the delivery directory of one site; a hub can be opened on it again and again."""

    def __init__(self, path: Path, log: FileLog) -> None:
        self.path = path
        self.log = log
        self.now_us = 0

    @property
    def notifications(self) -> Path:
        return self.path / "delivery" / "notifications"

    def files(self) -> list[str]:
        return sorted(path.name for path in self.notifications.iterdir())

    def hub(self, settings: DeliverySettings | None = None) -> Hub:
        group = GatewayGroup((), self.path)  # no gateway but the site's own
        settings = settings or DeliverySettings()
        return Hub.open(self.path / "delivery", self.log, settings, lambda: self.now_us, group.share, group)

    def publish(self, count: int, received_us: int = 0) -> None:
        """Append events; event n has the payload {"n": n}."""
        self.log.append([batch(self.log.next_offset, count, received_us)])

    def write(self, content: Notifications) -> Notifications:
        """As the pipeline does before it hands the notifications on."""
        self.notifications.mkdir(parents=True, exist_ok=True)
        write_notifications(self.notifications, content, durable=False)
        return content

    def feed(self, hub: Hub, start: int, end: int, rows: Mapping[int, Sequence[int]]) -> None:
        """Publish what is missing below `end`, and hand on the notifications of `[start, end)`."""
        if self.log.next_offset < end:
            self.publish(end - self.log.next_offset)
        sizes = [len(b'{"n": %d}' % offset) for offset in range(start, end)]
        hub.accept(self.write(make_notifications(start, end, rows, sizes)))


@contextmanager
def site_disk(path: Path, settings: LogSettings | None = None) -> Iterator[Disk]:
    with FileLog(path / "log", settings or LogSettings()) as log:
        yield Disk(path, log)


def block(
    number: int = 10,
    first: int = 0,
    count: int = 40,
    holes: Sequence[int] = (),
    mailbox_count: int | None = None,
) -> Block:
    """A set's rows from `first` on, the first of them under that number."""
    return Block(
        number=number,
        count=count,
        name="quotes",
        first=first,
        filter="a = ?",
        since=0,
        until=None,
        version=1,
        created_at_us=0,
        expires_at_us=None,
        mailbox_count=mailbox_count,
        mailbox_bytes=None,
        mailbox_age_seconds=None,
        values=b"",
        holes=np.array(sorted(holes), np.int64),
    )
