"""Measures what an event costs with a placement: runs the operators themselves on a sample of the registrations.

The time of matching grows much less than in proportion to the registrations that are searched. Most of it depends on
what is found, which is the same for all placements, and on how often a set is visited. Joining what several tasks
have found may cost more than finding it. So the trial assumes nothing of a placement but that its costs are a line:

    seconds            . '     as many registrations as there are
    per event      . '
               . '  tried      with the sample
           . '  tried          with an eighth of it
        +---------------
         registrations

Blocks of events are large, as they are under load, because much of a set's cost is paid once for each block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from culver.matching import ClauseTable, Index, Matched, SearchMemory
from culver.pipeline import (
    BatchPlan,
    Partial,
    clear_partials,
    events_for_slice,
    exit_point,
    match_events,
    payload_sizes,
    put_partial,
    route_events,
)
from culver.placement import AdaptiveForwarding, Placement, Replicated, SetLoad

# Registrations.
SAMPLE = 32_768
_FEWEST = 256
# The smaller trial has one registration of so many.
_FEWER = 8
# Events in a block.
_EVENTS = 8_192
_FEWEST_EVENTS = 16
# All sets together hold the sample so many times at most.
_COPIES = 2
# Where twice as many events take less than this many times as long, the block pays for most, and events cost little.
_HARDLY_MORE = 1.5
# The quickest round counts, because others may use the machine at the same time.
_ROUNDS = 3
_LEAST_SECONDS = 1e-9
# About what one block may take against the undivided sample.
_SECONDS = 0.02


# A trial with few registrations, and one with more.
_Line: TypeAlias = tuple["_Trial", "_Trial"]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """`tasks` share the slices, and each of them reads every event, in `reading_seconds` each."""

    registrations: int
    tasks: int
    reading_seconds: float


def seconds_per_event(
    placements: Sequence[Placement], sample: ClauseTable, events: pa.RecordBatch, now: Circumstances
) -> list[float]:
    """For each placement, the seconds that all workers together would spend on an event, with as many registrations
    as there are. The time in which a worker waits for the slowest counts, too. A placement takes about 0.1 s: where
    filters are slow, the trial has fewer registrations and events."""
    with TemporaryDirectory() as made:
        directory = Path(made)
        sample, block = _affordable(sample, events, directory)
        undivided = _trials(Replicated(1), sample, 1)
        lines = [
            undivided if _is_undivided(each) else _trials(each, sample, now.tasks) for each in placements
        ]
        for _ in range(_ROUNDS):  # all in turn, so that a busy moment of the machine does not hit one of them
            for trial in {id(trial): trial for line in (undivided, *lines) for trial in line}.values():
                trial.run(block, directory)
    return [_at(now.registrations, line, undivided) + line[0].tasks * now.reading_seconds for line in lines]


def _affordable(
    sample: ClauseTable, events: pa.RecordBatch, directory: Path
) -> tuple[ClauseTable, pa.RecordBatch]:
    """As many registrations, and then as many events, as a trial has time for."""
    few = sample.every(len(sample.numbers) // _FEWEST)
    probe = _Trial(Replicated(1), few, 1)
    for _ in range(2):  # the first time, kernels are loaded
        probe.run(_block(events, _FEWEST_EVENTS), directory)
    most = max(_FEWEST, int(_SECONDS / (_FEWEST_EVENTS * probe.seconds) * len(few.numbers)))
    sample = sample.every(-(-len(sample.numbers) // most))
    probe, count, before = _Trial(Replicated(1), sample, 1), _FEWEST_EVENTS, 0.0
    while count < _EVENTS:
        probe.run(_block(events, count), directory)
        took = count * probe.seconds
        if took > _SECONDS / 2 and took > _HARDLY_MORE * before > 0:
            break
        count, before = 2 * count, took
    return sample, _block(events, count)


def _block(events: pa.RecordBatch, count: int) -> pa.RecordBatch:
    return events.take(pa.array(np.resize(np.arange(events.num_rows), count)))


def _trials(placement: Placement, sample: ClauseTable, tasks: int) -> _Line:
    """A trial with few registrations, and one with more, but no more than there is time for."""
    more = _Trial(placement, sample, tasks)
    step = -(-more.held() // max(1, _COPIES * len(sample.numbers)))
    if step > 1:
        more = _Trial(placement, sample.every(step), tasks)
    return _Trial(placement, more.table.every(_FEWER), tasks), more


def _at(registrations: int, line: _Line, undivided: _Line) -> float:
    """The cost with so many registrations. Far from the sample, noise may bend a line down, so this never promises
    more, compared with the undivided index, than was measured with the sample."""
    tried = line[1]
    as_tried = tried.seconds / _on(len(tried.table.numbers), undivided)
    return max(_on(registrations, line), min(1.0, as_tried) * _on(registrations, undivided))


def _on(registrations: int, line: _Line) -> float:
    fewer, more = line
    low, high = len(fewer.table.numbers), len(more.table.numbers)
    slope = max(0.0, more.seconds - fewer.seconds) / max(1, high - low)
    return max(_LEAST_SECONDS, fewer.seconds + slope * (registrations - low))


def _is_undivided(placement: Placement) -> bool:
    """With one set there is nothing to route, and a range of the log is one task, as in a site."""
    return len(placement.homes) == 1


class _Trial:
    """Some registrations, divided by a placement. `seconds` is the time of all tasks for one event in the quickest
    run so far, where each task counts as long as the slowest."""

    def __init__(self, placement: Placement, table: ClauseTable, tasks: int) -> None:
        self.table = table
        self.seconds = np.inf
        self._undivided = _is_undivided(placement)
        slices = 1 if self._undivided else placement.slices
        self.tasks = min(slices, max(1, tasks))
        self._plan = BatchPlan(1, slices, self.tasks)
        self._placement = placement
        self._start = int(table.since.max(initial=0))  # from here on, all registrations are in effect
        self._held = placement.assign(table)
        self._sets: dict[int, Index] = {}
        self._memory = SearchMemory()
        unknown = np.zeros(len(placement.homes))
        counts = np.count_nonzero(self._held, axis=0)
        self._load = SetLoad(placement.homes, placement.slices, counts, unknown, unknown, unknown, unknown)

    def held(self) -> int:
        return int(self._held.sum())

    def run(self, block: pa.RecordBatch, directory: Path) -> None:
        for number in range(len(self._placement.homes)):
            self._index(number)
        began = thread_time()
        routed = None
        if not self._undivided:
            routed = route_events(self._placement, AdaptiveForwarding(), self._load, self._start, [block])
        routing = thread_time() - began
        found: list[Partial] = []
        busy: list[float] = []
        for task in range(self.tasks):
            began = thread_time()
            collected: list[Matched] = []
            for own in self._plan.slices_of(task):
                sent = None if routed is None else [events_for_slice(own, chosen) for chosen in routed]
                found_here = match_events(self._index, self._start, [block], self._memory, sent)
                collected.extend(each.part() for each in found_here)
            if self.tasks == 1:
                exit_point(self._start, 1, [block], collected, self._memory)
            busy.append(thread_time() - began)
            end = self._start + block.num_rows
            found.append(Partial(self._start, end, 1, collected, payload_sizes([block], self._memory)))
        taken = self.tasks * (routing + max(busy)) + self._joining(directory, found)
        self.seconds = min(self.seconds, taken / block.num_rows)

    def _joining(self, directory: Path, found: Sequence[Partial]) -> float:
        if self.tasks == 1:
            return 0.0
        began = thread_time()
        for task, part in enumerate(found):
            joined = put_partial(directory, part, task, self._plan, self._memory.grouping)
        took = thread_time() - began
        assert joined is not None, "the last task finds the others"
        clear_partials(directory, joined, self._plan)
        return took

    def _index(self, number: int) -> Index:
        if number not in self._sets:
            kept = self._held[:, number]
            self._sets[number] = Index.in_memory(self.table.select_registrations(kept))
        return self._sets[number]
