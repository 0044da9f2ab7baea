"""One connection with many subscriptions against a slow model, with everything that can happen meanwhile."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from culver.config import DeliverySettings
from culver.delivery.merged.merged_items import MergedEnd, MergedEvent, MergedGap
from culver.delivery.merged.selection import Selection
from culver.registry.registration import Block, Registration
from support.notifications import Disk, block, live, registration, removed, site_disk

SELECTIONS = [
    Selection(set_name="quotes"),
    Selection(prefix="q"),
    Selection(prefix="a"),
    Selection(subscriptions=frozenset({"a.x1", "a.x2", "quotes.1", "quotes.5"})),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with site_disk(tmp_path) as made:
        yield made


@dataclass
class Reader:
    """What one subscription has got through one lane. `last` is as far as it is, and `back` where it may begin again
    since its lane was rewound: each time that is at one of these."""

    last: int
    back: list[int] = field(default_factory=list)


@dataclass
class Model:
    """Subscriptions and what they get: registration numbers have rows from `since` up to `until`."""

    disk: Disk
    rng: random.Random
    end: int = 0
    active: dict[int, str] = field(default_factory=dict)  # number -> subscription, from now on
    matched: dict[str, list[int]] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    dead: dict[str, set[int]] = field(default_factory=dict)  # acknowledged before they were matched
    registrations: dict[str, Registration] = field(default_factory=dict)
    untold: list[Sequence[Registration | Block]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    lanes: dict[str | int, dict[str, Reader]] = field(default_factory=dict)
    selections: dict[int, Selection] = field(default_factory=dict)
    next_number: int = 1000
    next_place: int = 0
    leaving: set[str] = field(default_factory=set)
    is_quiet: bool = False

    def __post_init__(self) -> None:
        self.hub = self.disk.hub(DeliverySettings(live_buffer=self.rng.choice([2, 5, 1000])))
        self.hub.payloads._answer_bytes = self.rng.choice([1, 30, 1_000_000])
        self.session = self.hub.open_merged()
        self._read, self.hub.payloads.read = self.hub.payloads.read, self.read  # type: ignore[method-assign]
        self.groups = 0
        self.hub.register([])

    async def read(self, offsets: Sequence[int]) -> list[bytes | None]:
        """Others run while a session waits for the disk."""
        if self.rng.random() < 0.3 and not self.is_quiet:
            self.rng.choice(self.deeds)()
        return await self._read(offsets)

    # --- what happens -----------------------------------------------------------------------------------

    @property
    def deeds(self) -> list[Callable[[], None]]:
        return [
            self.feed, self.feed, self.feed, self.add_single, self.add_live, self.add_block, self.replace_one,
            self.remove_one, self.tell, self.tell, self.attach, self.follow, self.detach,
        ]  # fmt: skip

    def feed(self) -> None:
        count = self.rng.choice([1, 1, 2, 7])
        start, self.end = self.end, self.end + count
        rows: dict[int, list[int]] = {}
        for number, name in self.active.items():
            rows[number] = [o for o in range(start, self.end) if self.rng.random() < 0.4]
            self.matched[name] += rows[number]
            self.dead[name] |= {o for o in rows[number] if o <= self.acked[name]}
        self.disk.feed(self.hub, start, self.end, rows)

    def add_single(self) -> None:
        if len(self.registrations) < 12:
            name = f"{self.rng.choice('ab')}.x{self._number()}" if self.rng.random() < 0.5 else self._listed()
            if name not in self.matched:
                self._begin(registration(self._number(), name, since=self.end))

    def _listed(self) -> str:
        return self.rng.choice(["a.x1", "a.x2"])

    def add_live(self) -> None:
        number = self._number()
        made = live(number, f"live-{number}", since=self.end)
        self._begin(made, later=False)
        self.session.add(made)
        self.lanes[made.id] = {made.id: Reader(self.end - 1)}

    def add_block(self) -> None:
        count, number = self.rng.randint(1, 4), self._number(4)
        made = replace(block(number, self.next_place, count), since=self.end)
        for place in range(count):
            self._watch(number + place, f"quotes.{self.next_place + place}")
        self.next_place += count
        self._tell_later([made])

    def replace_one(self) -> None:
        if (old := self._some_durable()) is not None:
            made = registration(self._number(), old.id, since=self.end)
            del self.active[old.number]
            self.active[made.number] = made.id
            self.registrations[old.id] = made
            self._tell_later([replace(old, until=self.end), made])

    def remove_one(self) -> None:
        """Its last events need not come any more."""
        if (old := self._some_durable()) is not None:
            del self.active[old.number], self.registrations[old.id]
            self.leaving.add(old.id)
            self._tell_later([removed(old, self.end)])

    def tell(self) -> None:
        if not self.untold:
            return
        changes = self.untold.pop(0)
        self.hub.register(changes)
        for change in changes:
            if isinstance(change, Block):
                names = [f"quotes.{change.first + place}" for place in range(change.count)]
            else:
                names = [change.id]
            if change.until is None:
                self.known |= set(names)
                self._join(names, change.since)
            elif isinstance(change, Registration) and change.removed:
                self.known -= set(names)
                for readers in self.lanes.values():
                    readers.pop(change.id, None)

    def _join(self, names: Sequence[str], since: int) -> None:
        for key, readers in self.lanes.items():
            mine = [
                n
                for n in names
                if n in readers or (isinstance(key, int) and self.selections[key].includes(n))
            ]
            if mine and since < self.end:  # the lane may have been beyond it
                for reader in readers.values():
                    reader.back.append(since)
            for name in mine:
                readers.setdefault(name, Reader(max(since - 1, self.acked[name])))

    def attach(self) -> None:
        found = [n for n in self.registrations if n in self.known and n not in self.lanes]
        if found:
            name = self.rng.choice(found)
            after = self.rng.choice([None, self.end // 2])
            self.session.add(self.registrations[name], after)
            self.lanes[name] = self._readers([name], after)

    def follow(self) -> None:
        if len(self.selections) < 3:
            self.groups += 1
            self.selections[self.groups] = selection = self.rng.choice(SELECTIONS)
            after = self.rng.choice([None, None, self.end // 2])
            names = [name for name in self.known if selection.includes(name)]
            assert self.session.follow(self.groups, selection, after) == len(names)
            self.lanes[self.groups] = self._readers(names, after)

    def detach(self) -> None:
        durable = [key for key in self.lanes if not str(key).startswith("live")]
        if durable and self.rng.random() < 0.3:
            key = self.rng.choice(durable)
            self.session.remove(key)
            del self.lanes[key]
            self.selections.pop(key, None)  # type: ignore[arg-type]

    async def acknowledge(self) -> None:
        """As a client does that has got everything up to there, on this connection or an earlier one."""
        if not self.lanes:
            return
        key = self.rng.choice(list(self.lanes))
        readers = self.lanes[key]
        if str(key).startswith("live") or not readers or self.untold:
            return
        if self.rng.random() < 0.2:
            # It may have got them before a crash.
            if (missing := self.end + 3 - self.disk.log.next_offset) > 0:
                self.disk.publish(missing)
            offset = self.end + self.rng.randint(0, 2)
            if any(self._waits(key, name, offset) for name in readers):
                return
        else:
            offset = self.rng.choice([reader.last for reader in readers.values()])
            if offset < 0 or any(self._waits(key, name, offset) for name in readers):
                return
        if isinstance(key, int):
            await self.session.acknowledge_group(key, offset)
        else:
            await self.session.acknowledge(key, offset)
        for name in readers:
            self.acked[name] = max(self.acked[name], offset)

    def _waits(self, key: str | int, name: str, offset: int) -> bool:
        reader = self.lanes[key][name]
        first = min([reader.last, *(since - 1 for since in reader.back)])
        return any(max(first, self.acked[name]) < o <= offset for o in self.matched[name])

    def _begin(self, made: Registration, *, later: bool = True) -> None:
        self._watch(made.number, made.id)
        if made.durable:
            self.registrations[made.id] = made
        if later:
            self._tell_later([made])
        else:
            self.hub.register([made])

    def _watch(self, number: int, name: str) -> None:
        self.active[number] = name
        self.matched[name], self.acked[name], self.dead[name] = [], -1, set()

    def _tell_later(self, changes: Sequence[Registration | Block]) -> None:
        """In order, and mostly before anything of it is matched."""
        self.untold.append(changes)
        if self.rng.random() < 0.7:
            while self.untold:
                self.tell()

    def _readers(self, names: Sequence[str], after: int | None) -> dict[str, Reader]:
        skip = min(-1 if after is None else after, self.end - 1)
        return {name: Reader(max(skip, self.acked[name])) for name in names}

    def _some_durable(self) -> Registration | None:
        found = [each for each in self.registrations.values() if each.number in self.active]
        return self.rng.choice(found) if found else None

    def _number(self, count: int = 1) -> int:
        self.next_number += count
        return self.next_number - count

    # --- what is received -------------------------------------------------------------------------------

    async def receive(self, limit: int) -> bool:
        items = await self.session.receive(limit, 0)
        assert len(items) <= limit
        for item in items:
            match item:
                case MergedEvent(offset, payload, to, groups):
                    assert payload == b'{"n": %d}' % offset
                    assert to or groups
                    for name in to:
                        self._take(name, name, offset)
                    for group, names in groups.items():
                        assert len(names) == len(set(names))
                        for name in names:
                            self._take(group, name, offset)
                case MergedGap(reason="overflow", to=[name]) if name.startswith("live"):
                    self._take_gap(name, item)
                case MergedEnd(subscription=str(name)):
                    self.lanes.pop(name, None)
                case MergedEnd(group=int(group)):
                    assert not any(map(self.selections[group].includes, self.known))
                    del self.lanes[group], self.selections[group]
                case _:
                    raise AssertionError(item)
        return bool(items)

    def _take(self, key: str | int, name: str, offset: int) -> None:
        if key not in self.lanes or name not in self.lanes[key] or name in self.leaving:
            return  # it was given up while these were being read
        reader = self.lanes[key][name]
        assert offset in self.matched[name], (key, name, offset)
        assert offset not in self.dead[name], (key, name, offset)
        if offset <= reader.last:
            begins = [since for since in reader.back if since <= offset]
            assert begins, (key, name, offset, reader)
            reader.last = max(begins) - 1
            reader.back.remove(max(begins))
        self._check_hole(key, name, reader.last, offset)
        assert offset > reader.last, (key, name, offset, reader)
        reader.last = offset

    def _take_gap(self, name: str, gap: MergedGap) -> None:
        reader = self.lanes[name][name]
        self._check_hole(name, name, reader.last, gap.start)
        lost = [o for o in self.matched[name] if gap.start <= o < gap.end]
        assert gap.dropped == len(lost), (gap, lost)
        assert gap.start > reader.last
        reader.last = gap.end - 1

    def _check_hole(self, key: str | int, name: str, last: int, offset: int) -> None:
        """What lies between is acknowledged."""
        missing = [o for o in self.matched[name] if max(last, self.acked[name]) < o < offset]
        assert not missing or name in self.leaving, (key, name, missing)

    async def check(self) -> None:
        self.is_quiet = True
        while self.untold:
            self.tell()
        while await self.receive(5):
            pass
        for key, readers in self.lanes.items():
            for name, reader in readers.items():
                self._check_hole(key, name, reader.last, self.end)
        for name in self.known:
            waiting = sum(o > self.acked[name] for o in self.matched[name])
            assert self.hub.pending(name) == waiting, name


@pytest.mark.parametrize("seed", range(60))
def test_each_subscription_gets_its_events_in_order_and_once(disk: Disk, seed: int) -> None:
    async def run() -> None:
        model = Model(disk, random.Random(seed))
        for _ in range(3):
            model.add_single()
            model.add_block()
        for _ in range(120):
            act = model.rng.random()
            if act < 0.5:
                model.rng.choice(model.deeds)()
            elif act < 0.85:
                await model.receive(model.rng.choice([1, 3, 100]))
            elif act < 0.95:
                await model.acknowledge()
            elif not model.untold:
                await model.hub.housekeep(0)
        await model.check()
        await model.hub.close()

    asyncio.run(run())
