"""What a client asks of a site besides events and subscriptions: filters, and the site itself."""

from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import quote

import msgspec

from culver.client.event_encoding import EventLike, encode_event
from culver.client.link import Link
from culver.messages import (
    Clauses,
    FilterTest,
    FilterText,
    FilterTrial,
    ForgottenSite,
    NewSlice,
    OverlayStatus,
)


class SiteCalls(ABC):
    """A part of Client."""

    @abstractmethod
    def _open_link(self) -> Link: ...

    async def test_filter(self, filter_text: str, event: EventLike) -> FilterTest:
        """Whether an event matches a filter, and by which clause; nothing is published."""
        body = FilterTrial(filter=filter_text, event=msgspec.Raw(encode_event(event)))
        return await self._open_link().ask(FilterTest, "POST", "/v1/filters/test", body=body)

    async def explain_filter(self, filter_text: str) -> list[str]:
        """The clauses that a filter is normalised to; an event matches when it satisfies one of them."""
        body = FilterText(filter=filter_text)
        return list((await self._open_link().ask(Clauses, "POST", "/v1/filters/explain", body=body)).clauses)

    async def ready(self) -> bool:
        """Whether published events reach subscribers now."""
        status, _ = await self._open_link().http("GET", "/readyz", accept=(503,))
        return status == 200

    async def status(self) -> dict[str, Any]:
        """The site's account of itself: engine, log positions, subscriptions."""
        return await self._open_link().ask(dict[str, Any], "GET", "/readyz", accept=(503,))

    async def pipeline(self) -> dict[str, Any]:
        """What each operator and each slice of the site's pipeline has done since the start, and what waits."""
        return await self._open_link().ask(dict[str, Any], "GET", "/v1/pipeline")

    async def slices(self) -> dict[str, Any]:
        """What each slice of the site's index holds and does, and how it is divided."""
        return await self._open_link().ask(dict[str, Any], "GET", "/v1/slices")

    async def add_slice(self, split: int | None = None) -> dict[str, Any]:
        """Add a slice that takes half of slice `split`, or of the most loaded one; the slices that there are then."""
        return await self._open_link().ask(dict[str, Any], "POST", "/v1/slices", body=NewSlice(split=split))

    async def remove_slice(self, number: int) -> dict[str, Any]:
        """Have a slice's neighbours take over what it has; the slices that there are then, numbered anew."""
        return await self._open_link().ask(dict[str, Any], "DELETE", f"/v1/slices/{number}")

    async def overlay(self) -> OverlayStatus:
        """The other sites of the overlay, the links to them and what travels. Raises RequestRefused where the site is
        in no overlay."""
        return await self._open_link().ask(OverlayStatus, "GET", "/v1/overlay")

    async def forget_site(self, name: str) -> ForgottenSite:
        """Have the site forget another one that does not come back, and drop what waits for it. Raises RequestRefused
        for a name that the site does not know, and while it can reach the other one."""
        return await self._open_link().ask(
            ForgottenSite, "DELETE", f"/v1/overlay/sites/{quote(name, safe='')}"
        )
