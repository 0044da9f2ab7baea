"""The service is killed with `kill -9` while clients publish. They send again what they do not know of, and every
event is in the log once, at the place that its publisher was told."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import culver
from support.gateway import run
from support.service import Service
from support.severable import severable
from support.until import until

pytestmark = pytest.mark.system

TEXT = "x" * 30_000


@dataclass
class Journal:
    """What publishers were told: the offset of each of their events."""

    offsets: dict[int, int] = field(default_factory=dict)

    def note(self, numbers: range, receipt: culver.Receipt) -> None:
        assert len(numbers) == receipt.next_offset - receipt.first_offset
        self.offsets.update(zip(numbers, range(receipt.first_offset, receipt.next_offset), strict=True))


def stored(service: Service) -> dict[int, int]:
    """The offset of each event; fails where one is there twice."""
    found: dict[int, int] = {}
    service.http.follow_redirects = True
    for item in service.receive_all("all"):
        assert "event" in item, item
        assert found.setdefault(item["event"]["n"], item["offset"]) == item["offset"]
    return found


async def kill_and_start(service: Service) -> None:
    await asyncio.to_thread(service.kill)
    await asyncio.to_thread(service.start)
    await asyncio.to_thread(service.wait_until_ready)


async def publish(client: culver.Client, numbers: Iterator[range], journal: Journal) -> None:
    """Publish what the numbers say, one after the other: single events, batches, and some that go by HTTP."""
    for each in numbers:
        text = TEXT if len(each) > 20 else ""
        journal.note(each, await client.publish([{"n": n, "text": text} for n in each]))


def ranges(rng: random.Random, counts: list[int], first: int, end: int) -> Iterator[range]:
    while first < end:
        count = rng.choice(counts)
        yield range(first, first + count)
        first += count


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("engine", "gateways"),
    [
        pytest.param("inline", 1, marks=pytest.mark.slow(seconds=4)),
        pytest.param(
            "spark", 2, marks=[pytest.mark.spark, pytest.mark.thorough, pytest.mark.slow(seconds=40)]
        ),
    ],
)
def test_every_event_is_stored_once_through_kills(
    tmp_path: Path, full_length: bool, engine: str, gateways: int
) -> None:
    rng = random.Random(21)
    journal = Journal()

    async def play(service: Service) -> None:
        urls = [f"http://127.0.0.1:{service.port + at}" for at in range(gateways)]
        ended = False

        def endless(worker: int, counts: list[int]) -> Iterator[range]:
            most = 1_500 if counts == [25] else 10**9  # the mailbox has a limit
            for each in ranges(rng, counts, worker * 10**9, worker * 10**9 + most):
                if ended:
                    return
                yield each

        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(culver.connect(url, retry_seconds=120)) for url in urls
            ]
            await clients[0].create_subscription("n >= 0", id="all")
            work = [
                asyncio.create_task(publish(clients[worker % gateways], endless(worker, counts), journal))
                for worker, counts in enumerate([[1]] * 20 + [[1, 7]] * 4 + [[25]] * 2)
            ]
            for _ in range(10 if full_length else 2):
                count = len(journal.offsets)
                await until(lambda count=count: len(journal.offsets) > count + 300, 60)  # type: ignore[misc]
                await asyncio.sleep(rng.random() * 0.1)
                await kill_and_start(service)
            ended = True
            await asyncio.gather(*work)

    with Service(tmp_path / "data", engine, gateways=gateways) as service:
        service.wait_until_ready()
        run(play(service))
        service.wait_until_delivered()
        assert stored(service) == journal.offsets


@pytest.mark.slow(seconds=2)
def test_site_killed_between_append_and_answer_gives_the_first_receipt_afterwards(tmp_path: Path) -> None:
    async def play(service: Service) -> None:
        async with severable(service.port) as relay, culver.connect(relay.url) as client:
            await client.publish(n=0)
            relay.flowing.clear()
            works: list[asyncio.Task[Any]] = [
                asyncio.create_task(client.publish(n=1)),
                asyncio.create_task(client.publish([{"n": n, "text": TEXT} for n in range(2, 30)])),
                asyncio.create_task(client.publish_once({"n": 30}, publisher="loader", sequence=0)),
            ]
            await until(lambda: service.status()["log_next_offset"] == 31)
            await asyncio.to_thread(service.kill)
            relay.sever()
            relay.flowing.set()
            await kill_and_start(service)
            receipts = await asyncio.gather(*works)
        ranges = sorted((receipt.first_offset, receipt.next_offset) for receipt in receipts)
        assert [following - first for first, following in ranges].count(28) == 1
        assert [ranges[0][0], ranges[0][1], ranges[1][1], ranges[2][1]] == [
            1,
            ranges[1][0],
            ranges[2][0],
            31,
        ]
        assert receipts[2].repeated == 1
        assert service.status()["log_next_offset"] == 31

    with Service(tmp_path / "data") as service:
        service.wait_until_ready()
        run(play(service))


@pytest.mark.slow(seconds=2)
def test_numbers_outlive_the_events_in_the_log(tmp_path: Path) -> None:
    """Nobody needs the events, so their segments are trimmed; the window ends by its own settings."""

    def post(first: int) -> httpx.Response:
        events = [{"n": n, "text": TEXT} for n in range(first, first + 10)]
        return service.http.post("/v1/events", params={"publisher": "p", "sequence": first}, json=events)

    with Service(tmp_path / "data", CULVER_LOG_SEGMENT_BYTES="1000000") as service:
        service.wait_until_ready()
        for first in range(0, 100, 10):
            assert post(first).json()["first_offset"] == first
        service._wait(lambda: service.status()["log_first_offset"] > 10, "trim the log", 60)
        service.kill()
        service.start()
        service.wait_until_ready()
        answer = post(0).json()
        assert (answer["first_offset"], answer["repeated"]) == (0, 10)
        service.kill()
        service._environment["CULVER_PUBLISHING_WINDOW_SECONDS"] = "1"
        service.start()
        service.wait_until_ready()
        service._wait(lambda: post(0).status_code == 409, "forget", 30)
        problem = post(0).json()
        assert (problem["code"], problem["field"], problem["floor"]) == ("conflict", "sequence", 100)
        assert post(100).json()["first_offset"] == 100
