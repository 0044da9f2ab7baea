"""What the client asks a site of an overlay."""

import pytest

import culver
from culver.config import GatewaySettings, OverlaySettings, Settings
from support.fake_site import FakeSite
from support.site_thread import site_in_thread


def _site(**positions: int | None) -> FakeSite:
    overlay = OverlaySettings(name="paris", listen="127.0.0.1:7401")
    site = FakeSite(Settings(gateway=GatewaySettings(port=0), overlay=overlay))
    site.overlay.positions_at = dict(positions)
    return site


def test_other_sites_are_records() -> None:
    with site_in_thread(_site(lyon=512)) as url, culver.connect_sync(url) as client:
        seen = client.overlay()
    assert (seen.site.name, [each.name for each in seen.sites]) == ("paris", ["lyon"])


def test_site_forgets_another() -> None:
    site = _site(lyon=512)
    site.overlay.unreachable = {"lyon"}
    with site_in_thread(site) as url, culver.connect_sync(url) as client:
        assert client.forget_site("lyon").events == 2
        with pytest.raises(culver.RequestRefused, match="lyon"):
            client.forget_site("lyon")


def test_site_in_no_overlay_refuses() -> None:
    with (
        site_in_thread() as url,
        culver.connect_sync(url) as client,
        pytest.raises(culver.RequestRefused, match="in no overlay"),
    ):
        client.overlay()


def test_subscription_waits_for_other_sites_if_it_is_asked_to() -> None:
    site = _site(lyon=512)
    with site_in_thread(site) as url, culver.connect_sync(url) as client:
        client.create_subscription("a > 1", id="s")
        assert site.overlay.waited_seconds == []
        assert client.create_subscription("a > 1", id="t", wait_for_sites_seconds=5).sites == {"lyon": 512}
        client.replace_subscription("s", "a > 2", wait_for_sites_seconds=7)
        assert site.overlay.waited_seconds == [5, 7]
