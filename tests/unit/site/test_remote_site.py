"""What a site does for a further gateway process beside its roles: when that dies, and when the disk is full."""

import asyncio
import socket
from typing import cast

import pytest

from culver.errors import NotFound
from culver.model.language.parser import parse
from culver.registry.registration import SubscriptionSpec
from culver.roles import Subscriptions
from culver.site.gateway_follower import GatewayFollower
from culver.site.peer import Peer
from culver.site.remote_site import ServedSite
from culver.site.roles.hub_sessions import LiveSubscriptions
from support.fake_site import FakeSite
from support.gateway import run
from support.until import settled


@pytest.mark.parametrize("dies", [False, True])
def test_live_subscription_ends_if_its_gateway_dies_before_it_hears_of_it(dies: bool) -> None:
    async def scenario() -> None:
        site, gone = FakeSite(), asyncio.Event()
        live = LiveSubscriptions(site.subscriptions.remove)
        served = ServedSite(site, live, gone.is_set, lambda: 0, settled)
        if dies:
            gone.set()
        specs = [
            SubscriptionSpec(parse("TRUE"), id="live-a", durable=False),
            SubscriptionSpec(parse("TRUE"), id="kept"),
        ]
        await served.subscriptions.add(specs)
        others = cast(Subscriptions, served.subscriptions)
        assert [each.id for each in await others.page(None, 9)] == (["kept"] if dies else ["kept", "live-a"])
        if dies:
            with pytest.raises(NotFound):
                await others.get("live-a")

    run(scenario())


@pytest.mark.parametrize("works", [True, False])
def test_a_gateway_waits_for_the_reserve_of_its_site_and_no_longer_if_that_fails(works: bool) -> None:
    async def scenario() -> None:
        given_up: list[str] = []

        async def give_up() -> None:
            given_up.append("reserve")
            if not works:
                raise OSError("broken")

        site = FakeSite()
        live = LiveSubscriptions(site.subscriptions.remove)
        here = Peer(ServedSite(site, live, lambda: False, lambda: 0, give_up), lambda message: None)
        ends = socket.socketpair()
        await here.connect(ends[0])
        async with GatewayFollower.connected(ends[1]) as follower:
            await asyncio.to_thread(follower.ask_for_reserve)
            assert given_up == ["reserve"]
        await here.lost.wait()

    run(scenario())
