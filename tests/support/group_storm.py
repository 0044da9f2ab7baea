"""A site and the consumer of its groups are killed again and again while events are published.

publisher (`numbered`) --HTTP--> site --one WebSocket--> consumer (`group_consumer`)
      |                                                       |
   journal: what was acknowledged                  journal: what came, and what was answered

What must have arrived follows from both journals and the members' filters: `symbol = S AND price >= P`.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from culver.bench.bulk_registration import register_rows
from culver.client import ARROW_STREAM, piece
from culver.inputs import as_table
from culver.model.formats import parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from support.group_consumer import ANSWERED, CONNECTED, GAP, read_rows
from support.numbered import Journal, Numbers, attributes, lines
from support.service import Service

FILTER = "symbol = ? AND price >= ?"
_SYMBOLS = 200
_MEMBER_BITS = 20
_SAMPLE = 100
_END_SECONDS = 300.0
_ROWS_AT_ONCE = 200


class Members:
    """Members by number: the filter of each, the group it is in, and the position from which it gets events. Of a
    member that is or may be `gone`, nothing must come."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.symbols = self.lows = self.since = self.places = np.empty(0, np.int64)
        self.gone = np.empty(0, np.bool_)

    def __len__(self) -> int:
        return len(self.symbols)

    def draw(self, count: int, place: int = 0, since: int = 0) -> slice:
        """Add so many members of the group at a place of what is followed; returns which they are. Their bounds are
        in the upper 55 % of the prices, as W2 draws them."""
        first = len(self)
        self.symbols = np.append(self.symbols, self._random.integers(0, _SYMBOLS, count))
        self.lows = np.append(self.lows, self._random.integers(4_500, 10_000, count))
        self.since = np.append(self.since, np.full(count, since))
        self.places = np.append(self.places, np.full(count, place))
        self.gone = np.append(self.gone, np.zeros(count, np.bool_))
        return slice(first, first + count)

    def columns(self, chosen: slice) -> dict[str, list[Any]]:
        names = [f"S{symbol}" for symbol in self.symbols[chosen].tolist()]
        return {"symbol": names, "price": (self.lows[chosen] / 100).tolist()}

    def filter(self, member: int) -> str:
        return f"symbol = 'S{self.symbols[member]}' AND price >= {self.lows[member] / 100:.2f}"

    def pairs(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """All pairs of a member and the number of an event that matches."""
        symbols, prices, _ = attributes(numbers)
        pairs: list[tuple[Numbers, Numbers]] = []
        for symbol in range(_SYMBOLS):
            members = np.flatnonzero(self.symbols == symbol)
            members = members[np.argsort(self.lows[members], kind="stable")]
            here = symbols == symbol
            counts = np.searchsorted(self.lows[members], prices[here], side="right")
            starts = np.repeat(np.cumsum(counts) - counts, counts)
            found = members[np.arange(counts.sum()) - starts]
            pairs.append((found, np.repeat(numbers[here], counts)))
        return tuple(map(np.concatenate, zip(*pairs, strict=True)))  # type: ignore[return-value]


@dataclass
class Tally:
    """What came of a storm. `missing`, `foreign`, `repeated` (in one connection), `again` (after the answer to its
    acknowledgement) and `gaps` must be 0."""

    members: int = 0
    events: int = 0
    pairs: int = 0
    redelivered: int = 0
    connections: int = 0
    missing: int = 0
    foreign: int = 0
    repeated: int = 0
    again: int = 0
    gaps: int = 0
    seconds: float = 0.0
    site_kills: int = 0
    consumer_kills: int = 0

    @property
    def wrong(self) -> tuple[int, ...]:
        return self.missing, self.foreign, self.repeated, self.again, self.gaps

    def __str__(self) -> str:
        return (
            f"{self.members:,} members, {self.events:,} events, {self.pairs:,} pairs in {self.seconds:.0f} s "
            f"({self.pairs / self.seconds:,.0f}/s), {self.redelivered:,} of them again; "
            f"{self.site_kills} kills of the site and {self.consumer_kills} of the consumer, "
            f"{self.connections} connections\n"
            f"missing {self.missing}, foreign {self.foreign}, repeated in one connection {self.repeated}, "
            f"again after an answer {self.again}, gaps {self.gaps}"
        )


class GroupStorm:
    """One run over what is followed: `prepare` registers the members, and `change`, if there is one, is called again
    and again while everything else goes on."""

    def __init__(self, directory: Path, follows: Sequence[dict[str, Any]], *, seed: int) -> None:
        self.members = Members(seed)
        # A short queue, so that groups fall behind and catch up.
        self.service = Service(directory / "data", CULVER_DELIVERY_LIVE_BUFFER="300")
        self._follows = follows
        self._published, self._consumed = directory / "published", directory / "consumed"
        self._rng = random.Random(seed)
        self._tally = Tally()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(
        self,
        prepare: Callable[[], None],
        change: Callable[[], None] | None = None,
        *,
        events_per_second: int,
        kills: int,
        pause_seconds: tuple[float, float],
    ) -> Tally:
        with self.service, contextlib.closing(self):
            self.service.wait_until_ready()
            prepare()
            began = time.monotonic()
            with _repeated(change):
                self._start("publisher", "numbered", str(self._published), str(events_per_second))
                self._start_consumer()
                for victim in self._rng.sample(["site", "consumer"] * kills, 2 * kills):
                    time.sleep(self._rng.uniform(*pause_seconds))
                    self._kill(victim)
                time.sleep(self._rng.uniform(*pause_seconds))
            publisher = self._processes["publisher"]
            assert publisher.stdin is not None
            publisher.stdin.close()
            assert publisher.wait(120) == 0, "the publisher has failed"
            self.service.wait_until_delivered(_END_SECONDS)
            self._wait_for_consumer()
            self._tally.seconds = time.monotonic() - began
        return self._check()

    def close(self) -> None:
        for process in self._processes.values():
            _end(process)

    # --- processes --------------------------------------------------------------------------------------

    def _start(self, name: str, module: str, *arguments: str) -> None:
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", f"support.{module}", self.service.url, *arguments],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def _start_consumer(self) -> None:
        self._start("consumer", "group_consumer", str(self._consumed), json.dumps(self._follows))

    def _kill(self, victim: str) -> None:
        assert self._processes["consumer"].poll() is None, "the consumer has failed"
        if victim == "consumer":
            _end(self._processes["consumer"])
            self._start_consumer()
            self._tally.consumer_kills += 1
        else:
            self.service.kill()
            self.service.start()
            self.service.wait_until_listening()
            self._tally.site_kills += 1

    def _wait_for_consumer(self) -> None:
        """Wait until what must come is acknowledged, with an answer."""
        journal = Journal.read(self._published)
        members, numbers = self._required(journal)
        offsets = journal.offsets[np.searchsorted(journal.acknowledged, numbers)]
        last = [int(offsets[self.members.places[members] == at].max()) for at in range(len(self._follows))]
        deadline = time.monotonic() + _END_SECONDS
        while True:
            rows = read_rows(self._consumed)
            answered = rows[rows[:, 0] == ANSWERED]
            done = [int(answered[answered[:, 3] == at, 1].max(initial=-1)) for at in range(len(last))]
            if all(have >= wanted for have, wanted in zip(done, last, strict=True)):
                return
            assert self._processes["consumer"].poll() is None, "the consumer has failed"
            assert time.monotonic() < deadline, f"the consumer is at {done}, and should get to {last}"
            time.sleep(0.1)

    # --- checking ---------------------------------------------------------------------------------------

    def _required(self, journal: Journal) -> tuple[Numbers, Numbers]:
        """The pairs of a member and an event that must come."""
        members, numbers = self.members.pairs(journal.acknowledged)
        offsets = journal.offsets[np.searchsorted(journal.acknowledged, numbers)]
        wanted = (offsets >= self.members.since[members]) & ~self.members.gone[members]
        return members[wanted], numbers[wanted]

    def _check(self) -> Tally:
        tally, journal, rows = self._tally, Journal.read(self._published), read_rows(self._consumed)
        required = _key(*self._required(journal))
        possible = _key(*self.members.pairs(np.append(journal.acknowledged, journal.unknown)))
        pairs = rows[rows[:, 0] >= 0]
        offsets, members, numbers, places = pairs.T
        got = _key(members, numbers)
        unique = np.unique(got)
        tally.members, tally.events = len(self.members), len(journal.acknowledged)
        tally.pairs, tally.redelivered = len(unique), len(got) - len(unique)
        tally.missing = len(np.setdiff1d(required, unique))
        early = offsets < self.members.since[members]
        elsewhere = places != self.members.places[members]
        tally.foreign = len(np.setdiff1d(unique, possible)) + int(np.count_nonzero(early | elsewhere))
        tally.gaps = int(np.count_nonzero(rows[:, 0] == GAP))
        connections = np.cumsum(rows[:, 0] == CONNECTED)
        tally.connections = int(connections[-1])
        of_pairs = connections[rows[:, 0] >= 0]
        for connection in range(1, tally.connections + 1):
            here = got[of_pairs == connection]
            tally.repeated += len(here) - len(np.unique(here))
        for place in range(len(self._follows)):
            is_answer = (rows[:, 0] == ANSWERED) & (rows[:, 3] == place)
            answered = np.maximum.accumulate(np.where(is_answer, rows[:, 1], -1))[rows[:, 0] >= 0]
            tally.again += int(np.count_nonzero((places == place) & (offsets <= answered)))
        self._check_positions(journal, offsets, numbers)
        self._check_oracle(journal, required)
        return tally

    def _check_positions(self, journal: Journal, offsets: Numbers, numbers: Numbers) -> None:
        """Each event came under the position that its publisher was told."""
        at = np.searchsorted(journal.acknowledged, numbers)
        known = np.isin(numbers, journal.acknowledged)
        assert (journal.offsets[at[known]] == offsets[known]).all()

    def _check_oracle(self, journal: Journal, required: Numbers) -> None:
        """The reference agrees with the arrays, on a sample."""
        settled = np.flatnonzero(~self.members.gone & (self.members.since == 0)).tolist()
        drawn = [
            (self._rng.choice(settled), int(self._rng.choice(journal.acknowledged))) for _ in range(_SAMPLE)
        ]
        found = self._rng.sample(required.tolist(), _SAMPLE)
        drawn += [(key & (1 << _MEMBER_BITS) - 1, key >> _MEMBER_BITS) for key in found]
        needed = set(required.tolist())
        for member, number in drawn:
            event = parse_event(lines(np.array([number]))[1:-1])
            matches = evaluate(parse(self.members.filter(member)).condition, event) is True
            assert matches == (number << _MEMBER_BITS | member in needed)


class SetChanger:
    """Adds rows to a set and removes members, one change with each call. A change that a kill interrupts is made
    again."""

    def __init__(self, service: Service, name: str, members: Members, seed: int) -> None:
        self._service = service
        self._name = name
        self._members = members
        self._rng = random.Random(seed)
        self.added = self.removed = 0

    def __call__(self) -> None:
        time.sleep(self._rng.uniform(0, 0.1))
        with httpx.Client(base_url=self._service.url, timeout=60, trust_env=False) as http:
            if self._rng.random() < 0.5:
                self._add(http, self._rng.randint(1, _ROWS_AT_ONCE))
            else:
                self._remove(http, int(self._rng.choice(np.flatnonzero(~self._members.gone))))

    def _add(self, http: httpx.Client, count: int) -> None:
        chosen = self._members.draw(count)
        table = as_table(self._members.columns(chosen))

        def add() -> httpx.Response:
            return http.post(
                f"/v1/sets/{self._name}",
                params={"filter": FILTER, "first": str(chosen.start)},
                content=piece(table, 0, count),
                headers={"content-type": ARROW_STREAM},
            )

        answer = _until_answered(add)
        assert answer.status_code in (201, 409), answer.text
        if answer.status_code == 409:  # an earlier try has arrived
            assert answer.json()["next"] == chosen.stop, answer.text
            member = f"/v1/subscriptions/{self._name}.{chosen.start}"
            answer = _until_answered(lambda: http.get(member)).raise_for_status()
        self._members.since[chosen] = answer.json()["since"]
        self.added += count

    def _remove(self, http: httpx.Client, member: int) -> None:
        self._members.gone[member] = True
        answer = _until_answered(lambda: http.delete(f"/v1/subscriptions/{self._name}.{member}"))
        assert answer.status_code in (204, 404), answer.text
        self.removed += 1


def register_set(service: Service, name: str, members: Members, count: int) -> None:
    chosen = members.draw(count)
    register_rows(service.http, name, FILTER, members.columns(chosen))


def register_one_by_one(service: Service, prefix: str, members: Members, count: int, place: int) -> list[str]:
    """Returns the ids, which end in the members' numbers."""
    chosen = members.draw(count, place)
    ids = [f"{prefix}{member}" for member in range(chosen.start, chosen.stop)]
    specs = [{"id": f"{prefix}{n}", "filter": members.filter(n)} for n in range(chosen.start, chosen.stop)]
    service.http.post("/v1/subscriptions", json=specs).raise_for_status()
    return ids


def _key(members: Numbers, numbers: Numbers) -> Numbers:
    return numbers << _MEMBER_BITS | members


def _until_answered(ask: Callable[[], httpx.Response]) -> httpx.Response:
    while True:
        with contextlib.suppress(httpx.TransportError):
            if (answer := ask()).status_code != 503:
                return answer
        time.sleep(0.05)


@contextlib.contextmanager
def _repeated(change: Callable[[], None] | None) -> Iterator[None]:
    stopping = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while change is not None and not stopping.is_set():
                change()
        except BaseException as exc:
            errors.append(exc)

    thread = threading.Thread(target=run, name="changer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    if errors:
        raise errors[0]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
