"""One member of the overlay's gossip: it probes others, spreads news, and knows who is alive.

Each period the member probes the next one of a shuffled list. If no answer comes, the probe goes on:

    0                   Probe to the member
    timeout             IndirectProbe to some others, which probe it in turn
    period              the attempt has failed; another one, where many of our probes fail
    last attempt        the member is suspected, and told so
    suspicion ends      it is dead, unless it has objected with a higher incarnation

The owner calls `tick` at `next_due` or more often, hands over every message that comes, and carries out the
instructions in their order. All calls must come from one thread, with times that never go back.
"""

from collections.abc import Iterable, Iterator
from random import Random

from culver.overlay.gossip.gossip_checks import GossipChecks
from culver.overlay.gossip.gossip_instructions import (
    FactsChanged,
    GossipInstruction,
    MemberChanged,
    RefusedGossip,
    SendGossip,
)
from culver.overlay.gossip.gossip_messages import (
    FactsNews,
    GossipMessage,
    IndirectProbe,
    MemberFacts,
    MemberStatus,
    News,
    NewsMessage,
    Probe,
    ProbeAnswer,
    StatusNews,
    TableDigest,
    TablePiece,
    encoded_size,
)
from culver.overlay.gossip.gossip_settings import GossipSettings
from culver.overlay.gossip.member_table import MemberRecord, MemberTable, TableChange, news_of
from culver.overlay.gossip.news_queue import NewsQueue
from culver.overlay.gossip.probe_health import ProbeHealth
from culver.overlay.gossip.probe_schedule import PendingProbe, PendingProbes, ProbeRing
from culver.overlay.gossip.suspicion_timers import SuspicionTimers
from culver.overlay.gossip.table_exchange import better_known, pieces_where_different, sums_of

_ALIVE, _SUSPECT, _DEAD, _LEFT = MemberStatus
_SEEDS_AT_ONCE = 3
_FAREWELLS = 8
_MOST_RELAYED = 1_024
_FORGET_PERIODS = 60


class GossipCore:
    """A member with its view of all others.

    :param incarnation_base: a number that grows with each start of the member, such as the seconds since 1970.
    """

    def __init__(self, own_key: str, incarnation_base: int, settings: GossipSettings, random: Random) -> None:
        self.own_key = own_key
        self._settings = settings
        self._random = random
        self._incarnation = incarnation_base
        self._facts: MemberFacts | None = None
        self._held_facts: MemberFacts | None = None
        self._facts_at = float("-inf")
        # Members that start together do not publish their loads together.
        self._waiting_share = random.random()
        self._table = MemberTable()
        self._table.merge(StatusNews(own_key, incarnation_base, _ALIVE), 0.0)
        self._checks = GossipChecks(own_key, settings, self._table)
        self._news = NewsQueue()
        self._health = ProbeHealth(settings)
        self._suspicions = SuspicionTimers(settings)
        self._ring = ProbeRing(random)
        self._probes = PendingProbes()
        self._relayed: dict[int, tuple[str, int]] = {}  # own sequence -> who asked, and with which one
        self._sequence = 0
        self._seeds: list[str] = []
        self._has_left = False
        self._ticked_at: float | None = None
        self._next_period = float("-inf")
        self._next_exchange = self._next_reconnection = float("inf")
        self._periods = 0
        self._reunited_at = float("-inf")

    # --- what is known ---

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def failing_share(self) -> float:
        """The share of this member's latest probes that were not answered directly and in time."""
        return self._health.failing_share

    def members(self) -> Iterator[MemberRecord]:
        """Yields all members that are not forgotten, this one and the dead included."""
        return self._table.records()

    def member(self, key: str) -> MemberRecord | None:
        record = self._table.get(key)
        return None if record is None or record.is_tombstone else record

    def living_count(self) -> int:
        """How many members are alive or suspected, this one included."""
        return self._table.living

    def snapshot(self) -> tuple[News, ...]:
        """States all living members, for `restore` after a restart."""
        return tuple(news_of(record) for record in self._table.records() if record.is_living)

    # --- what the owner asks for ---

    def restore(self, news: Iterable[News], now: float) -> None:
        """Takes over what an earlier run knew, without telling others. Call it before the first tick."""
        for each in news:
            change = None if each.key == self.own_key else self._table.merge(each, now)
            if change is not None and change.before is None and change.status.is_living:
                self._ring.insert(each.key)

    def join(self, keys: Iterable[str], now: float) -> list[GossipInstruction]:
        """Asks these members for theirs, again each period until one of them has answered."""
        self._seeds = [key for key in keys if key != self.own_key]
        out: list[GossipInstruction] = []
        self._ask_seeds(out)
        return out

    def leave(self, now: float) -> list[GossipInstruction]:
        """Says farewell to some members, which tell the others. Nobody is probed or answered afterwards; each
        further tick repeats the farewell."""
        self._has_left = True
        self._table.merge(StatusNews(self.own_key, self._incarnation, _LEFT), now)
        return self._farewells()

    def publish_facts(
        self,
        addresses: tuple[str, ...],
        loads: dict[str, float],
        labels: dict[str, str],
        now: float,
    ) -> None:
        """Publishes facts about this member. Where only loads differ, they may be held back for a while, so that all
        members together publish no more than `loads_per_second`; the latest ones go out then.

        :raises ValueError: the facts are larger than `most_facts_bytes`.
        """
        version = 1 + (self._incarnation if self._facts is None else self._facts.version)
        facts = MemberFacts(version, addresses, loads, labels)
        if encoded_size(facts) > self._settings.most_facts_bytes:
            raise ValueError(f"the facts of a member have {self._settings.most_facts_bytes} bytes at most")
        known = self._facts
        if known is not None and (known.addresses, known.labels) == (addresses, labels):
            self._held_facts = facts if known.loads != loads else None
        else:
            self._publish(facts, now)
        self._publish_held(now)

    def doubt(self, key: str, now: float) -> list[GossipInstruction]:
        """Probes a member at once, for instance because a link to it broke."""
        out: list[GossipInstruction] = []
        record = self._table.get(key)
        if record is not None and record.is_living and key != self.own_key and not self._has_left:
            self._probe(key, 1, now, out)
        return out

    # --- time ---

    def next_due(self) -> float:
        """When `tick` has something to do next. Every other call may bring it forward."""
        if self._has_left:
            return self._next_period
        return min(self._next_period, self._probes.next_stage, self._suspicions.next_end)

    def tick(self, now: float) -> list[GossipInstruction]:
        """Does what is due."""
        out: list[GossipInstruction] = []
        period = self._settings.period_seconds
        if self._ticked_at is None:
            self._begin(now)
        elif now - self._ticked_at > 2 * period:
            self._excuse_pause(now - self._ticked_at - period)
        self._ticked_at = now
        if self._has_left:
            if now >= self._next_period:
                self._next_period = now + period
                out += self._farewells()
            return out
        if now >= self._probes.next_stage:
            self._advance_probes(now, out)
        for key, incarnation in self._suspicions.ended(now):
            self._learn(StatusNews(key, incarnation, _DEAD, self.own_key), now, out)
        if now >= self._next_period:
            # Kept in step, unless this member was away.
            self._next_period = max(self._next_period + period, now + period / 2)
            self._begin_period(now, out)
        return out

    def _begin(self, now: float) -> None:
        chance, settings = self._random.random, self._settings
        self._next_period = now + chance() * settings.period_seconds
        self._next_exchange = now + chance() * settings.exchange_interval(self._table.living)
        self._next_reconnection = now + chance() * settings.reconnect_seconds

    def _excuse_pause(self, seconds: float) -> None:
        """This process stood still. Whoever did not answer meanwhile is not to blame."""
        self._probes.postpone(seconds)
        self._suspicions.postpone(seconds)

    def _begin_period(self, now: float, out: list[GossipInstruction]) -> None:
        settings = self._settings
        self._periods += 1
        target = self._ring.next_target()
        if target is not None:
            self._probe(target, 1, now, out)
        elif self._seeds:
            self._ask_seeds(out)
        self._publish_held(now)
        for other in self._ring.some(settings.fanout):
            news = self._news_for(other)
            if news:
                out.append(SendGossip(other, NewsMessage(news)))
        if now >= self._next_exchange:
            self._next_exchange = now + settings.exchange_interval(self._table.living)
            for other in self._ring.some(1):
                self._exchange(other, out)
        if now >= self._next_reconnection:
            self._next_reconnection = now + settings.reconnect_seconds
            self._reconnect(now, out)
        if self._periods % _FORGET_PERIODS == 0:
            for key in self._table.forget(now, settings.forget_seconds, settings.tombstone_seconds):
                self._news.drop(key)

    # --- probes ---

    def _probe(self, target: str, attempt: int, now: float, out: list[GossipInstruction]) -> None:
        self._sequence += 1
        relayed_at, ends_at = now + self._health.timeout_seconds, now + self._settings.period_seconds
        self._probes.add(PendingProbe(self._sequence, target, attempt, now, relayed_at, ends_at))
        out.append(SendGossip(target, Probe(self._sequence, self._news_for(target))))

    def _advance_probes(self, now: float, out: list[GossipInstruction]) -> None:
        late, failed = self._probes.advance(now)
        for probe in late:
            self._blame(probe)
            for relay in self._ring.some(self._settings.relays, probe.target):
                message = IndirectProbe(probe.sequence, probe.target, self._news_for(relay))
                out.append(SendGossip(relay, message))
        for probe in failed:
            if not probe.is_relayed:
                self._blame(probe)
            self._give_up(probe, now, out)

    def _blame(self, probe: PendingProbe) -> None:
        # A repeated probe, or one of a suspect, says more about the other than about this member.
        record = self._table.get(probe.target)
        if probe.attempt == 1 and record is not None and record.status == _ALIVE:
            self._health.failed()

    def _give_up(self, probe: PendingProbe, now: float, out: list[GossipInstruction]) -> None:
        record = self._table.get(probe.target)
        if record is None or not record.is_living:
            return
        if probe.attempt < self._health.attempts:
            self._probe(probe.target, probe.attempt + 1, now, out)
            return
        accusation = StatusNews(probe.target, record.incarnation, _SUSPECT, self.own_key)
        self._learn(accusation, now, out)
        out.append(SendGossip(probe.target, NewsMessage(self._news_for(probe.target))))

    def _reconnect(self, now: float, out: list[GossipInstruction]) -> None:
        """Probes one of the dead, with a chance that makes it one of them per living member of the overlay: after a
        partition this finds the others again."""
        dead = [record.key for record in self._table.records() if record.status == _DEAD]
        if dead and self._random.random() * self._table.living < len(dead):
            key = dead[int(self._random.random() * len(dead))]
            self._sequence += 1
            out.append(SendGossip(key, Probe(self._sequence, self._news_for(key))))

    # --- messages ---

    def received(self, source: str, message: GossipMessage, now: float) -> list[GossipInstruction]:
        """Handles a message of an authenticated source. One that is not acceptable changes nothing at all, and leads
        to a RefusedGossip."""
        reason = self._checks.reason_to_refuse(source, message)
        if reason is not None:
            return [RefusedGossip(source, reason)]
        if self._has_left:
            return []
        out: list[GossipInstruction] = []
        is_piece = isinstance(message, TablePiece)
        for news in message.news:
            if is_piece and isinstance(news, StatusNews) and news.status == _DEAD:
                # It may come from behind a partition that has just healed: the member may object.
                news = StatusNews(news.key, news.incarnation, _SUSPECT, source)
            self._learn(news, now, out)
        if not isinstance(message, TableDigest):
            self._note_acquaintance(source, message.news)
        match message:
            case Probe(sequence=sequence):
                out.append(SendGossip(source, ProbeAnswer(sequence, self._news_for(source))))
            case ProbeAnswer(sequence=sequence):
                self._take_answer(source, sequence, now, out)
            case IndirectProbe(sequence=sequence, target=target):
                self._relay(source, sequence, target, out)
            case TableDigest(sums=sums):
                self._answer_digest(source, sums, out)
            case TablePiece():
                pieces = better_known(self._table, message, self._settings.piece_bytes)
                out.extend(SendGossip(source, piece) for piece in pieces)
            case NewsMessage():
                pass
        return out

    def _take_answer(self, source: str, sequence: int, now: float, out: list[GossipInstruction]) -> None:
        asked = self._relayed.pop(sequence, None)
        if asked is not None:
            asker, their_sequence = asked
            out.append(SendGossip(asker, ProbeAnswer(their_sequence, self._news_for(asker))))
            return
        probe = self._probes.take_answer(sequence, source)
        if probe is not None and source == probe.target and not probe.is_relayed:
            self._health.answered(now - probe.sent_at)

    def _answer_digest(self, source: str, sums: bytes, out: list[GossipInstruction]) -> None:
        introduction = () if self._knows_us(source) else (self._introduction(),)
        pieces = pieces_where_different(self._table, sums, self._settings.piece_bytes)
        out.extend(
            SendGossip(source, TablePiece(piece.buckets, introduction + piece.news)) for piece in pieces
        )

    def _relay(self, source: str, sequence: int, target: str, out: list[GossipInstruction]) -> None:
        record = self._table.get(target)
        if record is None or target == self.own_key:
            return
        self._sequence += 1
        self._relayed[self._sequence] = (source, sequence)
        while len(self._relayed) > _MOST_RELAYED:
            del self._relayed[next(iter(self._relayed))]
        out.append(SendGossip(target, Probe(self._sequence, self._news_for(target))))

    def _news_for(self, destination: str) -> tuple[News, ...]:
        """Takes news from the queue. Who is believed to be failing hears of that first, and who may not know this
        member gets an introduction."""
        settings, record = self._settings, self._table.get(destination)
        copies = settings.copies_of_news(self._table.living)
        news = self._news.take(settings.news_bytes, copies, destination)
        if record is not None and record.status != _ALIVE:
            news.insert(0, StatusNews(destination, record.incarnation, record.status, self.own_key))
        if not self._knows_us(destination) and all(each.key != self.own_key for each in news):
            news.insert(0, self._introduction())
        return tuple(news)

    def _knows_us(self, key: str) -> bool:
        record = self._table.get(key)
        return record is not None and record.knows_us

    def _note_acquaintance(self, source: str, news: tuple[News, ...]) -> None:
        """Members send probes and answers to those only that they know; but some know an earlier incarnation."""
        record = self._table.get(source)
        if record is not None:
            record.knows_us = not any(
                each.key == self.own_key and each.incarnation < self._incarnation for each in news
            )

    def _ask_seeds(self, out: list[GossipInstruction]) -> None:
        count = min(_SEEDS_AT_ONCE, len(self._seeds))
        for seed in self._random.sample(self._seeds, count):
            self._exchange(seed, out)

    def _exchange(self, other: str, out: list[GossipInstruction]) -> None:
        out.append(SendGossip(other, TableDigest(sums_of(self._table), (self._introduction(),))))

    def _introduction(self) -> News:
        own = self._table.get(self.own_key)
        assert own is not None
        return news_of(own)

    def _farewells(self) -> list[GossipInstruction]:
        news = (self._introduction(),)
        return [SendGossip(other, NewsMessage(news)) for other in self._ring.some(_FAREWELLS)]

    # --- what messages tell ---

    def _learn(self, news: News, now: float, out: list[GossipInstruction]) -> None:
        if news.key == self.own_key:
            self._hear_of_self(news, now)
            return
        change = self._table.merge(news, now)
        if change is not None:
            self._follow(news, change, now, out)
        elif (
            isinstance(news, StatusNews)
            and news.status == _SUSPECT
            and self._suspicions.confirm(news.key, news.incarnation, news.accuser)
        ):
            self._news.add(news)

    def _follow(self, news: News, change: TableChange, now: float, out: list[GossipInstruction]) -> None:
        key, status, before = news.key, change.status, change.before
        self._news.add(news)
        was_living = before is not None and before < _DEAD
        if status < _DEAD and not was_living:
            self._ring.insert(key)
        elif status >= _DEAD and was_living:
            self._ring.remove(key)
        if status != _SUSPECT:
            self._suspicions.end(key)
        elif isinstance(news, StatusNews) and news.status == _SUSPECT:
            self._suspicions.begin(
                key, news.incarnation, news.accuser, self._table.living, self._health.slowdown, now
            )
            self._maybe_check(news, now, out)
        # Nobody has to hear of the death of one that it never knew.
        if status != before and (before is not None or status < _DEAD):
            out.append(MemberChanged(key, status))
        if change.has_new_facts and isinstance(news, FactsNews):
            out.append(FactsChanged(key, news.facts))
        if status < _DEAD and before == _DEAD and now - self._reunited_at >= self._settings.period_seconds:
            # A partition may have healed: many others may be back as well.
            self._reunited_at = now
            self._exchange(key, out)

    def _maybe_check(self, accusation: StatusNews, now: float, out: list[GossipInstruction]) -> None:
        """Probes a suspect of somebody else. Only a few members do, so that it is not drowned."""
        if accusation.accuser == self.own_key:
            return
        if self._random.random() * self._table.living < self._settings.second_opinions:
            self._probe(accusation.key, 1, now, out)

    def _hear_of_self(self, news: News, now: float) -> None:
        """Objects to what is not true: a suspicion, or what an earlier run has said."""
        incarnation = self._incarnation
        if isinstance(news, StatusNews):
            if news.incarnation < incarnation or (news.incarnation == incarnation and news.status == _ALIVE):
                return
            if news.status in (_SUSPECT, _DEAD):
                self._health.failed()
            self._incarnation = news.incarnation + 1
        elif isinstance(news, FactsNews):
            if news.incarnation > incarnation:
                self._incarnation = news.incarnation + 1
            known = self._facts
            if known is not None and news.facts.version >= known.version and news.facts != known:
                facts = MemberFacts(news.facts.version + 1, known.addresses, known.loads, known.labels)
                self._publish(facts, now)
        if self._incarnation > incarnation:
            self._say(StatusNews(self.own_key, self._incarnation, _ALIVE), now)

    def _publish(self, facts: MemberFacts, now: float) -> None:
        self._facts, self._held_facts, self._facts_at = facts, None, now
        self._say(FactsNews(self.own_key, self._incarnation, facts), now)

    def _publish_held(self, now: float) -> None:
        held, wait = self._held_facts, self._table.living / self._settings.loads_per_second
        if held is not None and now - self._facts_at >= wait * self._waiting_share:
            self._waiting_share = 1.0
            self._publish(held, now)

    def _say(self, news: News, now: float) -> None:
        self._table.merge(news, now)
        self._news.add(news)
