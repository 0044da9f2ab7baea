"""Damaged files of a site: what can be made again is, and the rest is refused with the file's name."""

import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from culver.cli import main
from culver.config import (
    EventSettings,
    GatewaySettings,
    LogSettings,
    PipelineSettings,
    RegistrySettings,
    Settings,
)
from culver.delivery import Delivery, DeliveryGap, share_of
from culver.errors import StorageCorrupt
from culver.model import Event
from culver.model.columns import encode
from culver.model.formats import event_from_object
from culver.model.language import parse
from culver.registry import SqliteRegistry, SubscriptionSpec
from culver.roles import Session
from culver.site import RunningSite
from support.logs import append_damaged, damage_record, last_segment, records_of
from support.scenes import delivered, received, run
from support.service import Service
from support.subscriptions import block_spec
from support.until import until

OFFSETS = list(range(20))


def settings_of(directory: Path) -> Settings:
    return Settings(
        data_dir=directory,
        log=LogSettings(reserve_bytes=0),
        pipeline=PipelineSettings(engine="inline"),
        gateway=GatewaySettings(port=0),
    )


def events_of(numbers: Sequence[int]) -> list[Event]:
    return [event_from_object({"n": n}, EventSettings()) for n in numbers]


async def publish(site: RunningSite, numbers: Sequence[int]) -> None:
    await site.publications.publish(events_of(numbers))
    await delivered(site)


async def live(site: RunningSite) -> None:
    """Subscription `a` has matched all events with a filter that it no longer has."""
    await site.subscriptions.add([SubscriptionSpec(parse("n >= 0"), id="a")])
    await site.subscriptions.add([SubscriptionSpec(parse("n < 5"), id="b")])
    await publish(site, OFFSETS)
    notifications = site.settings.data_dir / "delivery" / "notifications"
    await until(lambda: list(notifications.glob("*.ntf")))
    await site.subscriptions.replace(SubscriptionSpec(parse("n = 1000"), id="a"))
    # The index is written again, without what nobody matches any more.
    await site.subscriptions.add([SubscriptionSpec(parse("n > 17"), id="c")])


async def nothing(site: RunningSite) -> None:
    pass


async def mailboxes(site: RunningSite) -> dict[str, list[int]]:
    await delivered(site)
    found = await site.subscriptions.page(None, 100)
    return {registration.id: await received(site, registration) for registration in found}


def altered(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content, path
    path.write_bytes(content.replace(old, new))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a site that has lived."""
    directory = tmp_path_factory.mktemp("stopped")
    run(settings_of(directory), live)
    return directory


@pytest.fixture
def settings(stopped: Path, tmp_path: Path) -> Settings:
    shutil.copytree(stopped, tmp_path / "data")
    return settings_of(tmp_path / "data")


def test_damaged_notifications_are_made_again_with_filters_that_were_replaced(settings: Settings) -> None:
    files = sorted((settings.data_dir / "delivery" / "notifications").glob("*.ntf"))
    assert files
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    async def scene(site: RunningSite) -> None:
        assert await mailboxes(site) == {"a": OFFSETS, "b": OFFSETS[:5], "c": []}

    run(settings, scene)


def test_registry_that_lacks_what_the_index_has_is_refused(settings: Settings, tmp_path: Path) -> None:
    early = settings_of(tmp_path / "early")
    run(early, nothing)
    for name in ("registry.db", "registry.db-seal"):
        shutil.copy(early.data_dir / name, settings.data_dir / name)
    with pytest.raises(StorageCorrupt, match=r"the last changes of registry\.db are gone"):
        run(settings, nothing)


def test_altered_row_is_refused_until_the_rescue_goes_on_without_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings.data_dir / "registry.db"
    altered(path, b"n < 5", b"n < 4")
    with pytest.raises(StorageCorrupt, match=r"registry\.db is damaged \(row 2 of table registrations"):
        run(settings, nothing)
    assert main(["rescue", "--data-dir", str(settings.data_dir)]) == 0
    told = capsys.readouterr().out
    assert "a row of registrations fails its checksum, and reads number 2, id 'b', filter 'n < 4'" in told
    assert "kept 3 registrations" in told
    assert path.with_name("registry.db.damaged").exists()

    async def scene(site: RunningSite) -> None:
        assert await mailboxes(site) == {"a": OFFSETS, "c": []}
        [added] = await site.subscriptions.add([SubscriptionSpec(parse("n >= 0"), id="b")])
        assert added.number > 1 << 30, "what waits for the lost one is not taken for its own"
        await publish(site, [18])
        assert await mailboxes(site) == {"a": OFFSETS, "b": [20], "c": [20]}

    run(settings, scene, nothing)


def test_lost_end_of_the_log_is_refused(settings: Settings) -> None:
    [path] = (settings.data_dir / "log").glob("*.log")
    shutil.rmtree(settings.data_dir / "delivery")  # which would also show that events are missing
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    with pytest.raises(StorageCorrupt, match="events up to offset 20 were acknowledged") as caught:
        run(settings, nothing)
    assert str(path) in caught.value.message


async def items(site: RunningSite, subscription: str) -> list[int | DeliveryGap]:
    session = await site.sessions.open(await site.subscriptions.get(subscription))
    found = [item async for item in received_items(session)]
    await session.close()
    return found


async def received_items(session: Session) -> AsyncIterator[int | DeliveryGap]:
    while some := await session.receive(500, 0):
        for item in some:
            yield item.offset if isinstance(item, Delivery) else item


def batch_of(*numbers: int) -> pa.RecordBatch:
    [batch] = encode(events_of(numbers), 0)
    return batch


@pytest.mark.parametrize("slices", [1, 3])
def test_batch_that_is_damaged_before_it_is_matched_is_a_gap_for_everybody_and_the_rest_is_matched(
    settings: Settings, slices: int, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = replace(settings.pipeline, placement="hashed", slices=slices)
    divided = replace(settings, pipeline=pipeline)
    batches = [batch_of(0, 20), batch_of(1, 30, 1000), batch_of(2, 1000), batch_of(40)]
    lost = append_damaged(settings.data_dir / "log", batches, damaged=1)
    assert (lost.start, lost.end) == (22, 25)

    def gap(subscription: str) -> DeliveryGap:
        return DeliveryGap(subscription, 22, 25, None, "unavailable")

    expected = {
        "a": [*OFFSETS, gap("a"), 26],
        "b": [*OFFSETS[:5], 20, gap("b"), 25],
        "c": [21, gap("c"), 26, 27],
    }

    async def damaged(site: RunningSite) -> None:
        await delivered(site)
        assert {name: await items(site, name) for name in "abc"} == expected
        status = site.observation.status()
        assert (status["ready"], status["state"]) == (True, "running")
        assert status["log_damage"] == [lost._asdict()]
        said = f"{lost.path} is damaged at byte {lost.position}: the events from offset 22 up to 25 cannot be matched"
        assert caplog.text.count(said) == 1
        session = await site.sessions.open(await site.subscriptions.get("c"))
        await session.acknowledge(26)
        await session.close()
        await publish(site, [3, 18])

    async def restarted(site: RunningSite) -> None:
        await delivered(site)
        assert await items(site, "a") == expected["a"]
        assert await items(site, "b") == [*expected["b"], 28]
        assert await items(site, "c") == [27, 29], "what was acknowledged is not announced again"
        assert site.observation.status()["log_damage"] == [lost._asdict()]

    run(divided, damaged, restarted)


def test_live_subscriber_hears_of_a_batch_that_is_damaged_before_it_is_matched(settings: Settings) -> None:
    async def scene(site: RunningSite) -> None:
        spec = SubscriptionSpec(parse("n > 5"), site.sessions.new_live_id(), durable=False)
        [live] = await site.subscriptions.add([spec])
        session = await site.sessions.open(live)
        engine = site._parts.engine
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "follow", lambda head: None)  # the engine is behind
            for numbers in ([1, 6], [7, 2], [8]):
                await site.publications.publish(events_of(numbers))
            for _ in range(70):  # until the log does not keep the batches in memory any more
                await site.publications.publish(events_of([0]))
            path = last_segment(settings.data_dir / "log")
            [record] = [each for each in records_of(path) if each.offset == 22]
            lost = damage_record(path, record)
        await publish(site, [9])
        found = [item async for item in received_items(session)]
        assert found == [21, DeliveryGap(live.id, 22, 24, None, "unavailable"), 24, 95]
        await session.close()
        assert site.observation.status()["log_damage"] == [lost._asdict()]

    run(settings, scene)


def test_damage_at_the_very_end_of_the_log_stops_the_engine_until_something_intact_follows(
    settings: Settings,
) -> None:
    """Nobody can tell it from a write that is not seen yet."""

    async def scene(site: RunningSite) -> None:
        engine, status = site._parts.engine, site.observation.status
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "follow", lambda head: None)
            patch.setattr(engine, "foresee", lambda start, batches: None)
            await site.publications.publish(events_of([1, 2]))
            path = last_segment(settings.data_dir / "log")
            lost = damage_record(path, records_of(path)[-1])
            site._parts.log._recent = ()  # type: ignore[attr-defined]
        engine.follow(site._parts.flow.head)
        await until(lambda: not status()["ready"] and str(path) in status()["state"])
        assert status()["delivered_offset"] == 20
        await publish(site, [3])
        await until(lambda: status()["ready"])
        gap = DeliveryGap("b", 20, 22, None, "unavailable")
        assert await items(site, "b") == [*OFFSETS[:5], gap, 22]
        assert status()["log_damage"] == [lost._asdict()]

    run(settings, scene)


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.slow(seconds=15)
def test_batch_that_is_damaged_before_spark_matches_it_is_a_gap_in_all_gateways(settings: Settings) -> None:
    elsewhere = next(name for name in "defghi" if share_of(name, 2) != share_of("a", 2))

    async def subscribe(site: RunningSite) -> None:
        await site.subscriptions.add([SubscriptionSpec(parse("n = 40"), id=elsewhere)])

    run(settings, subscribe)
    batches = [batch_of(0, 20), batch_of(1, 30, 1000), batch_of(2, 1000), batch_of(40)]
    lost = append_damaged(settings.data_dir / "log", batches, damaged=1)
    gap = {"type": "gap", "start": 22, "end": 25, "dropped": None, "reason": "unavailable"}
    expected = {
        "a": [*OFFSETS, gap, 26],
        "b": [*OFFSETS[:5], 20, gap, 25],
        "c": [21, gap, 26, 27],
        elsewhere: [gap, 27],
    }
    arguments = ["--spark-master", "local[2]"]
    environment = {"CULVER_PIPELINE_SLICES": "2", "CULVER_PIPELINE_PLACEMENT": "hashed"}
    with (
        Service(settings.data_dir, "spark", *arguments, gateways=2, **environment) as service,
        httpx.Client(timeout=60, trust_env=False, follow_redirects=True) as http,
    ):
        service.wait_until_ready()
        service.wait_until_delivered()

        def mailbox(name: str) -> list[Any]:
            path = f"{service.url}/v1/subscriptions/{name}/events"
            answer = http.get(path, params={"limit": 1000, "wait": 0}).raise_for_status()
            found = answer.json()["items"]
            return [item if item["type"] == "gap" else item["offset"] for item in found]

        assert {name: mailbox(name) for name in expected} == expected
        for port in (service.port, service.port + 1):
            answer = http.get(f"http://127.0.0.1:{port}/readyz")
            assert (answer.status_code, answer.json()["log_damage"]) == (200, [lost._asdict()])
        said = f"{lost.path} is damaged at byte {lost.position}: the events from offset 22 up to 25 cannot be matched"
        assert service.log_path.read_text().count(said) == 1
        for name in "ab":
            http.post(
                f"{service.url}/v1/subscriptions/{name}/ack", json={"delivery_id": f"{name}:25"}
            ).raise_for_status()
        assert (mailbox("a"), mailbox("b")) == ([26], [])
        assert service.interrupt() == 0

    async def restarted(site: RunningSite) -> None:
        assert (await items(site, "a"), await items(site, "b")) == ([26], [])
        assert await items(site, "c") == [21, DeliveryGap("c", 22, 25, None, "unavailable"), 26, 27]
        assert site.observation.status()["log_damage"] == [lost._asdict()]

    run(settings, restarted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE registrations SET filter = 'n < < 5' WHERE number = 2", "registration 2 in the registry"),
        ("UPDATE blocks SET content = x'00112233'", "block 10 in the registry"),
        ("UPDATE blocks SET filter = 'n = = ?'", "block 10 in the registry"),
    ],
)
def test_filter_that_cannot_be_read_is_named_with_its_file(
    settings: Settings, change: str, message: str
) -> None:
    """However it got there: its checksum is right."""
    path = settings.data_dir / "registry.db"
    with SqliteRegistry(path, RegistrySettings()) as registry:
        assert registry._database is not None
        connection = registry._database.connection
        connection.execute("UPDATE state SET last_number = 9")
        registry.add_block(block_spec("quotes", [["ACME", 1.0]]), lambda version: 20, 1)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(change)
        registry._database.commit()
    shutil.rmtree(settings.data_dir / "index")
    with pytest.raises(StorageCorrupt, match=message) as caught:
        run(settings, nothing)
    assert str(path) in caught.value.message
    assert main(["rescue", "--data-dir", str(settings.data_dir)]) == 0
    run(settings, nothing)
