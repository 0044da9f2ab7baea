"""A client's own part of the plan (Dynamoth, section II-C): entries of the channels that it uses, and no others."""

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass

from culver.channels.core.channel_plan import PlanEntry, Ring

#: How long a client remembers an entry of a channel that it neither uses nor subscribes to (section IV-A-5).
#: Dispatchers listen for publications to the old servers at least as long.
IDLE_SECONDS = 30.0


@dataclass(slots=True)
class _Known:
    entry: PlanEntry
    used_at: float


class LocalPlan:
    """Entries in the order of their last use, so that the idle ones come first. Entries only grow newer.

    ``ring`` and ``secret`` come from the service; entries count only if they are signed with the secret.
    """

    def __init__(self, ring: Ring, secret: bytes) -> None:
        self.ring = ring
        self.secret = secret
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def entry(self, channel: bytes, now: float) -> PlanEntry | None:
        """The known entry, which counts as used now; None if the channel's home must be asked."""
        known = self._known.get(channel)
        if known is None:
            return None
        known.used_at = now
        self._known.move_to_end(channel)
        return known.entry

    def peek(self, channel: bytes) -> PlanEntry:
        """The known entry or the home's, without counting as a use."""
        known = self._known.get(channel)
        return self.ring.home_entry(channel) if known is None else known.entry

    def version(self, channel: bytes) -> int:
        """The version that this client obeys; -1 if it knows none."""
        known = self._known.get(channel)
        return -1 if known is None else known.entry.version

    def learn(self, channel: bytes, entry: PlanEntry, now: float) -> bool:
        """Takes an entry unless it is as old as the known one or older. Returns whether it was taken."""
        if entry.version <= self.version(channel):
            return False
        self._known[channel] = _Known(entry, now)
        self._known.move_to_end(channel)
        return True

    def begin_anew(self, ring: Ring, secret: bytes) -> None:
        """Takes the ring and the secret of another service: its versions are not to be compared with those known."""
        self.ring = ring
        self.secret = secret
        self._known.clear()

    def forget(self, channel: bytes) -> None:
        self._known.pop(channel, None)

    def forget_idle(self, now: float, keep: Container[bytes]) -> None:
        """Forgets what was not used for ``IDLE_SECONDS``, except the channels to ``keep``."""
        while self._known:
            channel, known = next(iter(self._known.items()))
            if known.used_at > now - IDLE_SECONDS:
                return
            if channel in keep:
                known.used_at = now
                self._known.move_to_end(channel)
            else:
                del self._known[channel]

    def channels_outside(self, servers: frozenset[int]) -> list[bytes]:
        """The channels whose entries name a server that is not among these."""
        return [channel for channel, known in self._known.items() if not known.entry.servers <= servers]

    def channels_at_home(self) -> list[bytes]:
        return [channel for channel, known in self._known.items() if known.entry.version == 0]
