"""Several gateways of one site: whatever is killed, every mailbox has what the reference says."""

import asyncio
import contextlib
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import culver
from culver.delivery.shares import share_of
from culver.model.formats import parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from support.service import Service
from support.until import until

SEED = 20130707
FILTERS = ["TRUE", "even", "third = 1", "third = 0 AND part = 'b'", "n < 150 OR part = 'c'", "NOT even"]
SINGLES = {f"{kind}{number}": text for kind in ("calm", "busy") for number, text in enumerate(FILTERS)}
MEMBERS = {f"rows.{place}": f"n = {place}" for place in range(9)}
REPLACED, REPLACEMENT = "calm2", "third = 2"
BATCH = 10

Events = dict[int, dict[str, Any]]
"""By offset."""


class Account:
    """What was published, who must have it, and who has received it."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.unknown: set[str] = set()  # keys of events that may or may not be in the log
        self.received: dict[str, Events] = {name: {} for name in SINGLES | MEMBERS}
        self.since = 10**9  # from here on, the replacement is in effect
        self._conditions = {
            text: parse(text).condition for text in {*SINGLES.values(), *MEMBERS.values(), REPLACEMENT}
        }
        self._matching: dict[str, set[int]] = {text: set() for text in self._conditions}

    def note(self, first: int, events: Sequence[dict[str, Any]]) -> None:
        """Acknowledged from that offset on."""
        self.acknowledged += len(events)
        for offset, event in enumerate(events, first):
            self.unknown.discard(event["key"])
            decoded = parse_event(json.dumps(event).encode())
            for text, condition in self._conditions.items():
                if evaluate(condition, decoded) is True:
                    self._matching[text].add(offset)

    def required(self, name: str) -> set[int]:
        matching = self._matching[(SINGLES | MEMBERS)[name]]
        if name != REPLACED:
            return matching
        earlier = {offset for offset in matching if offset < self.since}
        return earlier | {offset for offset in self._matching[REPLACEMENT] if offset >= self.since}

    def take(self, name: str, events: Events) -> None:
        """Nothing comes twice."""
        again = events.keys() & self.received[name].keys()
        assert not again, (name, again)
        self.received[name] |= events

    def is_complete(self, name: str) -> bool:
        return self.required(name) <= self.received[name].keys()

    def check(self, name: str) -> None:
        received, required = self.received[name], self.required(name)
        assert required <= received.keys(), (name, sorted(required - received.keys())[:10])
        for offset in received.keys() - required:
            assert received[offset]["key"] in self.unknown, (name, offset, received[offset])


async def publish(urls: Sequence[str], account: Account, numbers: range, rng: random.Random) -> None:
    """A batch through each gateway in turn, again where it is not acknowledged."""
    batches = [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)]
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        for url, batch in zip(itertools.cycle(urls), batches, strict=False):
            for attempt in itertools.count():
                events: list[dict[str, Any]] = [
                    {
                        "n": n,
                        "even": n % 2 == 0,
                        "third": n % 3,
                        "part": rng.choice("abc"),
                        "key": f"{n}-{attempt}",
                    }
                    for n in batch
                ]
                account.unknown |= {str(event["key"]) for event in events}
                try:
                    answer = await http.post(f"{url}/v1/events", json=events)
                except httpx.TransportError:
                    continue
                if answer.status_code == 503:
                    continue
                assert answer.status_code == 200, answer.text
                account.note(answer.json()["first_offset"], events)
                break


async def stream(client: culver.Client, name: str, account: Account) -> None:
    """Receive and acknowledge, until cancelled."""
    async for message in client.subscribe(durable=name):
        account.take(name, {message.offset: message.event})


async def publish_and_stream(service: Service, urls: Sequence[str], account: Account) -> None:
    """The busy subscriptions are received, each by way of a gateway that need not have it, while one gateway is
    killed."""
    rng = random.Random(SEED)
    busy = [name for name in SINGLES if name.startswith("busy")]
    async with (
        culver.connect(urls[0]) as a,
        culver.connect(urls[1]) as b,
        culver.connect(urls[2]) as c,
        asyncio.TaskGroup() as group,
    ):
        turns = zip(itertools.cycle((a, b, c)), busy, strict=False)
        readers = [group.create_task(stream(client, name, account)) for client, name in turns]
        publishing = group.create_task(publish(urls, account, range(400), rng))
        await until(lambda: account.acknowledged >= 200)
        rng.choice(gateway_processes(service)).kill()
        await publishing
        account.since = (await b.replace_subscription(REPLACED, REPLACEMENT)).since
        await publish(urls, account, range(400, 600), rng)
        await until(lambda: all(map(account.is_complete, busy)), 30)
        for reader in readers:
            reader.cancel()


def take_out(http: httpx.Client, url: str, name: str, most: int) -> Events:
    """Up to so many of a mailbox, acknowledged, wherever it is."""
    path = f"{url}/v1/subscriptions/{name}"
    items = http.get(f"{path}/events", params={"limit": most, "wait": 0}).raise_for_status().json()["items"]
    if items:
        last = {"delivery_id": items[-1]["delivery_id"]}
        http.post(f"{path}/ack", json=last).raise_for_status()
    return {item["offset"]: item["event"] for item in items}


def gateway_processes(service: Service) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for each in service.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # one of Spark's, which come and go
            if "culver.assembly" in each.cmdline():
                found.append(each)
    return found


def running_gateways(http: httpx.Client, url: str) -> list[str]:
    """Their addresses, once all of them run."""
    deadline = time.monotonic() + 30
    while True:
        gateways = http.get(f"{url}/v1/gateways").raise_for_status().json()["gateways"]
        if all(each["state"] == "running" for each in gateways):
            return [each["url"] for each in gateways]
        assert time.monotonic() < deadline, gateways
        time.sleep(0.05)


@pytest.mark.system
def test_inline_engine_with_several_gateways_is_refused_at_the_start(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "culver",
        "serve",
        "--engine",
        "inline",
        "--gateways",
        "2",
        "--port",
        "0",
    ]
    command += ["--data-dir", str(tmp_path / "data")]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "several gateways need the spark engine" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.slow(seconds=25)
def test_mailboxes_of_all_gateways_are_complete_after_kills_and_with_another_number_of_gateways(
    tmp_path: Path,
) -> None:
    account = Account()
    assert {share_of(name, 3) for name in SINGLES} == {share_of(name, 3) for name in MEMBERS} == {0, 1, 2}
    with (
        Service(
            tmp_path / "data",
            "spark",
            "--spark-master",
            "local[1]",
            gateways=3,
            CULVER_PIPELINE_SPARK_CONF="spark.ssl.keyPassword=swordfish",
        ) as service,
        httpx.Client(timeout=60, trust_env=False, follow_redirects=True) as http,
    ):
        service.wait_until_ready()
        urls = running_gateways(http, service.url)
        for url in urls:
            assert http.get(f"{url}/healthz", headers={"Host": "evil.example"}).status_code == 403
        assert "swordfish" not in " ".join(word for each in service.processes() for word in each.cmdline())
        assert "swordfish" not in service.log_tail()
        for url, (name, text) in zip(itertools.cycle(urls), SINGLES.items(), strict=False):
            http.post(f"{url}/v1/subscriptions", json={"id": name, "filter": text}).raise_for_status()
        rows = {"filter": "n = ?", "rows": [[place] for place in range(len(MEMBERS))]}
        http.post(f"{urls[2]}/v1/sets/rows", json=rows).raise_for_status()

        asyncio.run(publish_and_stream(service, urls, account))
        service.wait_until_delivered()
        assert running_gateways(http, service.url) == urls
        for name in SINGLES:
            if name.startswith("calm"):
                account.take(name, take_out(http, urls[1], name, 40))
        listed = http.get(f"{urls[2]}/v1/subscriptions").raise_for_status().json()["subscriptions"]
        pending = {each["id"]: each["pending"] for each in listed}
        assert pending.keys() == account.received.keys()
        for name in account.received:
            path = f"{urls[0]}/v1/subscriptions/{name}/mailbox"
            part = http.get(path).raise_for_status().json()
            query = {"from": part["from"], "to": part["to"], "limit": 10_000}
            page = http.get(f"{path}/events", params=query).raise_for_status().json()
            assert part["count"] == len(page["events"]) == pending[name]

        gateways = gateway_processes(service)
        service.process.kill()
        _, alive = psutil.wait_procs(gateways, timeout=8)
        assert not alive, "they end with their site"
        service.kill()

        # All that was published has been matched: the mailboxes can be read long before Spark is there.
        service.gateways = 2
        service.start()
        service.wait_until_listening()
        assert running_gateways(http, service.url) == urls[:2]
        for name in account.received:
            rest = take_out(http, urls[1], name, 1000)
            assert len(rest) == pending[name]
            account.take(name, rest)
            account.check(name)
