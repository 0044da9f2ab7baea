"""Meetings: before a stream goes on, its receiver says what it has, and hears where the stream begins.

    paris, whose log ended at 5 when it started       lyon, which has everything of paris below 4
        StreamQuestion 17                      -->
                                               <--    StreamAnswer 17: had 4
        StreamBeginning 17, position 4         -->
                                               <--    StreamAcknowledgement 17, position 4: the stream goes on

    paris, on an older copy of its data directory     lyon, which has everything of paris below 9
        StreamQuestion 17                      -->
                                               <--    StreamAnswer 17: had 9, and paris leaves the overlay

Nothing of a stream is sent before that. So a site that this run has not met knows nothing of this run, and can have
nothing beyond its floor: the end that the log had at the start, or at the start of an earlier run, if the two did not
meet in that one either. A site that has more has met a run that this data directory knows nothing of. So has one
whose advertisement was in effect from a later position on than this site knows. Two sites meet again when one of them
starts again.

Floors belong to names. A site that takes a new key keeps what it has.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import LeaveOverlay, NodeOutbox, StoreFloors
from culver.overlay.core.outgoing_streams import MailboxGap, OutgoingStreams
from culver.overlay.core.overlay_messages import StreamAnswer, StreamBeginning, StreamQuestion
from culver.overlay.site_keys import name_of

_LOST_AFTER_ACKNOWLEDGEMENT = "acknowledged before, and missing since"


@dataclass(slots=True)
class Meeting:
    """`run` is that of the other site."""

    number: int
    run: int
    floor: int
    is_answered: bool = False
    is_over: bool = False


class StreamMeetings:
    """`log_start` is the end of the log when the run began. `in_effect_since` tells from where on a site's
    advertisement is in effect here, and `owed` from where on a site may miss something that this one has dropped, and
    why."""

    def __init__(
        self,
        log_start: int,
        states: LinkStates,
        outgoing: OutgoingStreams,
        out: NodeOutbox,
        in_effect_since: Callable[[str], int],
        owed: Callable[[str], tuple[int, str] | None],
    ) -> None:
        self._log_start = log_start
        self._states = states
        self._outgoing = outgoing
        self._out = out
        self._in_effect_since = in_effect_since
        self._owed = owed
        self._names_met: set[str] = set()
        self.current: dict[str, Meeting] = {}
        """The last meeting with each site, whether it is over or under way."""
        self.floors: dict[str, int] = {}
        """The floors of names that earlier runs have not met."""

    def __contains__(self, site: str) -> bool:
        """Whether the stream to a site may go on."""
        return site in self.current and self.current[site].is_over

    def of(self, site: str, number: int) -> Meeting | None:
        """The meeting with a site, if it has that number."""
        meeting = self.current.get(site)
        return meeting if meeting is not None and meeting.number == number else None

    def unmet(self, sites: Iterable[str]) -> dict[str, int]:
        """The floors, by name, of those sites that have a stream and that this run has not met."""
        names = {name_of(site) for site in sites if site in self._outgoing} - self._names_met
        return {name: self.floors.get(name, self._log_start) for name in sorted(names)}

    def meet(self, site: str, position: int) -> None:
        """Ask a site what it has of its stream, or tell it where that begins, if there is a way: repeat this until it
        answers. `position` is the end of the log."""
        if site not in self._outgoing or not self._states.reaches(site):
            return
        if site not in self.current:
            name, run = name_of(site), self._states.states[site].run
            floor = position if name in self._names_met else self.floors.get(name, self._log_start)
            self.current[site] = Meeting(self._outgoing.next_number(), run, floor)
        meeting = self.current[site]
        if meeting.is_answered:
            self.tell_beginning(site)
        else:
            self._out.route(StreamQuestion(self._states.own, site, 0, meeting.number, meeting.run))

    def on_answer(self, message: StreamAnswer) -> None:
        site, had = message.source, message.had
        meeting = self.of(site, message.meeting)
        if meeting is None or meeting.is_answered:
            return
        reason = ""
        if had > meeting.floor:
            reason = f"{name_of(site)} has its log up to {had}, and this copy of it ended at {meeting.floor}"
        elif message.promised > self._in_effect_since(site):
            reason = (
                f"this copy does not have what {name_of(site)} subscribed to at position {message.promised}"
            )
        if reason:
            self._out.append(LeaveOverlay(meeting.floor, reason))
            return
        meeting.is_answered = True
        self._names_met.add(name_of(site))
        self._out.append(StoreFloors())
        self.tell_beginning(site)

    def tell_beginning(self, site: str) -> None:
        """Tell a site where its stream begins."""
        start, begin = self._outgoing.begun_position(site), self._outgoing.acknowledged_position(site)
        owed = self._owed(site) or (start, _LOST_AFTER_ACKNOWLEDGEMENT if start < begin else "")
        self._tell(site, owed[0], begin, owed[1], goes_on=False)

    def tell_gap(self, site: str, gap: MailboxGap) -> None:
        """Tell a site what its mailbox no longer has."""
        self._tell(site, gap.start, gap.end, gap.reason, goes_on=True)

    def _tell(self, site: str, start: int, position: int, reason: str, *, goes_on: bool) -> None:
        number = self.current[site].number
        message = StreamBeginning(self._states.own, site, 0, start, position, reason, number, goes_on)
        self._out.route(message)

    def heard_run(self, site: str, run: int) -> bool:
        """A site tells which run it is in; returns whether the two must meet again."""
        if site not in self.current or self.current[site].run == run:
            return False
        del self.current[site]
        return True
