"""Takes one range of the log through the three operators, from the files of a site to its notifications.

This is the shell around the pure operators. The inline engine runs it in the site's process, Spark in its workers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver import matching
from culver.errors import NotFound, StorageCorrupt
from culver.jit import Integers
from culver.log import DamagedEvents, EventSource
from culver.matching import Index, Matched, SearchMemory, read_division
from culver.pipeline.batch_plan import BatchPlan, LoadReport
from culver.pipeline.checksum import checksum
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications
from culver.pipeline.operator_work import MatchMeter, SchemeWork, SliceWork, worker_name
from culver.pipeline.operators import (
    access_point,
    announce_damage,
    events_for_slice,
    exit_point,
    match_events,
    payload_sizes,
    route_events,
)
from culver.pipeline.partial_exchange import Partial
from culver.placement import ChosenSets, Forwarding, Placement, SetLoad, load_layer_kernels, sets_of_slice
from culver.plugins import filter_named, forwarding_named, placement_named

_Pieces = Iterable[tuple[int, pa.RecordBatch]]
"""Batches of events from the log, each with the offset of its first event."""


def warm_up_operators() -> None:
    """Load all kernels that a range needs, so that the first event need not wait. Harmless to call again."""
    matching.warm_up()
    load_layer_kernels()
    checksum(np.zeros(0, np.uint16))


class DividedIndex:
    """A version of the index: its sets, which share nothing and are opened when needed, and its placement. Not
    thread-safe."""

    def __init__(self, directory: Path, version: int) -> None:
        """Raises NotFound if there is no such version, StorageCorrupt."""
        placed, registrations = read_division(directory, version)
        self.version = version
        self.slices = placed.slices
        self.placement: Placement | None = None
        """Decides which slice gets an event, and for which sets; None: one set, and one slice that gets all."""
        self.division = ""
        """Identifies this numbering of the sets; empty where there is one set."""
        self._homes = np.array(placed.homes)
        self._registrations = registrations
        if len(placed.homes) > 1 or placed.slices > 1:
            self.placement = placement_named(placed.name).from_state(placed.slices, placed.state)
            self.division = placed.fingerprint()
        self._directory = directory
        self._opened: dict[int, Index] = {}
        # The slices whose sets are open, and no others.
        self._open_for: Sequence[int] | None = None

    def open_slices(self, slices: Sequence[int]) -> None:
        """Open all sets that these slices may work on, and close the others. Raises NotFound, StorageCorrupt."""
        if slices == self._open_for:
            return
        for number in self.keep_slices(slices):
            self.set(number)
        self._open_for = slices

    def keep_slices(self, slices: Sequence[int]) -> set[int]:
        """Close all sets but those that these slices may work on; returns the latter, open or not."""
        self._open_for = None
        wanted = {number for own in slices for number in sets_of_slice(self._homes, own)}
        for number in self._opened.keys() - wanted:
            self._opened.pop(number).close()
        return wanted

    def load(self, told: LoadReport) -> SetLoad:
        """The load from a report, if it is about these sets; their registrations are known in any case."""
        about = told.division == self.division
        return SetLoad(
            self._homes,
            self.slices,
            self._registrations,
            np.zeros(len(self._homes)),  # a batch begins when the one before is done
            self._by_set(told.arrivals if about else ()),
            self._by_set(told.rates if about else ()),
            self._by_set(told.responses if about else ()),
        )

    def route(
        self, forwarding: Forwarding, told: LoadReport, start: int, parts: Sequence[pa.RecordBatch]
    ) -> list[ChosenSets] | None:
        """Where the events of a block go, part by part; None: all go to the only set, in the only slice."""
        if self.placement is None:
            return None
        return route_events(self.placement, forwarding, self.load(told), start, parts)

    def _by_set(self, known: Sequence[float]) -> NDArray[np.float64]:
        """The values, and 0 for sets that the report does not mention."""
        values = np.zeros(len(self._homes))
        values[: len(known)] = known[: len(values)]
        return values

    def set(self, number: int) -> Index:
        """Raises NotFound, StorageCorrupt."""
        if number not in self._opened:
            self._opened[number] = Index.open(self._directory, self.version, number, filter_named)
        return self._opened[number]

    def in_effect(self, start: int, end: int) -> tuple[Integers, Integers]:
        """Returns what `Index.in_effect` does, for all sets. Several of them may hold the same registration."""
        found = [self.set(number).in_effect(start, end) for number in range(len(self._homes))]
        numbers, last = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(last)

    def take_scheme_work(self) -> tuple[tuple[str, int, float], ...]:
        """The work of all schemes but the columnar one, in all sets, since the last call."""
        done: dict[str, tuple[str, int, float]] = {}
        for index in self._opened.values():
            for scheme, pairs, seconds in index.take_scheme_work():
                _, more, longer = done.get(scheme, (scheme, 0, 0.0))
                done[scheme] = (scheme, pairs + more, seconds + longer)
        return tuple([done[scheme] for scheme in sorted(done)]) if done else ()

    def close(self) -> None:
        for index in self._opened.values():
            index.close()


class RangeProcessor:
    """Keeps the log and the last index open between ranges. Not thread-safe."""

    def __init__(self, index: Path, log: EventSource, head: Callable[[], Head | None]) -> None:
        """`head` says how far delivery is, and which index version is the newest; None: not known this instant."""
        self._directory = index
        self._log = log
        self._head = head
        self._index: DividedIndex | None = None
        self._memory = SearchMemory()
        self._worker = worker_name()

    def process(self, start: int, end: int, plan: BatchPlan) -> Iterator[Notifications]:
        """Match, in all slices and block by block, what delivery does not have of `[start, end)`. What is damaged in
        the log becomes a block of its own, which announces that. Raises StorageCorrupt where nobody can tell where
        the damage ends."""
        for block, _ in self._blocks(start, end, plan):
            yield from self._match_readable(block, plan)

    def match(self, start: int, batches: Sequence[pa.RecordBatch], plan: BatchPlan) -> Notifications:
        """Match events at hand, which will be in the log from `start` on."""
        ends = list(accumulate((batch.num_rows for batch in batches), initial=start))
        return self._match_all((start, ends[-1]), plan, zip(ends, batches, strict=False))

    def process_task(
        self, start: int, end: int, plan: BatchPlan, task: int
    ) -> Iterator[Notifications | Partial]:
        """Match in the slices of one task, block by block, with partial results.

        Where the other tasks may not do theirs, it matches a block in all slices at once: where the version is gone
        or has been divided anew, because tasks must not work with different versions, where delivery has a part
        of the block, and where the log is damaged. It then closes the index at the end."""
        beyond_share = False
        try:
            for block, cut in self._blocks(start, end, plan):
                part = None if cut else self._match_share(block, plan, task)
                if part is None:
                    beyond_share = True
                    yield from self._match_readable(block, plan)
                else:
                    yield part
        finally:
            if beyond_share:
                self.close()

    def _match_share(self, block: tuple[int, int], plan: BatchPlan, task: int) -> Partial | None:
        """Match a block in the slices of one task. None where the other tasks may not do theirs."""
        index = self._open_slices_of(plan, task)
        if index is None:
            return None
        try:
            found, parts, work = self._match(block, index, plan.slices_of(task), plan, self._log.read(*block))
        except StorageCorrupt as exc:
            _damage_within(block, exc)
            return None  # others may have read the block before it was damaged
        return Partial(*block, index.version, found, payload_sizes(parts, self._memory), work)

    def _match_readable(self, block: tuple[int, int], plan: BatchPlan) -> Iterator[Notifications]:
        """Match a block in all slices, and announce what is damaged of it."""
        start, end = block
        while start < end:
            try:
                found = self._match_all((start, end), plan, self._log.read(start, end))
            except StorageCorrupt as exc:
                damage = _damage_within((start, end), exc)
                if self._is_readable(damage):
                    continue  # a misread is no damage
            else:
                yield found
                return
            yield from self._match_readable((start, damage.start), plan)
            index = self._newest_or(plan.index_version)
            yield announce_damage(damage, index.version, *index.in_effect(damage.start, damage.end))
            start = damage.end

    def _is_readable(self, damage: DamagedEvents) -> bool:
        """Whether damaged events can be read after all. What is announced as lost is lost for good."""
        try:
            for _ in self._log.read(damage.start, damage.end):
                pass
        except StorageCorrupt:
            return False
        return True

    def _blocks(self, start: int, end: int, plan: BatchPlan) -> Iterator[tuple[tuple[int, int], bool]]:
        """The blocks that delivery does not have. If it has a part of one, that part is cut off, because the log may
        be trimmed there, and True comes with the block. All other blocks are the same for all tasks."""
        step = plan.load.block_events()
        for first in range(start, end, step):
            head = self._head()
            frontier = head.frontier if head is not None else start
            if (last := min(end, first + step)) > frontier:
                yield (max(first, frontier), last), first < frontier

    def _match_all(self, block: tuple[int, int], plan: BatchPlan, pieces: _Pieces) -> Notifications:
        index = self._newest_or(plan.index_version)
        found, parts, work = self._match(block, index, range(index.slices), plan, pieces)
        return exit_point(block[0], index.version, parts, found, self._memory, work)

    def _match(
        self,
        block: tuple[int, int],
        index: DividedIndex,
        slices: Sequence[int],
        plan: BatchPlan,
        pieces: _Pieces,
    ) -> tuple[list[Matched], list[pa.RecordBatch], tuple[SliceWork, ...]]:
        """Match in some of the slices; reads and routes each event once for all of them. Also returns the events."""
        began = perf_counter()
        parts = access_point(*block, pieces)
        routed = index.route(forwarding_named(plan.forwarding)(), plan.load, block[0], parts)
        ap_seconds = (perf_counter() - began) / len(slices)
        found: list[Matched] = []
        work: list[SliceWork] = []
        for own in slices:
            meter = MatchMeter()
            began = perf_counter()
            sent = None if routed is None else [events_for_slice(own, chosen) for chosen in routed]
            matches = match_events(index.set, block[0], parts, self._memory, sent, meter)
            own_found = [each.part() for each in matches]
            found += own_found
            took = perf_counter() - began
            work.append(
                SliceWork(
                    slice=own,
                    events=block[1] - block[0],
                    sent=meter.sent,
                    pairs=sum(each.pairs for each in own_found),
                    ap_seconds=ap_seconds,
                    m_seconds=meter.seconds,
                    ep_seconds=took - meter.seconds,
                    worker=self._worker,
                    schemes=tuple(SchemeWork(*each) for each in index.take_scheme_work()),
                    division=index.division,
                    sets=() if routed is None else meter.sets(),
                )
            )
        return found, parts, tuple(work)

    def _newest_or(self, version: int) -> DividedIndex:
        try:
            return self._open(version, range)
        except NotFound:
            self.close()
            # The newest version gives the same answer: registrations carry the positions between which they are in
            # effect, and leave the index only when the frontier has passed their end. Its number may be lower if the
            # index was rebuilt.
            head = self._head()
            if head is None or head.index_version == version:
                raise
            return self._newest_or(head.index_version)

    def _open_slices_of(self, plan: BatchPlan, task: int) -> DividedIndex | None:
        """The version with only the slices of a task open, so that a worker holds its share of the index. None where
        the version is gone, or has another number of slices."""
        try:
            index = self._open(
                plan.index_version, lambda slices: plan.slices_of(task) if slices == plan.slices else ()
            )
        except NotFound:
            return None
        return index if index.slices == plan.slices else None

    def _open(self, version: int, wanted: Callable[[int], Sequence[int]]) -> DividedIndex:
        """The version with only those slices open that `wanted` names, given how many there are."""
        if self._index is not None and self._index.version == version:
            self._index.open_slices(wanted(self._index.slices))
            return self._index
        opened = DividedIndex(self._directory, version)
        if self._index is not None:
            self._index.keep_slices(wanted(self._index.slices))
        # The two versions share segments. Opening the new one before closing the old one saves mapping them, and
        # making their filters, again.
        opened.open_slices(wanted(opened.slices))
        self.close()
        self._index = opened
        return opened

    def close(self) -> None:
        """Close the index; the next range would open it again."""
        if self._index is not None:
            self._index.close()
        self._index = None


def _damage_within(block: tuple[int, int], error: StorageCorrupt) -> DamagedEvents:
    """The part of a block that cannot be read. Raises the error where that cannot be told: the error is about another
    file, or nothing intact follows the damage, and what is missing may come yet."""
    try:
        path, position, start, end = (error.details[each] for each in DamagedEvents._fields)
    except KeyError:
        raise error from None
    return DamagedEvents(path, position, max(start, block[0]), min(end, block[1]))
