"""Whether the sites that get a stream have said what they have of it, in this run of theirs and of this site's.

    paris, whose log ended at 5 when it started       lyon, which has everything of paris below 4
        StreamBeginning, meeting 17, floor 5   -->
                                               <--    acknowledges 4 for meeting 17: the stream goes on

    paris, on an older copy of its data directory     lyon, which has everything of paris below 9
        StreamBeginning, meeting 17, floor 5   -->    announces a gap from 5 to 9
                                               <--    acknowledges 9 for meeting 17, had 9: paris is behind

Nothing of a stream is sent before that. So a site that this run has not met knows nothing of this run, and can have
nothing beyond the end that the log had at the start; or at the start of an earlier run, if they did not meet in that
one either. Two sites meet again when one of them starts again.
"""

from culver.overlay.site_keys import name_of


class StreamMeetings:
    """`log_start` is the end of the log when the run began."""

    def __init__(self, log_start: int) -> None:
        self._log_start = log_start
        self._runs: dict[str, int] = {}
        self._meetings: dict[str, tuple[int, int]] = {}  # that wait for an answer: number and floor
        self._told: dict[str, int] = {}
        self.floors: dict[str, int] = {}
        """The floors of sites that earlier runs have not met."""
        self._over: set[str] = set()
        self._ever_met: set[str] = set()
        self.had: dict[str, int] = {}
        """The sites that have more of this site's log than there was at the start, and how much."""

    def __contains__(self, site: str) -> bool:
        """Whether the site has said what it has."""
        return site in self._over

    def is_asked(self, site: str) -> bool:
        return site in self._meetings

    def ask(self, site: str, number: int, begin: int, position: int) -> tuple[int, int]:
        """The number of the meeting that is under way, which is this one if a new meeting begins, and its floor: the
        site can know of nothing beyond, unless this site runs on an older copy of its data directory. `begin` is
        where the site hears that its stream begins, and `position` the end of the log."""
        if site not in self._meetings:
            # A site that answered in vain, and has started again since, knows where its stream begins.
            self._meetings[site] = number, position if site in self._ever_met else self.floor(site)
        self._told[site] = begin
        return self._meetings[site]

    def floor(self, site: str) -> int:
        """The floor of a site that this run has not met."""
        return max(self.floors.get(site, self._log_start), self._told.get(site, 0))

    def has_ever_met(self, site: str) -> bool:
        return site in self._ever_met

    def answered(self, site: str, number: int, had: int) -> bool:
        """The site has said what it has; returns False where nobody asked for that any more."""
        expected, floor = self._meetings.get(site, (0, 0))
        if expected != number:
            return False
        del self._meetings[site]
        if had > floor and site not in self._ever_met:
            self.had[site] = had
        self._over.add(site)
        self._ever_met.add(site)
        return True

    def heard_run(self, site: str, run: int) -> bool:
        """A site tells which run it is in; returns whether the two must meet again."""
        before = self._runs.get(site, run)
        self._runs[site] = run
        if before == run:
            return False
        self._meetings.pop(site, None)
        was_over = site in self._over
        self._over.discard(site)
        return was_over

    def run_of(self, site: str) -> int:
        """The run of which a site told last."""
        return self._runs.get(site, 0)

    def leave(self, site: str) -> None:
        """The stream to a site has ended."""
        self._meetings.pop(site, None)
        self._over.discard(site)

    def troubles(self) -> list[str]:
        """Tells an operator, in sentences, of sites that have more of this log than this site has."""
        return [
            f"this site runs on an older copy of its data directory: {name_of(site)} has its log up to {had}, and "
            "drops what is published here with a lower offset"
            for site, had in self.had.items()
        ]
