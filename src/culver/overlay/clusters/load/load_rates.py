"""Measures messages a second, and how many a broker can handle."""

import math

_LEAST_AGE_SECONDS = 1.0
# The first guess counts for as much as this measured work, and what was measured fades after so much.
_GUESS_BUSY_SECONDS = 0.5
_MEMORY_BUSY_SECONDS = 5.0


class MessageRate:
    """An exponentially smoothed rate. A young one divides by its age, so it is right from the first seconds on."""

    __slots__ = ("_count", "_last", "_start", "_window")

    def __init__(self, window_seconds: float, now: float) -> None:
        self._window = window_seconds
        self._count = 0.0
        self._start = self._last = now

    def add(self, messages: float, now: float) -> None:
        self._count = self._faded(now) + messages
        self._last = max(now, self._last)

    def rate(self, now: float) -> float:
        age = max(now - self._start, _LEAST_AGE_SECONDS)
        return self._faded(now) / (self._window * -math.expm1(-age / self._window))

    def _faded(self, now: float) -> float:
        return self._count * math.exp(min(0.0, self._last - now) / self._window)


class MeasuredCapacity:
    """R, the messages a second that a broker can handle: messages for each second in which it was busy.

    Idle time changes nothing, since old measurements fade with busy seconds and not with time. A load of 0.9 R means
    that the broker is busy for nine tenths of the time. The first guess should be low: a broker that takes itself for
    weak hands load over too early, one that takes itself for strong is overrun.
    """

    def __init__(self, first_guess: float) -> None:
        self._messages = first_guess * _GUESS_BUSY_SECONDS
        self._busy = _GUESS_BUSY_SECONDS

    def worked(self, busy_seconds: float, messages: int) -> None:
        """Count a stretch of work. Nonsense (a clock that went back, more than can be) is ignored."""
        if not (0 < busy_seconds < math.inf and 0 < messages < math.inf):
            return
        fading = math.exp(-busy_seconds / _MEMORY_BUSY_SECONDS)
        self._messages = self._messages * fading + messages
        self._busy = self._busy * fading + busy_seconds

    @property
    def rate(self) -> float:
        return self._messages / self._busy
