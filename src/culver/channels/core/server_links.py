"""Which links of a client are up, and when to try again those that are down."""

from dataclasses import dataclass
from random import Random

from culver.channels.core.instructions import Connect, Instruction, ServerLink

_FIRST_RETRY_SECONDS = 0.05
_LONGEST_RETRY_SECONDS = 1.0


@dataclass(slots=True)
class _State:
    up: bool = False
    connecting: bool = False
    failures: int = 0
    retry_at: float = 0.0
    used_at: float = 0.0


class ServerLinks:
    """At most one publish link and one subscribe link for each server. Retries wait for a random part of a time that
    doubles, so that the clients of a server that comes back do not all arrive at once."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._links: dict[tuple[int, ServerLink], _State] = {}

    def is_up(self, server: int, link: ServerLink) -> bool:
        state = self._links.get((server, link))
        return state is not None and state.up

    def want(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        """Makes sure that a link is up, or is going to be."""
        state = self._links.setdefault((server, link), _State(retry_at=now))
        state.used_at = now
        return self._try(server, link, state, now)

    def connected(self, server: int, link: ServerLink) -> None:
        state = self._links.setdefault((server, link), _State())
        state.up, state.connecting, state.failures = True, False, 0

    def disconnected(self, server: int, link: ServerLink, now: float) -> None:
        state = self._links.get((server, link))
        if state is None:
            return
        longest = min(_FIRST_RETRY_SECONDS * 2**state.failures, _LONGEST_RETRY_SECONDS)
        state.up = state.connecting = False
        state.failures += 1
        state.retry_at = now + longest * (0.5 + self._random.random() / 2)

    def drop(self, server: int, link: ServerLink) -> None:
        self._links.pop((server, link), None)

    def tick(self, now: float) -> list[Instruction]:
        """Tries again what is due."""
        out: list[Instruction] = []
        for (server, link), state in self._links.items():
            out += self._try(server, link, state, now)
        return out

    def failing_for_long(self) -> bool:
        """Whether some server does not answer: then the ring may be out of date."""
        return any(not state.up and state.failures >= 3 for state in self._links.values())

    def all(self) -> list[tuple[int, ServerLink]]:
        return list(self._links)

    def _try(self, server: int, link: ServerLink, state: _State, now: float) -> list[Instruction]:
        if state.up or state.connecting or now < state.retry_at:
            return []
        state.connecting = True
        return [Connect(server, link)]
