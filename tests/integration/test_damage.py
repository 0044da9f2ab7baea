"""Damaged files of a site: what can be made again is, and the rest is refused with the file's name."""

import shutil
from collections.abc import Sequence
from pathlib import Path

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
from culver.errors import StorageCorrupt
from culver.model.formats import event_from_object
from culver.model.language import parse
from culver.registry import SqliteRegistry, SubscriptionSpec
from culver.site import RunningSite
from support.scenes import delivered, received, run
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


async def publish(site: RunningSite, numbers: Sequence[int]) -> None:
    await site.publications.publish([event_from_object({"n": n}, EventSettings()) for n in numbers])
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
