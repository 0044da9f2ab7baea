"""Time that passes only when the simulation says so, and the actions that wait for it."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

#: So many actions at one moment mean that they schedule each other for ever.
MOST_ACTIONS_AT_ONE_TIME = 1_000_000


@dataclass(slots=True)
class VirtualTimer:
    """An action that waits for its time."""

    action: Callable[[], None] | None

    def cancel(self) -> None:
        """Makes sure that the action does not run. A timer that has run already does not mind."""
        self.action = None


class VirtualClock:
    """The event loop of a simulation: it runs actions in the order of their times, and nothing else moves time.

    It reads no real clock and draws no random number, so equal calls lead to equal runs.
    """

    def __init__(self) -> None:
        self.now = 0.0
        # By time; timers of equal times run in the order in which they were set.
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._numbers = 0
        self._actions_at_this_time = 0

    def at(self, time: float, action: Callable[[], None]) -> VirtualTimer:
        """Runs the action when the clock reaches ``time``.

        :raises ValueError: the time has passed already.
        """
        if time < self.now:
            raise ValueError(f"{time} has passed: it is {self.now}")
        self._numbers += 1
        timer = VirtualTimer(action)
        heappush(self._timers, (time, self._numbers, timer))
        return timer

    def after(self, delay_seconds: float, action: Callable[[], None]) -> VirtualTimer:
        """Runs the action when ``delay_seconds`` have passed."""
        return self.at(self.now + delay_seconds, action)

    def run_until(self, time: float) -> None:
        """Runs everything up to and at ``time``, which is the clock's time afterwards."""
        while self._timers and self._timers[0][0] <= time:
            self._run_next()
        self.now = max(self.now, time)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def run_while(self, condition: Callable[[], bool], limit_seconds: float) -> bool:
        """Runs action by action while the condition holds, for ``limit_seconds`` at most.

        Returns whether the condition has ended; if it has, the clock stands at the action that ended it.
        """
        limit = self.now + limit_seconds
        while condition():
            if not self._timers or self._timers[0][0] > limit:
                self.now = limit
                return not condition()
            self._run_next()
        return True

    def _run_next(self) -> None:
        time, _, timer = heappop(self._timers)
        action, timer.action = timer.action, None
        if action is None:
            return
        if time > self.now:
            self.now = time
            self._actions_at_this_time = 0
        self._actions_at_this_time += 1
        if self._actions_at_this_time > MOST_ACTIONS_AT_ONE_TIME:
            raise RuntimeError(f"time stands still at {self.now}: actions schedule each other without delay")
        action()
