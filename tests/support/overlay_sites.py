"""Real sites of an overlay in one process, over loopback, and what tests do with them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from culver.assembly import open_site
from culver.config import OverlaySettings, PipelineSettings, Settings
from culver.delivery import Delivery
from culver.messages import OtherSite, OverlayStatus
from culver.model.formats import parse_event
from culver.model.language import parse
from culver.registry import Registration, SubscriptionSpec
from culver.roles import Session
from culver.site import RunningSite
from support.service import free_port
from support.until import settled, until

WAIT_SECONDS = 20.0


class Overlay:
    """Sites with names, data directories and ports of their own, which can be started again. `settings` are those of
    the overlay that all of them have."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self._settings = settings
        self._ports: dict[str, int] = {}

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports.setdefault(name, free_port())}"

    def settings(self, name: str, *peers: str) -> OverlaySettings:
        return OverlaySettings(
            name=name,
            listen=self.address(name),
            peers=", ".join(map(self.address, peers)),
            **self._settings,
        )

    @asynccontextmanager
    async def site(self, name: str, *peers: str, **sections: Any) -> AsyncIterator[RunningSite]:
        settings = Settings(
            data_dir=self.directory / name,
            pipeline=PipelineSettings(engine="inline"),
            overlay=self.settings(name, *peers),
        )
        async with open_site(replace(settings, **sections)) as site:
            yield site


async def publish(site: RunningSite, *numbers: int) -> int:
    events = [
        parse_event(b'{"a": %d, "from": "%s"}' % (n, site.settings.overlay.name.encode())) for n in numbers
    ]
    return (await site.publications.publish(events)).next_offset


async def subscribe(site: RunningSite, text: str, name: str = "s") -> Registration:
    """Returns once every site that can be reached knows of it."""
    (registration,) = await site.subscriptions.add([SubscriptionSpec(parse(text), name)])
    assert await site.overlay.wait([registration], WAIT_SECONDS)
    return registration


async def receive(session: Session, count: int) -> list[int]:
    """The numbers of so many events, which are acknowledged."""
    numbers: list[int] = []
    while len(numbers) < count:
        items = await session.receive(count - len(numbers), WAIT_SECONDS)
        assert items, f"only {numbers} came"
        deliveries = [item for item in items if isinstance(item, Delivery)]
        assert len(deliveries) == len(items), items
        numbers += [int(json.loads(item.payload)["a"]) for item in deliveries]
        await session.acknowledge(deliveries[-1].offset)
    return numbers


def status_of(site: RunningSite) -> OverlayStatus:
    status = site.overlay.status()
    assert status is not None
    return status


def seen(site: RunningSite, name: str) -> OtherSite:
    (found,) = [each for each in status_of(site).sites if each.name == name]
    return found


async def reached(site: RunningSite, *names: str) -> None:
    def reaches() -> bool:
        return {each.name for each in status_of(site).sites if each.reachable} >= set(names)

    await until(reaches, WAIT_SECONDS)


async def nothing_more(session: Session, *sites: RunningSite) -> None:
    """Everything that was sent has been acknowledged, and the subscriber has nothing left."""
    await until(
        lambda: not any(each.pending for site in sites for each in status_of(site).sites), WAIT_SECONDS
    )
    await settled()
    assert await session.receive(1, 0) == []
