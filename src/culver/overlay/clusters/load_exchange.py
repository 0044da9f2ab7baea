"""Joins the balance of load to a node: figures go out with notes and come in with them, and messages are said."""

from collections.abc import Callable, Collection

from culver.overlay.clusters.cluster_instructions import ClusterOutbox
from culver.overlay.clusters.cluster_messages import Claim, ClusterBody, ClusterNote, MemberAdvertisement
from culver.overlay.clusters.load.load_messages import LoadFigures, LoadKind, LoadMessage
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.core.link_states import LinkStates


class LoadExchange:
    """`clock` tells the time of the call that the node is in."""

    def __init__(self, balance: StreamBalance, states: LinkStates, clock: Callable[[], float]) -> None:
        self._balance = balance
        self._states = states
        self._clock = clock

    def attached(self, site: str, body: ClusterBody) -> LoadFigures | None:
        """The figures that go with what is said to a site, if any."""
        now = self._clock()
        if isinstance(body, MemberAdvertisement | Claim):
            self._balance.sent(LoadKind.SUBSCRIPTION, 1, now)
        return self._balance.figures_for(site, now)

    def noted(self, note: ClusterNote) -> None:
        """A note came, for this site or for another."""
        now = self._clock()
        if note.destination == self._states.own and isinstance(note.body, MemberAdvertisement | Claim):
            self._balance.received_messages(LoadKind.SUBSCRIPTION, 1, now)
        if note.load is not None:
            self._balance.heard(note.source, note.load, now)

    def answer(self, source: str, message: LoadMessage, out: ClusterOutbox) -> None:
        for site, answer in self._balance.received(source, message, self._clock()):
            out.say(site, answer)

    def tick(self, mates: Collection[str], carriers: Collection[str], out: ClusterOutbox) -> None:
        """Revise what is handed over. `carriers` are those that this site's own events go to."""
        self._balance.arrange(mates, carriers)
        for site in mates:
            if not self._states.reaches(site):
                self._balance.lost(site)
        for site, message in self._balance.tick(self._clock()):
            out.say(site, message)
