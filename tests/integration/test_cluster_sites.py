"""Real sites that route by clusters, over loopback: each gets exactly what its subscribers ask for, once."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from culver.site import RunningSite
from support.gateway import run
from support.overlay_sites import (
    WAIT_SECONDS,
    Overlay,
    nothing_more,
    publish,
    reached,
    receive,
    seen,
    status_of,
    subscribe,
)
from support.until import until


@pytest.fixture
def overlay(tmp_path: Path) -> Overlay:
    return Overlay(tmp_path, routing="clusters", clusters=2)


def test_events_reach_the_sites_of_all_clusters_that_want_them(overlay: Overlay) -> None:
    names = ["paris", "lyon", "bonn", "oslo"]

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            sites: dict[str, RunningSite] = {}
            for place, name in enumerate(names):
                sites[name] = await stack.enter_async_context(overlay.site(name, *names[:place]))
            for name, site in sites.items():
                await reached(site, *(other for other in names if other != name))
            sessions = {}
            for place, (name, site) in enumerate(sites.items()):
                registration = await subscribe(site, f"a >= {10 * place} AND a < {10 * place + 20}")
                positions = (await site.overlay.positions([registration]))[0]
                assert positions == {other: 0 for other in names if other != name}
                sessions[name] = await site.sessions.open(registration)
            for name in names:
                await publish(sites[name], *range(60))
            for place, name in enumerate(names):
                wanted = sorted([*range(10 * place, 10 * place + 20)] * 4)
                assert sorted(await receive(sessions[name], 80)) == wanted
            for session in sessions.values():
                await nothing_more(session, *sites.values())
                await session.close()
            clusters = [status_of(site).site.cluster for site in sites.values()]
            assert [clusters.count(each) for each in (0, 1)] == [2, 2]
            # What is matched exactly by the carrier is wanted by somebody.
            assert not any(each.false_positives for site in sites.values() for each in status_of(site).sites)

    run(scenario())


def test_sites_measure_what_they_can_bear_and_tell_it(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(lyon, "paris")
            session = await lyon.sessions.open(await subscribe(lyon, "a >= 0"))

            async def is_measured(number: int) -> bool:
                await publish(paris, number)
                assert await receive(session, 1) == [number]
                return all(status_of(site).site.load is not None for site in (paris, lyon))

            number = 0
            while not await is_measured(number):
                number += 1
            load = status_of(paris).site.load
            assert load is not None
            assert 0 < load.use < 1
            assert load.capacity > 0
            await session.close()

    run(scenario())


@pytest.mark.parametrize(
    ("other", "shown"),
    [({"routing": "b-drp"}, "b-drp"), ({"clusters": 3}, "clusters 3"), ({"clusters": 0}, "clusters")],
)
def test_peer_with_another_routing_is_refused_with_a_reason(
    overlay: Overlay, other: dict[str, Any], shown: str
) -> None:
    words = f"lyon routes by {shown} and paris by clusters 2"

    async def scenario() -> None:
        strange = replace(overlay.settings("lyon", "paris"), **other)
        async with overlay.site("paris") as paris, overlay.site("lyon", overlay=strange) as lyon:
            await until(lambda: words in _reasons(paris), WAIT_SECONDS)
            await until(lambda: words in status_of(lyon).peers[0].failure, WAIT_SECONDS)
            assert not status_of(paris).links
            assert not status_of(lyon).sites

    run(scenario())


def _reasons(site: RunningSite) -> str:
    return " ".join(each.reason for each in status_of(site).refusals)


def test_mailboxes_of_another_routing_are_dropped(overlay: Overlay) -> None:
    async def deliver(number: int, **routing: Any) -> None:
        settings = {name: replace(overlay.settings(name, *peers), **routing) for name, *peers in _PAIR}
        async with (
            overlay.site("paris", overlay=settings["paris"]) as paris,
            overlay.site("lyon", overlay=settings["lyon"]) as lyon,
        ):
            await reached(lyon, "paris")
            session = await lyon.sessions.open(await subscribe(lyon, "a > 0", f"s{number}"))
            await publish(paris, number)
            assert await receive(session, 1) == [number]
            assert paris.overlay.mailboxes == 1
            await session.close()

    async def scenario() -> None:
        await deliver(1, routing="b-drp")
        await deliver(2)
        await deliver(3, routing="b-drp")

    run(scenario())


_PAIR = (("paris",), ("lyon", "paris"))


def test_damaged_claims_are_named_and_members_claim_anew(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("lyon", "paris") as lyon:
            async with overlay.site("paris") as paris:
                await reached(lyon, "paris")
                registration = await subscribe(lyon, "a > 0")
                session = await lyon.sessions.open(registration)
                await publish(paris, 1)
                assert await receive(session, 1) == [1]
            claims = overlay.directory / "paris" / "overlay" / "clusters" / "claims.json"
            claims.write_bytes(claims.read_bytes().replace(b"lyon", b"bonn"))
            async with overlay.site("paris") as paris:
                assert any("claims.json was damaged" in each for each in status_of(paris).troubles)
                await reached(paris, "lyon")
                await until(lambda: seen(paris, "lyon").in_effect_from is not None, WAIT_SECONDS)
                await publish(paris, 2)
                assert await receive(session, 1) == [2]
            await session.close()

    run(scenario())
