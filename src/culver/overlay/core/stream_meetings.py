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
meet in that one either. A site that has more has met a run that this data directory knows nothing of. Two sites meet
again when one of them starts again.

Floors belong to names. A site that takes a new key keeps what it has.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from culver.overlay.site_keys import name_of


@dataclass(slots=True)
class Meeting:
    number: int
    floor: int
    is_answered: bool = False
    is_over: bool = False


class StreamMeetings:
    """`log_start` is the end of the log when the run began."""

    def __init__(self, log_start: int) -> None:
        self._log_start = log_start
        self._runs: dict[str, int] = {}
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

    def ask(self, site: str, number: int, position: int) -> Meeting:
        """The meeting that is under way, or a new one with this number. `position` is the end of the log."""
        if site not in self.current:
            name = name_of(site)
            floor = position if name in self._names_met else self.floors.get(name, self._log_start)
            self.current[site] = Meeting(number, floor)
        return self.current[site]

    def answered(self, site: str) -> None:
        """The site has said what it has, which is not more than its floor."""
        self.current[site].is_answered = True
        self._names_met.add(name_of(site))

    def unmet(self, sites: Iterable[str]) -> dict[str, int]:
        """The floors of those sites, by name, that this run has not met."""
        names = {name_of(site) for site in sites} - self._names_met
        return {name: self.floors.get(name, self._log_start) for name in sorted(names)}

    def heard_run(self, site: str, run: int) -> bool:
        """A site tells which run it is in; returns whether the two must meet again."""
        before = self._runs.get(site, run)
        self._runs[site] = run
        return before != run and self.current.pop(site, None) is not None

    def run_of(self, site: str) -> int:
        """The run of which a site told last."""
        return self._runs.get(site, 0)
