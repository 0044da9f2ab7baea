"""How fast the slices work: rates over the last seconds, from totals that only grow. Pure; time is passed in."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from culver.control.elasticity import SliceLoad
from culver.control.site_observation import SiteObservation


@dataclass(frozen=True, slots=True)
class SliceRates:
    sent_per_second: float  # events that were sent to it
    matched_per_second: float | None  # events, while its operator M worked; None: it did not
    busy: float  # seconds of work a second, of all operators
    sent_share: float  # of all events that were matched in that time


UNMEASURED = SliceRates(0.0, None, 0.0, 0.0)


_Moment = tuple[float, SiteObservation]
"""When a site was observed, in seconds, and how it was."""


class SliceMeter:
    """Not thread-safe. Feed it about once a second; it ignores an observation that is not later than the last one."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window_seconds = window_seconds
        self._moments: deque[_Moment] = deque()

    def observe(self, at_seconds: float, seen: SiteObservation) -> None:
        if self._moments and at_seconds <= self._moments[-1][0]:
            return
        self._moments.append((at_seconds, seen))
        while len(self._moments) > 2 and at_seconds - self._moments[1][0] >= self._window_seconds:
            self._moments.popleft()

    def forget(self) -> None:
        """Begin anew: slices have come or gone, and a number may mean another slice than before."""
        self._moments.clear()

    def arrived_per_second(self) -> float:
        """Events that arrived, over the whole window."""
        if len(self._moments) < 2:
            return 0.0
        (began, first), (ended, last) = self._moments[0], self._moments[-1]
        return (last.log_next_offset - first.log_next_offset) / (ended - began)

    def rates(self) -> dict[int, SliceRates]:
        """The rates of each slice that has done anything since the start, over the whole window."""
        if len(self._moments) < 2:
            return {}
        return _compared(self._moments[0], self._moments[-1])

    def loads(self, registrations: Mapping[int, int]) -> list[SliceLoad]:
        """How busy each of these slices was between the last two observations, for the controller."""
        rates = _compared(self._moments[-2], self._moments[-1]) if len(self._moments) > 1 else {}
        return [
            SliceLoad(number, rates.get(number, UNMEASURED).busy, held)
            for number, held in sorted(registrations.items())
        ]


def _compared(before: _Moment, after: _Moment) -> dict[int, SliceRates]:
    seconds = after[0] - before[0]
    earlier, later = before[1].pipeline, after[1].pipeline
    matched = later.position - earlier.position
    return {
        done.slice: SliceRates(
            done.sent / seconds,
            done.sent / done.m_seconds if done.m_seconds > 0 else None,
            done.busy_seconds / seconds,
            min(1.0, done.sent / matched) if matched > 0 else 0.0,
        )
        for done in later.slices_since(earlier)
    }
