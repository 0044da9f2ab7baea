"""Sites prove their names to each other, and certificates can be exchanged while links stand."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from culver.errors import InvalidConfiguration
from support.linked_sites import Run, key_of, run_on, site
from support.redis_servers import make_certificate
from support.severable import severable
from support.until import settled, until


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two authorities, and certificates of the first for three sites; one of the second for berlin."""
    folder = tmp_path_factory.mktemp("certificates")
    authority, _ = make_certificate(folder, "authority")
    for name in ("amsterdam", "berlin", "cairo"):
        make_certificate(folder, name, authority)
    (folder / "other").mkdir()
    stranger, _ = make_certificate(folder / "other", "stranger")
    make_certificate(folder / "other", "berlin", stranger)
    return folder


def tls(folder: Path, name: str, authority: Path | None = None) -> dict[str, Any]:
    return {
        "tls_ca": str(authority or folder / "authority.pem"),
        "tls_cert": str(folder / f"{name}.pem"),
        "tls_key": str(folder / f"{name}.key"),
    }


def test_sites_with_certificates_link(run: Run, certificates: Path) -> None:
    async def body() -> None:
        async with (
            site("berlin", allowed=("amsterdam",), **tls(certificates, "berlin")) as berlin,
            site(
                "amsterdam", berlin.address, allowed=("berlin",), **tls(certificates, "amsterdam")
            ) as amsterdam,
        ):
            await until(lambda: berlin.links and amsterdam.links)
            large = bytes(range(256)) * 8_000
            amsterdam.link().send(large, urgent=False)
            berlin.link().send(large, urgent=True)
            await until(lambda: berlin.bodies and amsterdam.bodies)
            assert (berlin.bodies[0][1], amsterdam.bodies[0][1]) == (large, large)

    run(body())


def test_a_slow_reader_meets_the_same_bounds_over_tls(run: Run, certificates: Path) -> None:
    async def body() -> None:
        bounds = {"max_frame_bytes": 65_536, "queue_bytes": 262_144}
        async with (
            site("berlin", **bounds, **tls(certificates, "berlin")) as berlin,
            severable(berlin.manager.port) as relay,
            site(
                "amsterdam", relay.url.removeprefix("http://"), **tls(certificates, "amsterdam")
            ) as amsterdam,
        ):
            await until(lambda: berlin.links and amsterdam.links)
            link = berlin.link()
            relay.flowing.clear()
            sent = 0
            while True:
                if link.send(bytes(65_000), urgent=False):
                    sent += 1
                    continue
                before = link.bytes_sent
                await settled(lambda: link.bytes_sent)
                if link.bytes_sent == before:
                    break
            assert 65_536 < link.queued_bytes < 600_000
            relay.flowing.set()
            await until(lambda: len(amsterdam.bodies) == sent)

    run(body())


@pytest.mark.parametrize(
    ("name", "certificate", "here", "there"),
    [
        # The certificate of an authority that the other side does not know, and no certificate at all.
        ("berlin", "other/berlin", "the peer's certificate is not accepted", "it may not accept this"),
        ("berlin", "", "TLS failed: ", "it may want TLS"),
        # A good certificate, and the name of another site.
        (
            "berlin",
            "cairo",
            "calls itself berlin, and its certificate is for cairo",
            "its certificate is for cairo",
        ),
        # A good certificate and the right name, which is not on the list.
        ("cairo", "cairo", "cairo is not among the sites", "the peer closed: cairo is not among the sites"),
    ],
    ids=["stranger", "in the clear", "forged", "not allowed"],
)
def test_who_cannot_prove_an_allowed_name_is_refused(
    run: Run, certificates: Path, name: str, certificate: str, here: str, there: str
) -> None:
    async def body() -> None:
        listening = tls(certificates, "amsterdam")
        files = tls(certificates, certificate, certificates / "authority.pem") if certificate else {}
        async with (
            site("amsterdam", allowed=("berlin",), **listening) as amsterdam,
            site(name, amsterdam.address, **files) as hostile,
        ):
            await until(lambda: amsterdam.refusals and hostile.manager.peers[0].state.startswith("refused"))
            assert here in amsterdam.refusals[0][1]
            assert there in hostile.manager.peers[0].state
            assert amsterdam.events == hostile.events == []

    run(body())


def test_a_dialled_site_must_prove_its_name_too(run: Run, certificates: Path) -> None:
    async def body() -> None:
        async with (
            site("berlin", **tls(certificates, "cairo")) as forged,
            site(
                "berlin", **tls(certificates / "other", "berlin", certificates / "authority.pem")
            ) as stranger,
            site("cairo", **tls(certificates, "cairo")) as other,
            site("berlin") as clear,
        ):
            peers = (forged.address, stranger.address, other.address, clear.address)
            async with site(
                "amsterdam", *peers, allowed=("berlin",), **tls(certificates, "amsterdam")
            ) as amsterdam:
                manager = amsterdam.manager
                await until(lambda: all(each.state.startswith("refused: ") for each in manager.peers))
                states = [each.state for each in manager.peers]
                assert "its certificate is for cairo" in states[0]
                assert "the peer's certificate is not accepted" in states[1]
                assert "cairo is not among" in states[2]
                assert "TLS failed" in states[3]
                assert amsterdam.events == []

    run(body())


def test_certificates_are_exchanged_while_a_link_stands(
    run: Run, certificates: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def put(source: Path, *names: str) -> None:
        for name in names:
            shutil.copyfile(source / name, tmp_path / f"site{Path(name).suffix}")

    async def body() -> None:
        put(certificates, "berlin.pem", "berlin.key")
        authorities = tmp_path / "authorities.pem"
        both = (certificates / "authority.pem").read_text() + (
            certificates / "other/stranger.pem"
        ).read_text()
        authorities.write_text(both)
        mine = tls(tmp_path, "site", authorities)
        yours = tls(certificates, "amsterdam", authorities)
        async with site("berlin", **mine) as berlin, site("amsterdam", berlin.address, **yours) as amsterdam:
            await until(lambda: berlin.links and amsterdam.links)
            # Only the certificate is there yet: it does not fit the key, and the old pair stays in use.
            put(certificates / "other", "berlin.pem")
            async with site("cairo", berlin.address, **tls(certificates, "cairo")) as cairo:
                await until(lambda: cairo.links)
                cairo.link().close("once more")
                await until(lambda: cairo.count("opened") == 2)
            put(certificates / "other", "berlin.key")
            # Cairo does not trust the new authority, Amsterdam does; its link has stood all the time.
            async with site("cairo", berlin.address, **tls(certificates, "cairo")) as cairo:
                await until(lambda: "not accepted" in cairo.manager.peers[0].state)
            assert (berlin.link().peer.key, amsterdam.count("opened")) == (key_of("amsterdam"), 1)
            amsterdam.link().close("once more")
            await until(lambda: amsterdam.count("opened") == 2)
            # Without the first authority, Amsterdam itself is a stranger.
            authorities.write_text((certificates / "other/stranger.pem").read_text())
            amsterdam.link().close("once more")
            await until(lambda: amsterdam.manager.peers[0].state.startswith("refused: "))
            assert amsterdam.links == []

    caplog.clear()
    run(body())
    broken = [record for record in caplog.records if "stay in use" in record.getMessage()]
    assert len(broken) == 1
    assert "overlay.tls_cert" in broken[0].getMessage()


def test_a_site_can_stop_at_any_moment_of_a_handshake(run: Run, certificates: Path) -> None:
    async def body() -> None:
        async with site("berlin", **tls(certificates, "berlin")) as berlin:
            for turns in range(0, 60, 3):
                async with site("amsterdam", berlin.address, **tls(certificates, "amsterdam")):
                    for _ in range(turns):
                        await asyncio.sleep(0)

    run(body())


def test_files_that_cannot_be_used_at_the_start_are_named(
    run: Run, certificates: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.pem").write_text("hello")
    good = tls(certificates, "berlin")
    wrong: list[tuple[str, Any]] = [
        ("tls_ca", tmp_path / "absent.pem"),
        ("tls_ca", tmp_path / "text.pem"),
        ("tls_cert", tmp_path / "text.pem"),
        ("tls_key", tmp_path / "absent.pem"),
    ]

    async def body() -> None:
        for name, path in wrong:
            with pytest.raises(InvalidConfiguration) as raised:
                async with site("berlin", **{**good, name: str(path)}):
                    pass
            assert raised.value.field == f"overlay.{name}"

    run(body())
