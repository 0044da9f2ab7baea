"""The overlay of the fake site: it knows the sites that a test names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from culver.errors import Conflict, NotFound
from culver.messages import (
    AdvertisementStatus,
    DialledPeer,
    ForgottenSite,
    LinkStatus,
    OtherSite,
    OverlayGap,
    OverlayRefusal,
    OverlayStatus,
    OverlayTotals,
    OwnSite,
    SiteRoute,
)
from culver.registry import Registration
from culver.roles import no_overlay
from support.until import until

if TYPE_CHECKING:
    from support.fake_site import FakeSite

ADVERTISEMENT = AdvertisementStatus(
    version=17, vectors=2, bits=512, hashes=5, bytes=80, age_seconds=1.5, matches_everything=False
)


class FakeOverlay:
    """Implements the role `overlay`. `positions_at` has the position from which every subscription is in effect at
    each other site, or None. Those in `unreachable` can be forgotten."""

    def __init__(self, site: "FakeSite") -> None:
        self._site = site
        self.positions_at: dict[str, int | None] = {}
        self.unreachable: set[str] = set()
        self.troubles: list[str] = []
        self.waited_seconds: list[float] = []

    def status(self) -> OverlayStatus | None:
        settings = self._site.settings.overlay
        if not settings.is_on:
            return None
        return OverlayStatus(
            site=OwnSite(
                name=settings.name,
                key=_key(settings.name),
                address=settings.listen,
                routing=settings.routing,
                advertisement=ADVERTISEMENT,
            ),
            sites=[_other(name, position) for name, position in self.positions_at.items()],
            links=[_link(name) for name in self.positions_at],
            peers=[
                DialledPeer(
                    address="127.0.0.1:7402", name=None, state="connecting", attempts=2, failure="lost"
                )
            ],
            routes=[SiteRoute(site=settings.name, neighbour=name, cost=1) for name in self.positions_at],
            gaps=[
                OverlayGap(site=name, key=_key(name), start=3, end=9, reason="the site was away", at=1.0)
                for name in self.positions_at
            ],
            refusals=[
                OverlayRefusal(source=_key(name), reason="a loop", count=2) for name in self.positions_at
            ],
            troubles=list(self.troubles),
            totals=OverlayTotals(packets_sent=5, bytes_sent=500, gaps=1, refusals=2),
        )

    async def positions(self, registrations: Sequence[Registration]) -> list[dict[str, int | None]]:
        return [dict(self.positions_at) for _ in registrations]

    async def wait(self, registrations: Sequence[Registration], timeout_seconds: float) -> bool:
        self.waited_seconds.append(timeout_seconds)
        try:
            await until(lambda: None not in self.positions_at.values(), timeout_seconds)
        except AssertionError:
            return False
        return True

    async def forget(self, name: str) -> ForgottenSite:
        if not self._site.settings.overlay.is_on:
            raise no_overlay()
        if name not in self.positions_at:
            raise NotFound(f"this site knows no other site called {name}", field="name")
        if name not in self.unreachable:
            raise Conflict(f"{name} can be reached", field="name")
        del self.positions_at[name]
        return ForgottenSite(name=name, keys=[_key(name)], events=2)


def _key(name: str) -> str:
    return f"{name}~0123456789abcdef"


def _other(name: str, position: int | None) -> OtherSite:
    return OtherSite(
        name=name,
        key=_key(name),
        reachable=True,
        distance=1,
        next_hop=name,
        path=[name],
        member="alive",
        addresses=["127.0.0.1:7402"],
        events_per_second=12.5,
        advertisement=ADVERTISEMENT,
        in_effect_from=4,
        acknowledged=6,
        pending=2,
        bytes_under_way=100,
        bytes_waiting=50,
        resends=1,
        applied_from=position,
        own_refusal="",
        received=12,
        events_received=7,
        false_positives=1,
        skipped=0,
    )


def _link(name: str) -> LinkStatus:
    return LinkStatus(
        peer=name,
        key=_key(name),
        address="127.0.0.1:7401",
        label="",
        cost=1,
        bytes_sent=500,
        bytes_received=400,
        frames_sent=5,
        frames_received=4,
        frames_dropped=1,
        queued_bytes=0,
        rtt_seconds=0.01,
        since=1.0,
    )
