"""An origin's side: a stream for each cluster, and the carrier that takes it there.

    cluster 2   carrier bonn, terms 31      cursor 480      carried 512
    terms 30 end to matter at 490           a report under terms 30 moves the cursor to 490 at most

The carrier must have reported before anything is sent: its report says where the stream goes on. If it cannot be
reached, starts again, refuses or falls silent, another one gets the terms, and the stream goes on from what was
carried. A carrier with too much to do may refuse too. Where all do, the origin insists. Reports are true whoever
makes them and whenever they come, so those of earlier carriers move the cursor too.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from culver.overlay.clusters.carriage import LEAST_LEFT_OUT
from culver.overlay.clusters.cluster_claims import ClaimLedger
from culver.overlay.clusters.cluster_instructions import ClusterOutbox, cluster_key
from culver.overlay.clusters.cluster_messages import CarriageReport, CarrierRefusal, CarrierTerms
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import MoveCursor, Rewind
from culver.overlay.core.outgoing_streams import OutgoingStreams

_REPEAT_SECONDS = 1.0
# A carriage of which nobody has told for some of these is given up.
_REFRESH_SECONDS = 20.0
# A carrier that says nothing for so long is left alone for a while.
_PATIENCE_SECONDS = 4.0
_AVOIDED_SECONDS = 10.0
_TERMS_KEPT = 64
_NEVER = float("-inf")

CarrierCandidates = Callable[[int, Collection[str]], list[str]]
"""The sites that may carry a cluster with these members, the best one first."""


@dataclass(slots=True)
class ClusterStream:
    """`starts` holds the number of all terms of this run, ascending, and the position from which each matters. The
    terms up to `number` are in effect: later ones wait for the disk. The carrier, which is in that `run`, has
    reported under `known_number`."""

    number: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)
    carrier: str | None = None
    run: int = 0
    is_confirmed: bool = False
    known_number: int = 0
    carried: int = 0
    told_at: float = _NEVER
    chosen_at: float = _NEVER
    heard_at: float = _NEVER
    carriers: set[str] = field(default_factory=set)
    avoided: dict[str, float] = field(default_factory=dict)
    # Sites that have said that they have too much to do: they are the last choice until then.
    overloaded: dict[str, float] = field(default_factory=dict)
    insists: bool = False
    # A thousand events are for so many members.
    taken: int = 0
    # The terms by which members began to leave.
    leaving: dict[str, int] = field(default_factory=dict)

    @property
    def is_up_to_date(self) -> bool:
        """Whether the carrier knows the terms of now."""
        return self.is_confirmed and self.known_number == self.number

    def limit(self, number: int, end: int) -> int:
        """How far a report under terms of that number moves the cursor."""
        return min([end, *(start for later, start in self.starts if later > number)])


class ClusterStreams:
    """Moves the streams of `outgoing`, each under its `cluster_key`. `first_number` is above all terms of earlier
    runs. `candidates` is where the choice of a carrier is made."""

    def __init__(
        self,
        states: LinkStates,
        outgoing: OutgoingStreams,
        ledger: ClaimLedger,
        out: ClusterOutbox,
        first_number: int,
        candidates: CarrierCandidates,
        balance: StreamBalance,
    ) -> None:
        self._states = states
        self._outgoing = outgoing
        self._ledger = ledger
        self._out = out
        self._numbers = first_number
        self._candidates = candidates
        self._balance = balance
        self.streams: dict[int, ClusterStream] = {}

    def open(self, cluster: int, position: int) -> None:
        """A cluster has a mailbox, whose cursor is at a position."""
        self.streams.setdefault(cluster, ClusterStream(carried=position))

    def close(self, cluster: int) -> None:
        self._outgoing.close(cluster_key(cluster))
        self.streams.pop(cluster, None)

    def expect_terms(self, cluster: int, position: int) -> None:
        """Claims are on their way to the disk that matter from a position on: no cursor may pass it before."""
        stream = self.streams.get(cluster)
        if stream is not None:
            self._numbers += 1
            stream.starts.append((self._numbers, position))
            # Reports under terms of long ago count for nothing.
            del stream.starts[:-_TERMS_KEPT]

    def renew_terms(self, cluster: int, now: float) -> None:
        """The claims have changed: tell the carrier."""
        stream = self.streams.get(cluster)
        if stream is None:
            return
        if not stream.starts:
            self.expect_terms(cluster, self._outgoing.acknowledged_position(cluster_key(cluster)))
        stream.number = stream.starts[-1][0]
        leaving = [each.site for each in self._ledger.members(cluster) if each.until]
        stream.leaving = {site: stream.leaving.get(site, stream.number) for site in leaving}
        if stream.carrier is None:
            self._choose(cluster, stream, now)
        else:
            self._tell(cluster, stream, now)

    def carriers(self) -> list[str]:
        return [stream.carrier for stream in self.streams.values() if stream.carrier is not None]

    def taken(self) -> float:
        """The members that an event is for, on average, as the carriers report it."""
        return sum(stream.taken for stream in self.streams.values()) / 1000

    # --- carriers -------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Choose carriers where there is none, or the one of now is of no use."""
        for cluster, stream in self.streams.items():
            if stream.carrier is None or not self._may_stay(cluster, stream):
                self._choose(cluster, stream, now)

    def tick(self, now: float) -> None:
        for key, _ in self._outgoing.tick(now):
            for cluster, stream in self.streams.items():
                if cluster_key(cluster) == key:
                    self._go_to(cluster, stream.carried)
        for cluster, stream in self.streams.items():
            for held in (stream.avoided, stream.overloaded):
                for site in [site for site, until in held.items() if until <= now]:
                    del held[site]
            flying = self._outgoing.backlog(cluster_key(cluster))[0]
            waits = not stream.is_confirmed or flying
            silent = now - max(stream.chosen_at, stream.heard_at) >= _PATIENCE_SECONDS
            if stream.carrier is not None and waits and silent:
                self._avoid(cluster, stream, stream.carrier, now)
            elif stream.carrier is None:
                self._choose(cluster, stream, now)
            elif now - stream.told_at >= (_REFRESH_SECONDS if stream.is_up_to_date else _REPEAT_SECONDS):
                self._tell(cluster, stream, now)

    def refused(self, carrier: str, refusal: CarrierRefusal, now: float) -> None:
        """A site does not want to carry a cluster."""
        stream = self.streams.get(refusal.cluster)
        if stream is None or stream.carrier != carrier:
            return
        if refusal.is_overloaded:
            stream.overloaded[carrier] = now + _AVOIDED_SECONDS
            self._choose(refusal.cluster, stream, now, refusal.instead)
        else:
            self._avoid(refusal.cluster, stream, carrier, now)

    def _avoid(self, cluster: int, stream: ClusterStream, carrier: str, now: float) -> None:
        stream.avoided[carrier] = now + _AVOIDED_SECONDS
        self._choose(cluster, stream, now)

    def _may_stay(self, cluster: int, stream: ClusterStream) -> bool:
        carrier = stream.carrier
        return (
            carrier is not None
            and self._states.reaches(carrier)
            and self._run_of(carrier) == stream.run
            and carrier in self._wanted(cluster)
        )

    def _wanted(self, cluster: int) -> list[str]:
        return self._candidates(cluster, [each.site for each in self._ledger.members(cluster)])

    def _choose(self, cluster: int, stream: ClusterStream, now: float, wanted: str = "") -> None:
        """Choose a carrier: the one that is wanted, if it may be; or else the first that has not too much to do."""
        if not stream.number:
            return
        found = [site for site in self._wanted(cluster) if self._states.reaches(site)]
        found = [site for site in found if site not in stream.avoided]
        free = self._balance.preferred(site for site in found if site not in stream.overloaded)
        stream.insists = not free
        chosen = wanted if wanted in free else next(iter(free or self._balance.preferred(found)), None)
        stream.carrier, stream.is_confirmed, stream.known_number, stream.chosen_at = chosen, False, 0, now
        self._outgoing.reach(cluster_key(cluster), False)
        if chosen is not None:
            stream.run = self._run_of(chosen)
            stream.carriers.add(chosen)
            self._tell(cluster, stream, now)

    def _run_of(self, site: str) -> int:
        return self._states.states[site].run

    def _tell(self, cluster: int, stream: ClusterStream, now: float) -> None:
        if stream.carrier is None:
            return
        stream.told_at = now
        floor = self._outgoing.acknowledged_position(cluster_key(cluster))
        members = self._ledger.members(cluster)
        start = max(stream.carried, floor)
        terms = CarrierTerms(stream.number, cluster, start, floor, members, stream.insists)
        self._out.say(stream.carrier, terms)

    # --- reports --------------------------------------------------------------------------------------

    def on_report(self, carrier: str, report: CarriageReport, end: int, now: float) -> str | None:
        """Take a report. `end` is that of the log. Returns why it is refused, if so."""
        cluster = report.cluster
        stream = self.streams.get(cluster)
        if stream is None or not stream.starts or report.number < stream.starts[0][0]:
            return None  # it is about a stream that is no more, or another run
        if carrier not in stream.carriers:
            return "a report of a site that carries nothing"
        if report.number > stream.number or all(number != report.number for number, _ in stream.starts):
            return "a report under terms that do not exist"
        if max(report.position, report.carried, report.again or 0) > end or report.position > report.carried:
            return "a report of what does not exist"
        position = stream.limit(report.number, report.position)
        if self._outgoing.acknowledge(cluster_key(cluster), position, now):
            self._out.append(MoveCursor(cluster_key(cluster), position - 1))
        for member in report.finished:
            if report.number >= stream.leaving.get(member, report.number + 1):
                self._ledger.finish(member, cluster)
        if carrier == stream.carrier:
            self._on_carried(cluster, stream, report, now)
        return None

    def _on_carried(self, cluster: int, stream: ClusterStream, report: CarriageReport, now: float) -> None:
        key = cluster_key(cluster)
        stream.heard_at = now
        if report.taken is not None:
            stream.taken = min(report.taken, 1000 * len(self._ledger.members(cluster)))
        stream.carried = max(report.carried, self._outgoing.acknowledged_position(key))
        self._outgoing.land(key, report.carried, now)
        stream.known_number = max(stream.known_number, report.number)
        if not stream.is_confirmed:
            stream.is_confirmed = True
            self._outgoing.reach(key, True)
            again = stream.carried if report.again is None else report.again
            self._go_to(cluster, again)
        elif report.again is not None and report.again < self._outgoing.sent_position(key):
            self._go_to(cluster, report.again)
        elif stream.carried >= self._outgoing.sent_position(key) + LEAST_LEFT_OUT:
            self._go_to(cluster, stream.carried)  # an earlier run has sent it
        if report.again is not None and report.again < self._outgoing.acknowledged_position(key):
            self._tell(cluster, stream, now)  # somebody does not know that it has more than it thinks

    def _go_to(self, cluster: int, position: int) -> None:
        key = cluster_key(cluster)
        self._out.append(Rewind(key, self._outgoing.go_to(key, position) - 1))
