"""How well this member's own probes fare: the round trips, and the share of probes without an answer in time.

A member whose probes fail everywhere should doubt itself, or its network, before it accuses others (Lifeguard's local
health). Lifeguard counts up and down; a share also tells how many probes of one member must fail until chance alone
is an unlikely reason.
"""

from math import ceil, log

from culver.overlay.gossip.gossip_settings import GossipSettings

_WEIGHT = 1 / 32  # of the latest probe in the share that fails
_GAIN, _DEVIATION_GAIN, _DEVIATIONS = 1 / 8, 1 / 4, 4.0  # as TCP does it
_SLOWDOWN = 4.0
_AT_FIRST = 0.25  # a member that has just started knows nothing of its network, and accuses nobody rashly


class ProbeHealth:
    """Measures, and derives timeouts and numbers of attempts."""

    def __init__(self, settings: GossipSettings) -> None:
        self._settings = settings
        self._round_trip: float | None = None
        self._deviation = 0.0
        self.failing_share = _AT_FIRST

    def answered(self, round_trip_seconds: float) -> None:
        """A member has answered a probe directly."""
        if self._round_trip is None:
            self._round_trip, self._deviation = round_trip_seconds, round_trip_seconds / 2
        else:
            error = round_trip_seconds - self._round_trip
            self._round_trip += _GAIN * error
            self._deviation += _DEVIATION_GAIN * (abs(error) - self._deviation)
        self.failing_share -= _WEIGHT * self.failing_share

    def failed(self) -> None:
        """A probe had no answer in time, or others had reason to suspect this member."""
        self.failing_share += _WEIGHT * (1.0 - self.failing_share)

    @property
    def slowdown(self) -> float:
        """The factor of timeouts: 1 in good health, 5 where every probe fails."""
        return 1.0 + _SLOWDOWN * self.failing_share

    @property
    def timeout_seconds(self) -> float:
        """The time that an answer may take until others are asked to probe."""
        settings = self._settings
        if self._round_trip is None:
            return settings.most_timeout_seconds
        wanted = (self._round_trip + _DEVIATIONS * self._deviation) * self.slowdown
        return min(settings.most_timeout_seconds, max(settings.least_timeout_seconds, wanted))

    @property
    def attempts(self) -> int:
        """How many probes of one member must fail, relays included, before it is suspected."""
        failing = self.failing_share
        if failing < 0.02:
            return 1
        # A relay needs two round trips.
        attempt_fails = failing * (1.0 - (1.0 - failing) ** 2) ** self._settings.relays
        if attempt_fails > 0.5:
            return self._settings.most_attempts
        wanted = ceil(log(self._settings.false_alarm_chance) / log(attempt_fails))
        return max(1, min(self._settings.most_attempts, wanted))
