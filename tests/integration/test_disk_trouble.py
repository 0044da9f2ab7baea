"""A site on a disk that fails: what is promised before it is durable, and what operators are told."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from culver.config import PipelineSettings, Settings
from culver.delivery import Delivery, DeliveryGap
from culver.errors import StorageError
from culver.gateway import create_app
from culver.log.files.disk_thread import DiskThread, StagedWrite, WriteFailure
from culver.model.language import parse
from culver.registry import SubscriptionSpec
from culver.site import RunningSite
from support.logs import event, last_segment
from support.scenes import delivered, run


def settings_for(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, pipeline=PipelineSettings(engine="inline"))


def client_of(site: RunningSite) -> httpx.AsyncClient:
    """A client of a gateway of the site, without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(site)), base_url="http://127.0.0.1")


def test_a_site_whose_log_failed_to_sync_is_not_ready_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(disk: DiskThread, staged: StagedWrite, done: Callable[[WriteFailure | None], None]) -> None:
        done(WriteFailure(OSError(errno.EIO, "Input/output error"), True))

    async def scene(site: RunningSite) -> None:
        async with client_of(site) as http:
            assert (await http.get("/readyz")).status_code == 200
            with monkeypatch.context() as broken:
                broken.setattr(DiskThread, "write", fail)
                with pytest.raises(StorageError):
                    await site.publications.publish([event(0)])
            answer = await http.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["ready"] is False
            assert "fdatasync failed (Input/output error)" in answer.json()["state"]
            assert str(tmp_path / "log") in answer.json()["state"]

    async def restarted(site: RunningSite) -> None:
        assert (await site.publications.publish([event(0)])).first_offset == 0

    run(settings_for(tmp_path), scene, restarted)


class DirectorySyncs:
    """Watches the process make directories, and sync those that hold their names. A disk that keeps the metadata of
    files in no order may forget, in a power cut, a directory whose name is not synced, with all that is in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forgettable: set[Path] = set()
        self.made: set[Path] = set()
        self._mkdir, self._fsync = os.mkdir, os.fsync
        monkeypatch.setattr(os, "mkdir", self._note_mkdir)
        monkeypatch.setattr(os, "fsync", self._note_fsync)

    def _note_mkdir(self, path: Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        self.forgettable.add(Path(path))
        self.made.add(Path(path))

    def _note_fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.forgettable = {path for path in self.forgettable if path.parent != synced}


def test_every_new_directory_is_durable_before_anything_in_it_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "new" / "data"
    syncs = DirectorySyncs(monkeypatch)

    async def scene(site: RunningSite) -> None:
        assert not syncs.forgettable
        [added] = await site.subscriptions.add([SubscriptionSpec(parse("TRUE"), id="all")])
        assert not syncs.forgettable
        await site.publications.publish([event(0)])
        assert not syncs.forgettable
        await delivered(site)
        session = await site.sessions.open(added)
        await session.receive(1, 10)
        await session.acknowledge(0)
        assert not syncs.forgettable
        await session.close()

    run(settings_for(data), scene)
    assert syncs.made >= {tmp_path / "new", data, *(data / name for name in ("log", "index", "delivery"))}


def test_a_directory_whose_maker_was_cut_off_is_synced_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = DirectorySyncs(monkeypatch)
    (tmp_path / "delivery").mkdir()
    assert syncs.forgettable == {tmp_path / "delivery"}

    async def scene(site: RunningSite) -> None:
        assert not syncs.forgettable

    run(settings_for(tmp_path), scene)


def test_a_damaged_batch_is_an_exact_gap_and_the_site_serves_the_rest(tmp_path: Path) -> None:
    async def publish(site: RunningSite) -> None:
        await site.subscriptions.add([SubscriptionSpec(parse("n <> 122"), id="most")])
        for first in range(0, 240, 10):
            await site.publications.publish([event(n) for n in range(first, first + 10)])
        await delivered(site)

    run(settings_for(tmp_path), publish)
    segment = last_segment(tmp_path / "log")
    content = bytearray(segment.read_bytes())
    content[content.index(b'{"n": 125}')] ^= 1
    segment.write_bytes(content)

    async def damaged(site: RunningSite) -> None:
        session = await site.sessions.open(await site.subscriptions.get("most"))
        items: list[Delivery | DeliveryGap] = []
        while some := await session.receive(500, 0):
            items += some
        await session.close()
        gap = DeliveryGap("most", 120, 130, 9, "unavailable")
        assert [item for item in items if isinstance(item, DeliveryGap)] == [gap]
        offsets = [item.offset for item in items if isinstance(item, Delivery)]
        assert offsets == [n for n in range(240) if not 120 <= n < 130]
        async with client_of(site) as http:
            answer = await http.get("/readyz")
        assert answer.status_code == 200, "the site serves all that can be read"
        [damage] = answer.json()["log_damage"]
        assert (damage["path"], damage["start"], damage["end"]) == (str(segment), 120, 130)
        assert (await site.publications.publish([event(240)])).first_offset == 240

    run(settings_for(tmp_path), damaged)
