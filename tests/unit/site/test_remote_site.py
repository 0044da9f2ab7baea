"""A further gateway process dies while the site registers a live subscription for it."""

import asyncio
from typing import cast

import pytest

from culver.errors import NotFound
from culver.model.language.parser import parse
from culver.registry.registration import SubscriptionSpec
from culver.roles import Subscriptions
from culver.site.hub_sessions import LiveSubscriptions
from culver.site.remote_site import ServedSite
from support.fake_site import FakeSite
from support.gateway import run


@pytest.mark.parametrize("dies", [False, True])
def test_live_subscription_ends_if_its_gateway_dies_before_it_hears_of_it(dies: bool) -> None:
    async def scenario() -> None:
        site, gone = FakeSite(), asyncio.Event()
        live = LiveSubscriptions(site.subscriptions.remove)
        served = ServedSite(site, live, gone.is_set, lambda: 0)
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
