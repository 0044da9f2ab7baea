"""Periods, timeouts and limits of the gossip. All members of an overlay should use the same."""

from dataclasses import dataclass
from math import log2, log10


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings:
    """The defaults suit up to some thousand members anywhere in the world."""

    period_seconds: float = 1.0  # each member begins one probe a period
    least_timeout_seconds: float = 0.05  # until others are asked to probe, whatever round trips were measured
    most_timeout_seconds: float = 0.5
    relays: int = 3  # members that are asked to probe
    most_attempts: int = 6  # probes of one member before a suspicion, where many of our probes fail
    false_alarm_chance: float = 1e-5  # that the number of attempts aims at, by the share of probes that fail

    suspicion_periods: float = 4.0  # times log10 of the members: the least time that a suspect has to object
    suspicion_spread: float = 6.0  # times the least: the time without a confirmation
    confirmations: int = 3  # by others, after which the least time holds
    second_opinions: float = 6.0  # members, on average, that probe a suspect when they hear of it

    copies: float = 3.0  # times log2 of the members: how often each member passes on a piece of news
    news_bytes: int = 1_024  # of news in a message
    fanout: int = 0  # members that get news each period besides those that are probed
    piece_bytes: int = 16_384  # of members in a piece of a table

    exchange_seconds: float = 30.0  # between two exchanges of tables; grows with the number of members
    reconnect_seconds: float = 30.0  # between two probes of members that were declared dead
    loads_per_second: float = 3.0  # new load figures of all members together
    forget_seconds: float = 6 * 3600.0  # until a dead member is forgotten, all but its incarnation
    tombstone_seconds: float = 24 * 3600.0  # until that is forgotten too

    most_members: int = 10_000
    most_facts_bytes: int = 512
    most_incarnation_lead: int = 1 << 42  # above what is known; leaves room to refute what is forged

    def copies_of_news(self, members: int) -> int:
        return max(2, round(self.copies * log2(members + 1)))

    def suspicion_seconds(self, members: int) -> float:
        """The least time that a suspect has."""
        return self.suspicion_periods * max(1.0, log10(max(1, members))) * self.period_seconds

    def exchange_interval(self, members: int) -> float:
        return self.exchange_seconds * (1.0 + max(0.0, log2(max(1, members) / 32)))


def quick_gossip() -> GossipSettings:
    """Settings for a cluster of up to some dozens of members with short ways, which notices a death within 3 s."""
    return GossipSettings(
        period_seconds=0.25,
        least_timeout_seconds=0.03,
        most_timeout_seconds=0.12,
        fanout=2,
        exchange_seconds=15.0,
        reconnect_seconds=5.0,
    )
