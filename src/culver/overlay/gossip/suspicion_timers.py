"""How long each suspect has to object.

The time depends on the number of members, since the suspicion must reach the suspect and its objection everybody. It
is long at first, and each independent accuser shortens it (Lifeguard, section III-B).
"""

from math import log

import msgspec

from culver.overlay.gossip.gossip_settings import GossipSettings


class _Suspicion(msgspec.Struct):
    incarnation: int
    started_at: float
    least_seconds: float
    most_seconds: float
    confirmations: int  # that count
    accusers: set[str]

    @property
    def ends_at(self) -> float:
        if self.confirmations <= 0:
            return self.started_at + self.least_seconds
        share = log(len(self.accusers)) / log(self.confirmations + 1)
        span = self.most_seconds - self.least_seconds
        return self.started_at + max(self.least_seconds, self.most_seconds - span * share)


class SuspicionTimers:
    """Holds a timer for each suspect."""

    def __init__(self, settings: GossipSettings) -> None:
        self._settings = settings
        self._suspicions: dict[str, _Suspicion] = {}
        self.next_end = float("inf")

    def begin(
        self, key: str, incarnation: int, accuser: str, members: int, slowdown: float, now: float
    ) -> None:
        """Begins a suspicion, in the place of one of an earlier incarnation."""
        least = self._settings.suspicion_seconds(members) * slowdown
        self._suspicions[key] = _Suspicion(
            incarnation=incarnation,
            started_at=now,
            least_seconds=least,
            most_seconds=least * self._settings.suspicion_spread,
            confirmations=min(self._settings.confirmations, members - 2),
            accusers={accuser},
        )
        self._find_next()

    def confirm(self, key: str, incarnation: int, accuser: str) -> bool:
        """Adds an accuser, and returns whether it counts: a new one, and not one too many."""
        suspicion = self._suspicions.get(key)
        if suspicion is None or suspicion.incarnation != incarnation or accuser in suspicion.accusers:
            return False
        if len(suspicion.accusers) > suspicion.confirmations:
            return False
        suspicion.accusers.add(accuser)
        self._find_next()
        return True

    def end(self, key: str) -> None:
        """The suspect has objected, died or left."""
        if self._suspicions.pop(key, None) is not None:
            self._find_next()

    def postpone(self, seconds: float) -> None:
        """Gives every suspect more time: this member has been away for so long."""
        for suspicion in self._suspicions.values():
            suspicion.started_at += seconds
        self._find_next()

    def ended(self, now: float) -> list[tuple[str, int]]:
        """Returns (key, incarnation) of the suspects whose time is over, and forgets them."""
        if now < self.next_end:
            return []
        over = [
            (key, suspicion.incarnation)
            for key, suspicion in self._suspicions.items()
            if suspicion.ends_at <= now
        ]
        for key, _ in over:
            del self._suspicions[key]
        self._find_next()
        return over

    def _find_next(self) -> None:
        self.next_end = min((each.ends_at for each in self._suspicions.values()), default=float("inf"))
