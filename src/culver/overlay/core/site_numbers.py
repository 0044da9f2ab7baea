"""Small numbers for sites, so that a set of destinations is a few bytes.

Each direction of a link has numbers of its own, told before they are used:

    SiteNumbers(0, (lyon, bonn, oslo))      Packet(destinations=0b101)  ->  lyon and oslo

No site needs to agree with any other than its neighbour on them.
"""

from collections.abc import Iterable, Sequence

from culver.overlay.core.overlay_messages import SiteNumbers
from culver.overlay.site_keys import is_site_key

_MOST_NUMBERS = 65_536


class UnknownNumber(Exception):
    """A packet names a site by a number that was never told."""


class NumberTable:
    """The numbers of one link, in both directions."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._learnt: list[str] = []

    def number(self, sites: Iterable[str]) -> SiteNumbers | None:
        """Give numbers to sites. Returns what the neighbour must be told before they are used."""
        first = len(self._told)
        news = tuple(site for site in sites if site not in self._told)
        for site in news:
            self._told[site] = len(self._told)
        return SiteNumbers(first, news) if news else None

    def number_of(self, site: str) -> int:
        return self._told[site]

    def bits(self, sites: Sequence[str]) -> bytes:
        """The set of these sites, all of which have numbers."""
        bits = 0
        for site in sites:
            bits |= 1 << self._told[site]
        return bits.to_bytes((bits.bit_length() + 7) // 8, "little")

    def learn(self, message: SiteNumbers) -> bool:
        """Take note of the neighbour's numbers; returns False where they do not follow its last ones."""
        if message.first != len(self._learnt) or message.first + len(message.sites) > _MOST_NUMBERS:
            return False
        if not all(is_site_key(site) for site in message.sites):
            return False
        self._learnt += message.sites
        return True

    def sites(self, bits: bytes) -> list[str]:
        """The sites of a set, by their numbers. Raises UnknownNumber."""
        value = int.from_bytes(bits, "little")
        if value.bit_length() > len(self._learnt):
            raise UnknownNumber
        return [site for number, site in enumerate(self._learnt) if value >> number & 1]
