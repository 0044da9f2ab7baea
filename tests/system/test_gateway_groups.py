"""A group stream of the client over a site with several gateways."""

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest

import culver
from culver.delivery.shares import share_of
from support.service import Service
from support.until import until


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.slow(seconds=20)
def test_a_group_is_followed_at_every_gateway_and_ends_with_its_last_member(tmp_path: Path) -> None:
    members = [f"rows.{place}" for place in range(9)]
    assert {share_of(name, 2) for name in members} == {0, 1}

    async def scenario(service: Service) -> None:
        async with culver.connect(service.url, timeout_seconds=60) as client:
            await client.subscribe_many("n >= ?", [[place] for place in range(9)], name="rows")
            with pytest.raises(culver.RequestRefused, match="there is no set 'row'"):
                await client.subscribe_set("row").start()
            received: dict[int, list[str]] = {}
            async with client.subscribe_set("rows", ack="manual") as stream:
                assert stream.count == 9
                await client.publish([{"n": n} for n in range(12)])
                message = None
                while sum(map(len, received.values())) < sum(range(1, 10)) + 3 * 9:
                    message = await anext(stream)
                    received.setdefault(message.offset, []).extend(message.subscriptions)
                expected = {n: {f"rows.{place}" for place in range(9) if place <= n} for n in range(12)}
                assert {offset: set(names) for offset, names in received.items()} == expected
                assert sum(map(len, received.values())) == sum(map(len, expected.values()))
                assert message is not None
                await message.ack()
                assert {each.pending async for each in client.subscriptions()} == {0}
                # All members at one gateway go, and those at the other one stay.
                for name in members:
                    if share_of(name, 2) == 0:
                        await client.delete_subscription(name)
                await client.publish(n=100)
                assert (await anext(stream))["n"] == 100
                await client.delete_set("rows")
                with contextlib.suppress(StopAsyncIteration):
                    await asyncio.wait_for(anext(stream), 30)
                    raise AssertionError("it does not end")

    with (
        Service(tmp_path / "data", "spark", "--spark-master", "local[1]", gateways=2) as service,
        httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http,
    ):
        service.wait_until_ready()

        def running() -> bool:
            gateways = http.get("/v1/gateways").raise_for_status().json()["gateways"]
            return all(each["state"] == "running" for each in gateways)

        asyncio.run(until(running, 60))
        asyncio.run(scenario(service))
