"""Floods link states, so that all sites know the same graph (see `link_states`)."""

from collections.abc import Callable
from typing import Any

from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import InstructionOutbox
from culver.overlay.core.overlay_messages import LinkState
from culver.overlay.site_keys import is_site_key

_REFRESH_SECONDS = 30.0
# A site that is there refreshes its link state. One that has not is not told of any more, and is forgotten later.
_TOLD_SECONDS = 4 * _REFRESH_SECONDS
_FORGET_SECONDS = 3600.0


class LinkFlood:
    """Changes the states. `run` is the number of this run, with which its sequence begins too. `given_anew` is that
    of LinkState, and `clustering` gives its `clusters` and `published`."""

    def __init__(
        self,
        states: LinkStates,
        neighbours: Neighbours,
        out: InstructionOutbox[Any, Any],
        run: int,
        most_sites: int,
        clustering: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        self._states = states
        self._neighbours = neighbours
        self._out = out
        self._run = run
        self._most_sites = most_sites
        self._clustering = clustering
        self._sequence = run
        # What others heard from an earlier run, if that is more than this run has said.
        self._earlier_sequence = 0
        self.given_anew: int | None = None
        self._refreshed_at = float("-inf")

    def originate(self, position: int) -> None:
        """Flood this site's own links. `position` is the end of its log."""
        self._sequence += 1
        links = tuple(sorted(self._neighbours.costs().items()))
        state = LinkState(
            self._states.own,
            self._sequence,
            links,
            position,
            self._run,
            self.given_anew,
            *self._clustering(),
        )
        self._states.take(state, 0.0)
        self._out.flood(state)

    def tell(self, link: int, now: float) -> None:
        """Tell a neighbour everything."""
        for state in self._states.taken_since(now - _TOLD_SECONDS):
            self._out.send(link, state)

    def refresh(self, position: int, now: float) -> bool:
        """Flood now and then what has not changed; returns whether it is time for that."""
        if now - self._refreshed_at < _REFRESH_SECONDS:
            return False
        self._refreshed_at = now
        self._states.forget(now - _FORGET_SECONDS)
        self.originate(position)
        return True

    def go_beyond(self, position: int) -> None:
        """Go on above what an earlier run has said. A copy of the data directory that runs elsewhere does the same,
        so call this once a second: the two would flood the overlay."""
        if self._earlier_sequence > self._sequence:
            self._sequence = self._earlier_sequence
            self.originate(position)

    def take(self, link: int, state: LinkState, now: float) -> bool:
        """Take a neighbour's word; returns whether it is news."""
        peer = self._neighbours[link].site
        before = self._states.states.get(state.site)
        if state.site == self._states.own:
            if state.sequence > self._sequence:
                self._out.refuse(peer, "a link state of this site that this run did not send")
                self._earlier_sequence = max(self._earlier_sequence, state.sequence)
            return False
        if before is not None and before.sequence >= state.sequence:
            if before.sequence > state.sequence:
                self._out.send(link, before)
            return False
        if before is None and len(self._states.states) >= self._most_sites:
            self._out.refuse(peer, "more sites than overlay.most_sites")
            return False
        if len(state.links) > self._most_sites or not all(
            is_site_key(site) for site in (state.site, *(site for site, _ in state.links))
        ):
            self._out.refuse(peer, "a link state that no site can have")
            return False
        self._states.take(state, now)
        self._out.flood(state, but=link)
        return True
