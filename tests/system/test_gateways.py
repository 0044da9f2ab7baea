"""Several gateways of one site: whatever is killed, every mailbox has what the reference says."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import culver
from culver.delivery.shares import share_of
from culver.model.evaluate import evaluate
from culver.model.formats import parse_event
from culver.model.language import parse
from support.service import Service
from support.until import until

SEED = 20130707
FILTERS = ["TRUE", "even", "third = 1", "third = 0 AND part = 'b'", "n < 150 OR part = 'c'", "NOT even"]


class Published:
    """What was acknowledged, by position, and what may or may not be in the log."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[str, Any]] = {}
        self.unknown: set[str] = set()

    def before(self, offset: int) -> "Published":
        earlier = Published()
        earlier.acknowledged = {at: event for at, event in self.acknowledged.items() if at < offset}
        earlier.unknown = self.unknown
        return earlier

    def check(self, text: str, received: dict[int, dict[str, Any]], since: int = 0) -> None:
        condition = parse(text).condition
        required = {
            offset
            for offset, event in self.acknowledged.items()
            if offset >= since and evaluate(condition, parse_event(culver_json(event))) is True
        }
        missing = required - received.keys()
        assert not missing, (text, sorted(missing)[:10])
        for offset in received.keys() - required:
            assert received[offset]["key"] in self.unknown, (text, offset, received[offset])


def culver_json(event: dict[str, Any]) -> bytes:
    return httpx.Request("POST", "http://site", json=event).content


async def publish(
    urls: Sequence[str], published: Published, numbers: Sequence[int], rng: random.Random
) -> None:
    """A batch through each gateway in turn."""
    batches = [numbers[at : at + 10] for at in range(0, len(numbers), 10)]
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        for url, batch in zip(itertools.cycle(urls), batches, strict=False):
            for attempt in itertools.count():
                events = [
                    {
                        "n": n,
                        "even": n % 2 == 0,
                        "third": n % 3,
                        "part": rng.choice("abc"),
                        "key": f"{n}-{attempt}",
                    }
                    for n in batch
                ]
                keys = {event["key"] for event in events}
                published.unknown |= keys
                try:
                    answer = await http.post(f"{url}/v1/events", json=events)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                    continue
                if answer.status_code == 503:
                    await asyncio.sleep(0.05)
                    continue
                assert answer.status_code == 200, answer.text
                published.unknown -= keys
                first = answer.json()["first_offset"]
                published.acknowledged |= {first + at: event for at, event in enumerate(events)}
                break


async def stream(client: culver.Client, subscription: str, received: dict[int, dict[str, Any]]) -> None:
    """Receive and acknowledge until cancelled. Nothing comes twice."""
    async for message in client.subscribe(durable=subscription):
        assert message.offset not in received, (subscription, message.offset)
        received[message.offset] = message.event


def poll(http: httpx.Client, url: str, subscription: str, most: int) -> dict[int, dict[str, Any]]:
    """Take up to so many out of a mailbox, wherever it is."""
    received: dict[int, dict[str, Any]] = {}
    while len(received) < most:
        path = f"{url}/v1/subscriptions/{subscription}"
        limit = min(1000, most - len(received))
        items = (
            http.get(f"{path}/events", params={"limit": limit, "wait": 0}).raise_for_status().json()["items"]
        )
        if not items:
            break
        for item in items:
            assert item["offset"] not in received
            received[item["offset"]] = item["event"]
        last = {"delivery_id": items[-1]["delivery_id"]}
        http.post(f"{path}/ack", json=last).raise_for_status()
    return received


def gateway_processes(service: Service) -> list[psutil.Process]:
    """By number."""
    found = [each for each in service.processes() if "culver.assembly_gateway" in each.cmdline()]
    return sorted(found, key=lambda each: each.pid)


def wait_for_gateways(http: httpx.Client, url: str) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 30
    while True:
        gateways: list[dict[str, Any]] = http.get(f"{url}/v1/gateways").raise_for_status().json()["gateways"]
        if all(each["state"] == "running" for each in gateways):
            return gateways
        assert time.monotonic() < deadline, gateways
        time.sleep(0.05)


@pytest.mark.system
@pytest.mark.spark
def test_mailboxes_of_all_gateways_are_complete_after_kills_and_with_another_number_of_gateways(
    tmp_path: Path,
) -> None:
    rng = random.Random(SEED)
    published = Published()
    filters = {f"{name}{number}": text for name in ("calm", "busy") for number, text in enumerate(FILTERS)}
    filters |= {f"rows.{place}": f"n = {place}" for place in range(9)}
    received: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in filters}
    since: dict[str, int] = {}
    with (
        Service(tmp_path / "data", "spark", "--spark-master", "local[1]", gateways=3) as service,
        httpx.Client(timeout=60, trust_env=False, follow_redirects=True) as http,
    ):
        service.wait_until_ready()
        urls = [each["url"] for each in wait_for_gateways(http, service.url)]
        assert len(urls) == 3
        assert {share_of(name, 3) for name in filters} == {0, 1, 2}

        for turn, (name, text) in zip(itertools.cycle(urls), filters.items(), strict=False):
            if not name.startswith("rows."):
                made = http.post(f"{turn}/v1/subscriptions", json={"id": name, "filter": text})
                assert made.status_code == 201, made.text
        rows = {"filter": "n = ?", "rows": [[place] for place in range(9)]}
        assert http.post(f"{urls[2]}/v1/sets/rows", json=rows).status_code == 201

        def is_complete(name: str) -> bool:
            return complete(published, filters[name], received[name])

        async def first_part() -> None:
            async with (
                culver.connect(urls[0]) as a,
                culver.connect(urls[1]) as b,
                culver.connect(urls[2]) as c,
            ):
                clients = [a, b, c]
                names = [name for name in filters if name.startswith("busy")]
                async with asyncio.TaskGroup() as group:
                    readers = [
                        group.create_task(stream(client, name, received[name]))
                        for client, name in zip(itertools.cycle(clients), names, strict=False)
                    ]
                    await publish(urls, published, range(200), rng)
                    publishing = group.create_task(publish(urls, published, range(200, 600), rng))
                    await until(lambda: len(published.acknowledged) >= 300)
                    victim = gateway_processes(service)[rng.randrange(2)]
                    victim.kill()
                    await publishing
                    replaced = await b.replace_subscription("calm2", "third = 2")
                    since["calm2"] = replaced.since
                    await publish(urls, published, range(600, 800), rng)
                    await until(lambda: all(is_complete(name) for name in names), 30)
                    for reader in readers:
                        reader.cancel()

        asyncio.run(asyncio.wait_for(first_part(), 60))
        service.wait_until_delivered()
        wait_for_gateways(http, service.url)
        for name in filters:
            if name.startswith("calm"):
                received[name] |= poll(http, urls[1], name, 40)
        listed = {each["id"]: each["pending"] for each in pages(http, urls[2])}
        assert set(listed) == filters.keys()

        gateways = gateway_processes(service)
        service.process.kill()
        service.process.wait()
        _, alive = psutil.wait_procs(gateways, timeout=8)
        assert not alive, "they end with their site"
        service.kill()

        # All that was published has been matched: the mailboxes can be read long before Spark is there.
        service.gateways = 2
        service.start()
        service.wait_until_listening()
        assert len(wait_for_gateways(http, service.url)) == 2
        for name, text in filters.items():
            rest = poll(http, urls[1], name, 10_000)
            assert not rest.keys() & received[name].keys(), "what was acknowledged does not come again"
            assert name not in listed or len(rest) <= listed[name]
            received[name] |= rest
            if name == "calm2":
                before = {offset: event for offset, event in received[name].items() if offset < since[name]}
                after = {offset: event for offset, event in received[name].items() if offset >= since[name]}
                published.check("third = 2", after, since[name])
                published.before(since[name]).check(text, before)
            else:
                published.check(text, received[name])


def complete(published: Published, text: str, received: dict[int, dict[str, Any]]) -> bool:
    try:
        published.check(text, received)
    except AssertionError:
        return False
    return True


def pages(http: httpx.Client, url: str) -> list[dict[str, Any]]:
    page: list[dict[str, Any]] = http.get(f"{url}/v1/subscriptions", params={"limit": 1000}).json()[
        "subscriptions"
    ]
    return page
