"""Sites that came back under their name with another data directory, that do not come back, or share a name.

    paris~01.. cannot be reached any more, paris~9f.. can     paris~9f.. is the successor of paris~01..
    paris~01.. and paris~9f.. can be reached for a while      two sites share a name, which an operator must change
    the operator has lyon~01.. forgotten                      neighbours may still tell of it, and nobody listens

A site that is replaced is let go: its mailbox and its stream end. Both sides may miss something then, and say so.
This site announces what it may miss of the old site's log. The successor hears from where on the old site had not
acknowledged, until it has acknowledged something itself. So does a forgotten site, if it comes back after all.
"""

from collections.abc import Iterable

from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import Refuse
from culver.overlay.site_keys import name_of

# A link to a dead site takes some seconds to close: until then, it and its successor both seem to be there.
_PATIENCE_SECONDS = 10.0

FORGOTTEN = "the site has lost its data directory"
"""The reason of a gap whose end is the last position that was known: behind it, nobody knows what there was."""

REMOVED = "this site was forgotten there"


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
            if (successor := newest.get(name_of(site), site)) != site
            and not states.reaches(site)
            and not _is_newer(states, site, successor)
        }
        return list(self._successors)

    def successor(self, site: str) -> str:
        return self._successors[site]

    def owe(self, site: str, position: int | None) -> None:
        """The successor of a replaced site must hear that something may be missing from a position on. That is None
        where the site had no stream; what it was owed itself goes over to the successor all the same."""
        successor = self._successors[site]
        positions = [position, self._owed.pop(site, None), self._owed.get(successor)]
        owed = [each for each in positions if each is not None]
        if owed and successor != self._own:
            self._owed[successor] = min(owed)

    def owed(self, site: str) -> int | None:
        """The position from which on a site may miss something that its predecessor had not acknowledged."""
        return self._owed.get(site)

    def told(self, site: str) -> None:
        self._owed.pop(site, None)


def _is_newer(states: LinkStates, site: str, other: str) -> bool:
    """Whether a site began after another one, as far as their link states tell. Old words may make a predecessor seem
    to be there for a moment, while its successor is away: sequences count from the time of a start."""
    return site in states.states and states.states[site].sequence > states.states[other].sequence


class ForgottenSites:
    """Remembers who is forgotten, and what they must hear if they come back, with this key or another. The list lasts
    for a run: later on, a site that comes back notices the gap by itself."""

    def __init__(self) -> None:
        self._sites: set[str] = set()
        self._owed: dict[str, int] = {}  # by name

    def __contains__(self, site: str) -> bool:
        return site in self._sites

    def forget(self, site: str, acknowledged: int | None) -> None:
        """`acknowledged` is what the site had of its stream; None where it had none."""
        self._sites.add(site)
        if acknowledged is not None:
            name = name_of(site)
            self._owed[name] = min(acknowledged, self._owed.get(name, acknowledged))

    def look(self, states: LinkStates) -> None:
        """A site that can be reached is not forgotten any more."""
        if self._sites:
            self._sites.difference_update(states.reachable())

    def owed(self, site: str) -> int | None:
        """The position from which on a site may miss something."""
        return self._owed.get(name_of(site))

    def told(self, site: str) -> None:
        self._owed.pop(name_of(site), None)


class SharedNames:
    """Finds names that several sites have at once. `own` is this site."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._since: dict[tuple[str, ...], float] = {}
        self._told: set[tuple[str, ...]] = set()

    def look(self, states: LinkStates, now: float) -> list[tuple[str, ...]]:
        """The keys of sites that have shared a name for a while; each such set of keys is returned once."""
        keys: dict[str, list[str]] = {}
        for site in (self._own, *states.reachable()):
            keys.setdefault(name_of(site), []).append(site)
        shared = [tuple(sorted(sites)) for sites in keys.values() if len(sites) > 1]
        self._since = {sites: self._since.get(sites, now) for sites in shared}
        found = [
            sites
            for sites, since in self._since.items()
            if now - since >= _PATIENCE_SECONDS and sites not in self._told
        ]
        self._told.update(found)
        return found

    def lasting(self) -> list[tuple[str, ...]]:
        """The sets of keys that share a name now, as far as `look` has told of them."""
        return [sites for sites in self._since if sites in self._told]


class GoneSites:
    """All of these for one node. A site is gone if it is replaced or forgotten."""

    def __init__(self, own: str) -> None:
        self.replaced = ReplacedSites(own)
        self.forgotten = ForgottenSites()
        self._shared_names = SharedNames(own)

    def __contains__(self, site: str) -> bool:
        return site in self.replaced or site in self.forgotten

    def owed(self, site: str) -> tuple[int, str] | None:
        """The position from which on a site may miss something that this one has dropped, and why."""
        found = (self.replaced.owed(site), FORGOTTEN), (self.forgotten.owed(site), REMOVED)
        return next(((position, why) for position, why in found if position is not None), None)

    def told(self, site: str) -> None:
        """The site knows what it is owed."""
        self.replaced.told(site)
        self.forgotten.told(site)

    def new_troubles(self, states: LinkStates, now: float) -> list[Refuse]:
        """The troubles that an operator must hear of now."""
        return [
            Refuse(name_of(sites[0]), _shared_name_text(sites), severe=True)
            for sites in self._shared_names.look(states, now)
        ]

    def troubles(self) -> list[str]:
        """Everything that an operator must see to, as sentences."""
        return [_shared_name_text(sites) for sites in self._shared_names.lasting()]


def _shared_name_text(sites: tuple[str, ...]) -> str:
    return f"several sites are called {name_of(sites[0])} ({', '.join(sites)}): give each a name of its own"
