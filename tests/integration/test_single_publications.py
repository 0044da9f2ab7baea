"""Many single publications at once through the client, at a real site: each has its own receipt or error."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import culver
from support.gateway import run
from support.service import Service

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow(seconds=6)]

WRONG_AT: dict[str, Any] = {"$timestamp": "soon"}


def stored(service: Service) -> dict[int, int]:
    """The number of every event in the log, by its offset."""
    service.wait_until_delivered()
    return {item["offset"]: item["event"]["n"] for item in service.receive_all("all")}


def test_each_of_many_publications_has_its_own_receipt_or_error(tmp_path: Path) -> None:
    outcomes: list[Any] = []

    async def publish(url: str) -> None:
        async with culver.connect(url) as client:
            await client.create_subscription("n >= 0", id="all")
            works = []
            for n in range(2_000):
                if n % 100 == 50:
                    works.append(client.publish(n=n, at=WRONG_AT))
                elif n % 100 == 70:
                    works.append(client.publish([{"n": n}, {"n": n + 10_000}]))
                elif n % 100 == 90:
                    works.append(client.publish([{"n": n}, {"n": n, "at": WRONG_AT}]))
                elif n % 100 == 95:
                    works.append(client.publish(n=float("nan")))
                else:
                    works.append(client.publish({"n": n, "text": "é" * (n % 7)}))
            outcomes.extend(await asyncio.gather(*works, return_exceptions=True))

    with Service(tmp_path / "site") as service:
        service.wait_until_ready()
        run(publish(service.url))
        events = stored(service)
    offset = 0
    for n, outcome in enumerate(outcomes):
        match n % 100:
            case 50 | 90:
                assert isinstance(outcome, culver.RequestRefused)
                assert outcome.details["code"] == "invalid_event"
                assert outcome.field == ("events[0].at" if n % 100 == 50 else "events[1].at")
            case 95:
                assert isinstance(outcome, culver.InvalidEvent)
            case 70:
                assert outcome == culver.Receipt(offset, offset + 2)
                assert (events[offset], events[offset + 1]) == (n, n + 10_000)
                offset += 2
            case _:
                assert outcome == culver.Receipt(offset, offset + 1)
                assert events[offset] == n
                offset += 1
    assert len(events) == offset


def test_killed_site_fails_what_is_pending_and_has_what_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[int, int] = {}
    failed: list[int] = []

    async def publish(service: Service) -> None:
        async with culver.connect(service.url, retry_seconds=0) as client:
            await client.create_subscription("n >= 0", id="all")

            async def work(worker: int) -> None:
                for n in range(worker, 10**9, 300):
                    try:
                        receipt = await client.publish(n=n)
                    except culver.ConnectionFailed:
                        failed.append(n)
                        return
                    acknowledged[receipt.first_offset] = n
                    if len(acknowledged) == 5_000:
                        service.kill()

            async with asyncio.timeout(60):
                await asyncio.gather(*(work(worker) for worker in range(300)))

    with Service(tmp_path / "site") as service:
        service.wait_until_ready()
        run(publish(service))
        assert len(failed) == 300
        service.start()
        service.wait_until_ready()
        events = stored(service)
    assert acknowledged.items() <= events.items()
    assert len(set(events.values())) == len(events)
    assert set(events.values()) <= set(acknowledged.values()) | set(failed)
