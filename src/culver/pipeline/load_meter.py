"""Measures how the sets did in the last seconds, from the work that comes with each result. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.operator_work import SliceWork

_HALF_LIFE_SECONDS = 10.0
# A thousand events fade to this in about five minutes.
_FORGOTTEN_EVENTS = 1e-6
_DIGITS = 3


@dataclass(slots=True)
class _SetLoad:
    sent: float = 0.0
    seconds: float = 0.0
    blocks: float = 0.0
    block_seconds: float = 0.0  # of all work of M in the slices that worked on this set

    def response(self) -> float:
        return self.block_seconds / self.blocks + self.seconds / self.sent if self.blocks else 0.0


class LoadMeter:
    """Adds up work with weights that halve every ten seconds. Not thread-safe; time is passed in."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._division = ""
        self._sets: dict[int, _SetLoad] = {}
        self._events = self._pairs = 0.0
        self._last_pairs: float | None = None

    def add(self, work: Sequence[SliceWork], now: float) -> None:
        """Count the work on one block, in all slices that worked on it."""
        if not work:
            return
        self._fade(now)
        self._events += max(each.events for each in work)
        self._pairs += sum(each.pairs for each in work)
        for each in work:
            if each.division != self._division:
                self._division, self._sets = each.division, {}
            for number, sent, seconds in each.sets:
                load = self._sets.setdefault(number, _SetLoad())
                load.sent += sent
                load.seconds += seconds
                load.blocks += 1
                load.block_seconds += each.m_seconds

    def report(self, now: float) -> LoadReport:
        self._fade(now)
        if self._events > 1e-9:
            self._last_pairs = _rounded(self._pairs / self._events)
        sets = [self._sets.get(number, _SetLoad()) for number in range(max(self._sets, default=-1) + 1)]
        per_second = 0.6931 / _HALF_LIFE_SECONDS  # a steady flow of one a second adds up to the inverse
        return LoadReport(
            self._division,
            0,
            self._last_pairs,
            tuple(_rounded(each.sent / each.seconds) if each.seconds > 0 else 0.0 for each in sets),
            tuple(_rounded(each.sent * per_second) for each in sets),
            tuple(_rounded(each.response()) for each in sets),
        )

    def _fade(self, now: float) -> None:
        kept = 1.0 if self._at is None else 0.5 ** (max(0.0, now - self._at) / _HALF_LIFE_SECONDS)
        self._at = now
        self._events *= kept
        self._pairs *= kept
        for load in self._sets.values():
            load.sent *= kept
            load.seconds *= kept
            load.blocks *= kept
            load.block_seconds *= kept
        # A set that got nothing for long counts as not measured: only rounding errors would be left of it.
        self._sets = {number: load for number, load in self._sets.items() if load.sent > _FORGOTTEN_EVENTS}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
