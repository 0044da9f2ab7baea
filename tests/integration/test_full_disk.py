"""A site on a disk that is full to the last byte: the ways out of docs/recovery.md."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from culver.config import DeliverySettings, LogSettings, PipelineSettings, Settings
from culver.delivery import share_of
from culver.gateway import create_app
from culver.site import RunningSite
from support.scenes import run
from support.service import Service
from support.small_disk import fill, free_bytes, small_disk
from support.until import until

MEBIBYTE = 1024 * 1024
EVENTS = [{"n": n, "padding": "x" * 2_000} for n in range(200)]


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """A site with a reserve of 4 MiB, on a disk of 24 MiB."""
    with small_disk(tmp_path / "disk", 24 * MEBIBYTE) as disk:
        yield Settings(
            data_dir=disk / "data",
            pipeline=PipelineSettings(engine="inline"),
            log=LogSettings(segment_bytes=MEBIBYTE, reserve_bytes=4 * MEBIBYTE),
        )


def client_of(site: RunningSite) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(site)), base_url="http://127.0.0.1")


async def fill_disk(http: httpx.AsyncClient, data_dir: Path) -> int:
    """Publish until the disk is full, take what is left, and return the number of acknowledged events."""
    for name in ("reader", "idle", "greedy"):
        made = await http.post("/v1/subscriptions", json={"id": name, "filter": "n >= 0"})
        assert made.status_code == 201
    acknowledged = 0
    while (answer := await http.post("/v1/events", json=EVENTS)).status_code == 200:
        acknowledged += len(EVENTS)
    assert answer.status_code == 507
    assert acknowledged * 2_000 > 5 * MEBIBYTE
    fill(data_dir.parent / "filling")
    assert free_bytes(data_dir) == 0
    return acknowledged


async def takes_events_again(http: httpx.AsyncClient) -> bool:
    return (await http.post("/v1/events", json=EVENTS)).status_code == 200


Step = Callable[[RunningSite, httpx.AsyncClient, int], Awaitable[None]]


async def acknowledge_everything(site: RunningSite, http: httpx.AsyncClient, acknowledged: int) -> None:
    await http.delete("/v1/subscriptions/idle")
    await http.delete("/v1/subscriptions/greedy")
    session = await site.sessions.open(await site.subscriptions.get("reader"))
    await session.acknowledge(acknowledged - 1)
    await session.close()


async def delete_every_subscription(site: RunningSite, http: httpx.AsyncClient, acknowledged: int) -> None:
    for name in ("reader", "idle", "greedy"):
        assert (await http.delete(f"/v1/subscriptions/{name}")).status_code == 204


async def lower_the_limits(site: RunningSite, http: httpx.AsyncClient, acknowledged: int) -> None:
    for name in ("reader", "idle", "greedy"):
        body = {"filter": "n >= 0", "mailbox": {"max_count": 100}}
        assert (await http.put(f"/v1/subscriptions/{name}", json=body)).status_code == 200


@pytest.mark.slow(seconds=3)
@pytest.mark.parametrize("step", [acknowledge_everything, delete_every_subscription, lower_the_limits])
def test_a_full_disk_is_emptied_through_the_site(settings: Settings, step: Step) -> None:
    async def scene(site: RunningSite) -> None:
        async with client_of(site) as http:
            acknowledged = await fill_disk(http, settings.data_dir)
            await step(site, http, acknowledged)
            await until(lambda: takes_events_again(http), 60)
            assert (settings.data_dir / "reserve").stat().st_size == 4 * MEBIBYTE
            assert site.observation.status()["state"] == "running"

    run(settings, scene)


@pytest.mark.slow(seconds=3)
def test_while_the_reserve_is_spent_it_is_kept_for_what_frees_space_also_after_a_restart(
    settings: Settings,
) -> None:
    async def scene(site: RunningSite) -> None:
        async with client_of(site) as http:
            acknowledged = await fill_disk(http, settings.data_dir)
            session = await site.sessions.open(await site.subscriptions.get("reader"))
            await session.acknowledge(0)
            # What housekeeping frees here and there must not be enough to make the reserve again.
            (settings.data_dir.parent / "another program").write_bytes(bytes(MEBIBYTE))
            for offset in range(1, 50):
                await session.acknowledge(offset)
            for body in ({"filter": "n = 1"}, {"id": "late", "filter": "n = 1"}):
                refused = await http.post("/v1/subscriptions", json=body)
                assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
            refused = await http.post("/v1/events", json=[{"n": 1}])
            assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
            answer = await http.get("/readyz")
            assert answer.status_code == 200, "subscribers must find the site to make room"
            assert "the disk is full" in answer.json()["state"]
            await session.acknowledge(acknowledged - 1)
            await session.close()

    async def restarted(site: RunningSite) -> None:
        async with client_of(site) as http:
            for name in ("idle", "greedy"):
                assert (await http.delete(f"/v1/subscriptions/{name}")).status_code == 204
            await until(lambda: takes_events_again(http), 60)

    run(settings, scene, restarted)


@pytest.mark.slow(seconds=3)
def test_a_site_starts_on_a_full_disk_and_a_lower_setting_empties_it(settings: Settings) -> None:
    async def scene(site: RunningSite) -> None:
        async with client_of(site) as http:
            await fill_disk(http, settings.data_dir)

    run(settings, scene)
    fill(settings.data_dir.parent / "filling, too")
    assert free_bytes(settings.data_dir) == 0
    lowered = replace(settings, delivery=DeliverySettings(mailbox_count=100))

    async def emptied(site: RunningSite) -> None:
        async with client_of(site) as http:
            await until(lambda: takes_events_again(http), 60)
            for name in ("reader", "idle", "greedy"):
                assert (await http.get(f"/v1/subscriptions/{name}")).status_code == 200

    run(lowered, emptied)


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.slow(seconds=25)
def test_a_full_disk_is_emptied_through_a_further_gateway(settings: Settings, tmp_path: Path) -> None:
    """Most events are not matched yet when the disk is full, because Spark lacks the space, too."""
    names = [f"s{number}" for number in range(20)]
    reader, idle = [name for name in names if share_of(name, 2) == 1][:2]  # they are with the further gateway
    greedy = next(name for name in names if share_of(name, 2) == 0)
    environment = {
        "CULVER_LOG_SEGMENT_BYTES": str(settings.log.segment_bytes),
        "CULVER_LOG_RESERVE_BYTES": str(settings.log.reserve_bytes),
    }
    data_dir = settings.data_dir
    service = Service(data_dir, "spark", "--spark-master", "local[1]", gateways=2, **environment)
    service.log_path = tmp_path / "site.log"  # not on the small disk
    further = f"http://127.0.0.1:{service.port + 1}"
    with service, httpx.Client(base_url=further, timeout=60, trust_env=False, follow_redirects=True) as http:
        service.wait_until_ready()
        for name in (reader, idle, greedy):
            http.post("/v1/subscriptions", json={"id": name, "filter": "n >= 0"}).raise_for_status()
        http.post("/v1/events", json=EVENTS).raise_for_status()
        service.wait_until_delivered()
        while (answer := http.post("/v1/events", json=EVENTS)).status_code == 200:
            pass
        assert answer.status_code == 507
        fill(data_dir.parent / "filling")
        assert free_bytes(data_dir) == 0

        def read_on() -> int:
            """Receive and acknowledge what waits; returns how much it was."""
            path = f"/v1/subscriptions/{reader}"
            items = (
                http.get(f"{path}/events", params={"limit": 1000, "wait": 0})
                .raise_for_status()
                .json()["items"]
            )
            if items:
                last = {"delivery_id": items[-1]["delivery_id"]}
                http.post(f"{path}/ack", json=last).raise_for_status()
            return len(items)

        assert read_on() >= len(EVENTS)
        reserve = data_dir / "reserve"
        for number in range(10):
            if reserve.stat().st_size:  # Spark has freed something meanwhile, and that was enough
                fill(data_dir.parent / f"filling-{number}")
                assert read_on()
        assert reserve.stat().st_size == 0, "the site has given it up for its gateway"
        for path, body in (
            ("/v1/subscriptions", {"id": "late", "filter": "n = 1"}),
            ("/v1/events", [{"n": 1}]),
        ):
            refused = http.post(path, json=body)
            assert (refused.status_code, refused.json()["code"]) == (507, "storage_full")
        assert "the disk is full" in http.get("/readyz").json()["state"]
        http.delete(f"/v1/subscriptions/{idle}").raise_for_status()
        lower = {"filter": "n >= 0", "mailbox": {"max_count": 100}}
        http.put(f"/v1/subscriptions/{greedy}", json=lower).raise_for_status()

        asyncio.run(
            until(lambda: not read_on() and http.post("/v1/events", json=EVENTS).status_code == 200, 120)
        )
        assert reserve.stat().st_size == 4 * MEBIBYTE
        service.wait_until_delivered()
        assert service.status()["state"] == "running"
