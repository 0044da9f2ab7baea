"""The open links of a site, and which of them leads to a neighbour.

Two sites may have several links. The cheapest of them carries what goes to the neighbour; the others stand by.
"""

from dataclasses import dataclass, field

from culver.overlay.core.site_numbers import NumberTable


@dataclass(slots=True)
class NeighbourLink:
    site: str
    cost: int
    numbers: NumberTable = field(default_factory=NumberTable)


class Neighbours:
    """Holds the links by their numbers."""

    def __init__(self) -> None:
        self._links: dict[int, NeighbourLink] = {}

    def __contains__(self, link: int) -> bool:
        return link in self._links

    def __getitem__(self, link: int) -> NeighbourLink:
        return self._links[link]

    def open(self, link: int, site: str, cost: int) -> None:
        self._links[link] = NeighbourLink(site, cost)

    def close(self, link: int) -> str | None:
        """Returns the neighbour to which the link led; None where there was no such link."""
        closed = self._links.pop(link, None)
        return None if closed is None else closed.site

    def link_to(self, site: str) -> int | None:
        """The cheapest link to a neighbour; of several, the oldest."""
        links = [(each.cost, number) for number, each in self._links.items() if each.site == site]
        return min(links)[1] if links else None

    def costs(self) -> dict[str, int]:
        """All neighbours, each with the cost of its cheapest link."""
        costs: dict[str, int] = {}
        for each in self._links.values():
            costs[each.site] = min(each.cost, costs.get(each.site, each.cost))
        return costs

    def links(self, but: str | None = None) -> list[int]:
        """One link to every neighbour, except to one of them."""
        found = [self.link_to(site) for site in self.costs() if site != but]
        return [link for link in found if link is not None]
