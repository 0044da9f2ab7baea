"""Who is probed next, and the probes that wait for their answers."""

from random import Random

import msgspec


class ProbeRing:
    """The living members besides the owner, in a random order that is drawn anew after each pass. A member waits for
    its next probe for two passes at most (SWIM, section 4.3)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._keys: list[str] = []
        self._place = 0

    def insert(self, key: str) -> None:
        """Puts a member at a random place, so that all who hear of it at once do not probe it at once."""
        self._keys.insert(int(self._random.random() * (len(self._keys) + 1)), key)

    def remove(self, key: str) -> None:
        place = self._keys.index(key)
        del self._keys[place]
        if place < self._place:
            self._place -= 1

    def next_target(self) -> str | None:
        if self._place >= len(self._keys):
            self._random.shuffle(self._keys)
            self._place = 0
        if not self._keys:
            return None
        self._place += 1
        return self._keys[self._place - 1]

    def some(self, count: int, but_not: str = "") -> list[str]:
        """Draws that many members, or fewer where there are not so many."""
        keys, random = self._keys, self._random.random
        if len(keys) <= 2 * (count + 1):
            others = [key for key in keys if key != but_not]
            return self._random.sample(others, min(count, len(others)))
        chosen: list[str] = []
        while len(chosen) < count:
            key = keys[int(random() * len(keys))]
            if key != but_not and key not in chosen:
                chosen.append(key)
        return chosen


class PendingProbe(msgspec.Struct, gc=False):
    """A probe without an answer. Others are asked to probe the target too at `relayed_at`."""

    sequence: int
    target: str
    attempt: int
    sent_at: float
    relayed_at: float
    ends_at: float
    is_relayed: bool = False

    @property
    def next_stage(self) -> float:
        return self.ends_at if self.is_relayed else self.relayed_at


class PendingProbes:
    """Holds the probes that have no answer yet; a few at most."""

    def __init__(self) -> None:
        self._probes: dict[int, PendingProbe] = {}
        self.next_stage = float("inf")

    def add(self, probe: PendingProbe) -> None:
        self._probes[probe.sequence] = probe
        self.next_stage = min(self.next_stage, probe.next_stage)

    def take_answer(self, sequence: int, source: str) -> PendingProbe | None:
        """Returns the probe that this answers, which waits no longer. A relay may answer only where one was asked."""
        probe = self._probes.get(sequence)
        if probe is None or (source != probe.target and not probe.is_relayed):
            return None
        del self._probes[sequence]
        self._find_next()
        return probe

    def advance(self, now: float) -> tuple[list[PendingProbe], list[PendingProbe]]:
        """Returns the probes that need relays now, and those that have failed."""
        late: list[PendingProbe] = []
        failed: list[PendingProbe] = []
        for probe in list(self._probes.values()):
            if now >= probe.ends_at:
                del self._probes[probe.sequence]
                failed.append(probe)
            elif now >= probe.relayed_at and not probe.is_relayed:
                probe.is_relayed = True
                late.append(probe)
        self._find_next()
        return late, failed

    def postpone(self, seconds: float) -> None:
        for probe in self._probes.values():
            probe.relayed_at += seconds
            probe.ends_at += seconds
        self._find_next()

    def _find_next(self) -> None:
        self.next_stage = min((probe.next_stage for probe in self._probes.values()), default=float("inf"))
