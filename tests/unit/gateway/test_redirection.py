"""A gateway sends clients on to the one that has their subscription."""

import asyncio
import json

import pytest

import culver
from support.fake_site import FakeSite
from support.gateway import gateway_settings, memory_client, run, served, socket_to


def test_receiving_is_redirected_to_the_gateway_that_has_the_mailbox() -> None:
    async def scenario() -> None:
        site = FakeSite()
        site.ports["alerts"] = 8082
        async with memory_client(site) as client:
            await client.post("/v1/subscriptions", json={"id": "alerts", "filter": "TRUE"})
            poll = await client.get("/v1/subscriptions/alerts/events?limit=3&wait=0")
            assert poll.status_code == 307
            assert (
                poll.headers["location"] == "http://site:8082/v1/subscriptions/alerts/events?limit=3&wait=0"
            )
            assert poll.json()["code"] == "elsewhere"
            assert poll.json()["url"] == "http://site:8082"
            stream = await client.get("/v1/subscriptions/alerts/stream")
            assert stream.status_code == 307
            acknowledged = await client.post("/v1/subscriptions/alerts/ack", json={"delivery_id": "alerts:1"})
            assert acknowledged.headers["location"] == "http://site:8082/v1/subscriptions/alerts/ack"
            assert (await client.get("/v1/subscriptions/alerts")).status_code == 200
            assert (await client.delete("/v1/subscriptions/alerts")).status_code == 204

    run(scenario())


@pytest.mark.parametrize("host", ["[::1]:8080", "site:", "SITE:99999", "[1:2]"])
def test_odd_host_headers_get_an_address_all_the_same(host: str) -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings(allowed_hosts="*"))
        site.ports["alerts"] = 8082
        async with memory_client(site) as client:
            answer = await client.get("/v1/subscriptions/alerts/events", headers={"Host": host})
            assert answer.status_code == 307
            assert answer.json()["url"].startswith("http://")
            assert answer.json()["url"].endswith(":8082")

    run(scenario())


def test_attaching_elsewhere_is_refused_with_the_address_and_the_connection_goes_on() -> None:
    async def scenario() -> None:
        site = FakeSite(gateway_settings())
        site.ports["alerts"] = 8082
        async with served(site) as server, socket_to(server) as socket:
            for reference in range(150):  # more than the errors that a connection may make
                await socket.send(json.dumps({"op": "attach", "subscription": "alerts", "ref": reference}))
                refused = json.loads(await socket.recv())
                assert (refused["op"], refused["code"], refused["ref"]) == ("error", "elsewhere", reference)
                assert refused["url"] == "http://127.0.0.1:8082"

    run(scenario())


def test_client_follows_a_subscription_to_its_gateway() -> None:
    async def scenario() -> None:
        here, there = FakeSite(gateway_settings()), FakeSite(gateway_settings())
        async with served(here) as first, served(there) as second:
            here.ports["alerts"] = second.port
            async with culver.connect(second.url) as client:
                await client.create_subscription("TRUE", id="alerts")
            async with culver.connect(first.url) as client, client.subscribe(durable="alerts") as stream:
                async with culver.connect(second.url) as publisher:
                    await publisher.publish([{"n": 1}, {"n": 2}])
                messages = [await asyncio.wait_for(anext(stream), 10) for _ in range(2)]
                assert [message.event for message in messages] == [{"n": 1}, {"n": 2}]
                await messages[-1].ack()
                assert there.acknowledged == {"alerts": 1}
            assert not here.open_sessions

    run(scenario())


def test_acknowledgement_by_http_is_followed_too() -> None:
    async def scenario() -> None:
        here, there = FakeSite(gateway_settings()), FakeSite(gateway_settings())
        async with served(here) as first, served(there) as second:
            here.ports["alerts"] = second.port
            async with culver.connect(second.url) as client:
                await client.create_subscription("TRUE", id="alerts")
                await client.publish({"n": 1})
            async with culver.connect(first.url) as client:
                stream = client.subscribe(durable="alerts", ack="manual")
                message = await asyncio.wait_for(anext(stream), 10)
                await stream.close()
                await message.ack()
            assert there.acknowledged == {"alerts": 0}

    run(scenario())
