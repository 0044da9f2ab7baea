"""Sites that came back under their name with another data directory.

    paris~01.. cannot be reached any more, paris~9f.. can: paris~9f.. is the successor of paris~01..

The old site is let go: its mailbox and its stream end. Both sides may miss something then, and say so. This site
announces what it may miss of the old site's log. The successor hears from where on the old site had not acknowledged,
until it has acknowledged something itself.
"""

from collections.abc import Iterable

from culver.overlay.core.link_states import LinkStates
from culver.overlay.site_key import name_of


class ReplacedSites:
    """Remembers who is replaced, and what their successors must hear."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._successors: dict[str, str] = {}
        self._owed: dict[str, int] = {}

    def __contains__(self, site: str) -> bool:
        return site in self._successors

    def look(self, states: LinkStates, known: Iterable[str]) -> list[str]:
        """Find out which of the known sites are replaced by others. Those that are stay known by their link states
        for a while, so that nobody takes their last words for news."""
        # Only what can be reached counts: words of sites that are no more may come before those of their successors.
        newest = {name_of(self._own): self._own}
        for site in states.reachable():
            before = newest.setdefault(name_of(site), site)
            if states.states[before].sequence < states.states[site].sequence:
                newest[name_of(site)] = site
        self._successors = {
            site: successor
            for site in known
            if (successor := newest.get(name_of(site), site)) != site and not states.reaches(site)
        }
        return list(self._successors)

    def owe(self, site: str, acknowledged: int | None) -> None:
        """The successor of a replaced site must hear from where on something may be missing. `acknowledged` is None
        where the site had no stream; what it was owed itself goes over to the successor all the same."""
        successor = self._successors[site]
        positions = [acknowledged, self._owed.pop(site, None), self._owed.get(successor)]
        owed = [position for position in positions if position is not None]
        if owed and successor != self._own:
            self._owed[successor] = min(owed)

    def owed(self, site: str) -> int | None:
        """The position from which on a site may miss something that its predecessor had not acknowledged."""
        return self._owed.get(site)

    def owing(self) -> list[str]:
        return list(self._owed)

    def told(self, site: str) -> None:
        self._owed.pop(site, None)
