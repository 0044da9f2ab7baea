"""Real sites that route by clusters, over loopback: each gets exactly what its subscribers ask for, once."""

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from culver.config import MEASURED_CLUSTERS
from culver.site import RunningSite
from culver.site.wide_area.overlay_runner import OverlayRunner
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


@pytest.mark.slow(seconds=3)
def test_a_site_with_too_much_to_do_hands_a_stream_over_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = Overlay(tmp_path, routing="clusters", clusters=1)

    def carrier(origin: RunningSite) -> str | None:
        (cluster,) = status_of(origin).clusters
        return cluster.carrier if cluster.is_confirmed else None

    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(paris, "lyon")
            sessions = [await site.sessions.open(await subscribe(site, "a >= 0")) for site in (paris, lyon)]
            await until(lambda: carrier(paris) == "paris", WAIT_SECONDS)
            # Both sites share a loop here. As if paris were too slow for half of its messages, and lyon idle:
            for site, busy_seconds in ((paris, 2.0), (lyon, 0.01)):
                assert isinstance(site.overlay, OverlayRunner)
                worked = partial(site.overlay.strategy.worked, busy_seconds)
                monkeypatch.setattr(site.overlay.strategy, "worked", lambda _, worked=worked: worked())
            number = 0
            while carrier(paris) != "lyon":
                assert number < 3_000
                await publish(paris, number)
                assert [await receive(each, 1) for each in sessions] == [[number]] * 2
                number += 1
            await publish(paris, *range(number, number + 100))
            for session in sessions:
                assert await receive(session, 100) == [*range(number, number + 100)]
                await nothing_more(session, paris, lyon)
                await session.close()

    run(scenario())


def test_sites_with_numbers_of_clusters_of_their_own_feed_each_other(overlay: Overlay) -> None:
    async def scenario() -> None:
        measured = replace(overlay.settings("lyon", "paris"), clusters=MEASURED_CLUSTERS)
        alone = replace(overlay.settings("oslo", "lyon"), clusters=3)
        async with (
            overlay.site("paris") as paris,
            overlay.site("lyon", overlay=measured) as lyon,
            overlay.site("oslo", overlay=alone) as oslo,
        ):
            await reached(oslo, "paris", "lyon")
            session = await oslo.sessions.open(await subscribe(oslo, "a > 0"))
            await publish(paris, 1)
            assert await receive(session, 1) == [1]
            await publish(lyon, 2)
            assert await receive(session, 1) == [2]
            sites = {each.name: each.clusters for each in status_of(paris).sites}
            assert sites == {"lyon": 2, "oslo": 3}
            await session.close()

    run(scenario())


def test_peer_with_another_routing_is_refused_with_a_reason(overlay: Overlay) -> None:
    words = "lyon routes by b-drp and paris by clusters"

    async def scenario() -> None:
        strange = replace(overlay.settings("lyon", "paris"), routing="b-drp")
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
