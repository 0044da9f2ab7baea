"""Subscriptions are divided among gateways by their ids alone, and each gateway has what one alone would have."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from culver.config import DeliverySettings
from culver.delivery.deliveries import Delivery
from culver.delivery.hub import Hub
from culver.delivery.ranges.file_keeper import FileKeeper
from culver.delivery.ranges.followed_files import FollowedFiles
from culver.delivery.ranges.retained_ranges import RetainedRange
from culver.delivery.shares import Share, share_of
from culver.registry.registration import Block, Registration
from support.notifications import (
    SECOND_US,
    Disk,
    block,
    registration,
    removed,
    site_disk,
)

GATEWAYS = st.integers(1, 7)


def test_shares_are_the_same_in_every_run_and_on_every_machine() -> None:
    found = [share_of(name, count) for name in ("alerts", "quotes.7", "sub-abc") for count in (2, 3, 16)]
    assert found == [1, 0, 3, 0, 0, 12, 0, 0, 10]


@given(st.text("abc.0123456789-", min_size=1, max_size=12), GATEWAYS)
def test_every_subscription_belongs_to_one_gateway(subscription: str, gateways: int) -> None:
    owners = [number for number in range(gateways) if Share(number, gateways).owns(subscription)]
    assert owners == [share_of(subscription, gateways)]


def test_shares_are_about_equal() -> None:
    names = [f"subscriber-{number}" for number in range(3000)]
    counts = np.bincount([share_of(name, 3) for name in names])
    assert all(900 < count < 1100 for count in counts)


@given(st.integers(0, 50), st.integers(1, 30), st.integers(1, 1000), st.sets(st.integers(0, 29)), GATEWAYS)
def test_parts_of_a_block_are_the_members_that_each_gateway_owns(
    first: int, count: int, number: int, gone: set[int], gateways: int
) -> None:
    whole = block(number, first, count, [number + place for place in gone if place < count])
    for share in (Share(at, gateways) for at in range(gateways)):
        members = [n for n in whole.numbers().tolist() if share.owns(f"quotes.{first + n - number}")]
        assert share.part_of(whole).numbers().tolist() == members


class Gateways:
    """A site's hub and those of its other gateways, in one process; each is told what a real one is told."""

    def __init__(self, disk: Disk, count: int, registrations: Iterable[Registration | Block]) -> None:
        self.disk = disk
        self.hub = Hub.open(
            disk.path / "delivery", disk.log, DeliverySettings(), lambda: disk.now_us, Share(0, count), self
        )
        ranges = [
            (item.start, item.notifications.start, item.notifications.end)
            for item in self.hub.mailboxes.ranges
        ]
        self.followers: list[tuple[Hub, FollowedFiles]] = [
            Hub.follow(
                disk.path / "delivery",
                disk.log,
                DeliverySettings(),
                Share(number, count),
                ranges,
                self.hub.frontier,
            )
            for number in range(1, count)
        ]
        self.register(registrations)
        for hub, files in self.followers:
            files.narrow(hub.knows)

    @property
    def hubs(self) -> list[Hub]:
        return [self.hub, *(hub for hub, _ in self.followers)]

    def owner(self, subscription: str) -> Hub:
        return self.hubs[share_of(subscription, len(self.hubs))]

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        changed = list(registrations)
        for hub in self.hubs:
            hub.register(changed)

    def feed(self, start: int, end: int, rows: dict[int, list[int]]) -> None:
        self.disk.feed(self.hub, start, end, rows)
        for hub, files in self.followers:
            hub.accept(files.read(start, end, hub.knows))

    def settle(self) -> None:
        """More than the grace time passes, twice, before the files are looked at."""
        assert isinstance(self.hub._files, FileKeeper)
        for _ in range(2):
            self.disk.now_us += 2 * SECOND_US
            self.hub._files.settle(self.disk.now_us)

    async def housekeep(self) -> None:
        self.disk.now_us += 2 * SECOND_US
        for hub in self.hubs:
            await hub.housekeep(self.disk.now_us)

    async def close(self) -> None:
        for hub in self.hubs:
            await hub.close()

    # --- delivery.tidying.Followers ---

    def needed_from(self) -> int:
        return min((hub.needed_from() for hub, _ in self.followers), default=10**9)

    async def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
        wanted = np.zeros(len(numbers), np.bool_)
        for hub, _ in self.followers:
            wanted |= hub.mailboxes.wanted(numbers, last)
        return wanted

    def merged(self, item: RetainedRange, *, pruned: bool) -> None:
        for hub, files in self.followers:
            files.merged(item.notifications.start, item.notifications.end, hub.knows, pruned=pruned)

    def release(self, names: Sequence[str]) -> list[str]:
        return list(names)


NAMES = [*(f"s{number}" for number in range(8)), *(f"quotes.{place}" for place in range(12))]


async def offsets(hub: Hub, current: Registration) -> list[int]:
    session = await hub.open_session(current)
    items = await session.receive(10_000, 0)
    await session.close()
    return [item.offset for item in items if isinstance(item, Delivery)]


@pytest.mark.parametrize("seed", range(3))
def test_mailboxes_stay_as_they_are_when_the_number_of_gateways_changes(tmp_path: Path, seed: int) -> None:
    """Against plain lists, over a random history of events, acknowledgements, removals and merged files."""
    rng = random.Random(seed)
    members = block(20, 0, 12)
    current = {f"s{number}": registration(number + 1, f"s{number}") for number in range(8)}
    current |= {f"quotes.{place}": registration(20 + place, f"quotes.{place}") for place in range(12)}
    registered: list[Registration | Block] = [*(current[f"s{number}"] for number in range(8)), members]
    waiting: dict[str, list[int]] = {name: [] for name in NAMES}

    async def live_through(disk: Disk, count: int, start: int) -> int:
        gateways = Gateways(disk, count, registered)
        for _ in range(70):
            end = start + rng.randint(1, 3)
            rows = {
                each.number: [offset for offset in range(start, end) if rng.random() < 0.4]
                for each in current.values()
            }
            gateways.feed(start, end, rows)
            start = end
            for name in waiting:
                waiting[name] += rows[current[name].number]
            name = rng.choice([name for name in waiting if name != "quotes.0"])  # which holds all files
            if waiting[name] and rng.random() < 0.7:
                last = rng.choice(waiting[name])
                await gateways.owner(name).acknowledge(name, last)
                waiting[name] = [offset for offset in waiting[name] if offset > last]
            if rng.random() < 0.02:
                await gateways.housekeep()
        gateways.settle()
        await gateways.housekeep()
        assert all(len(hub.mailboxes.ranges) < 64 for hub in gateways.hubs), "small files are merged"
        gone = rng.choice([name for name in waiting if name.startswith("s")])
        del waiting[gone]
        ended = removed(current[gone], start)
        registered[registered.index(current.pop(gone))] = ended
        gateways.register([ended])
        for name in waiting:
            owner = gateways.owner(name)
            assert owner.pending(name) == len(waiting[name])
            assert await offsets(owner, current[name]) == waiting[name]
            assert [hub.pending(name) for hub in gateways.hubs if hub is not owner] == [0] * (count - 1)
        await gateways.close()
        return start

    with site_disk(tmp_path) as disk:
        start = 0
        for count in rng.sample(range(1, 6), 3):
            start = asyncio.run(live_through(disk, count, start))


def test_block_that_ends_is_gone_from_every_gateway(tmp_path: Path) -> None:
    async def scenario(disk: Disk) -> None:
        members = block(20, 0, 12)
        gateways = Gateways(disk, 3, [members])
        gateways.feed(0, 5, {number: [0, 4] for number in range(20, 32)})
        await gateways.owner("quotes.5").acknowledge("quotes.5", 0)
        assert [hub.subscriptions for hub in gateways.hubs] == [4, 4, 4]
        gateways.register([replace(members, until=5)])
        assert [hub.subscriptions for hub in gateways.hubs] == [0, 0, 0]
        finished = [await hub.housekeep(SECOND_US) for hub in gateways.hubs]
        assert [each.blocks for each in finished] == [[20], [20], [20]], "each has done with its part"
        await gateways.close()

    with site_disk(tmp_path) as disk:
        asyncio.run(scenario(disk))
