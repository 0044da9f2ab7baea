"""The placement `auto`: what comes into question for a site's index is measured, and the best is taken.

    index in use  --sample-->  replicated, mpartition, event-space, hashed  --trial-->  seconds for an event
                                                              --expected-->  bytes in the fullest slice     --> choose

A trial takes about half a second, so it is made only where it can matter. An index that is large for the workers has
to be divided, and how makes a difference. One that fits is matched quickest as a whole, unless to search it costs
much more than to collect what is found; that depends on the filters, and only many of them can make up for the tasks
that read every event again. A small index that fits is replicated without a question.
"""

import os
from dataclasses import dataclass, replace
from time import thread_time

import pyarrow as pa

from culver.config import PipelineSettings
from culver.control.elasticity import ELASTIC_PLACEMENTS
from culver.control.placement_trial import SAMPLE, Circumstances, seconds_per_event
from culver.log import PublicationLog
from culver.matching import ClauseTable, IndexWriter
from culver.pipeline import access_point
from culver.placement import (
    Choice,
    Dividing,
    EventSpace,
    Hashed,
    Memory,
    MPartition,
    Option,
    Placement,
    Replicated,
    applications,
    choose,
    covering,
    draw_typical_events,
    expected,
    unweighed,
)
from culver.plugins import placement_named

_SAMPLE_EVENTS = 1_024
_MANY = 1 << 16  # registrations: what may be divided to advantage though it fits
_LARGE = 0.25  # of a worker's memory: it grows, and half of it is the limit
_READING_SECONDS = 0.3e-6  # for an event, where there is none to read


@dataclass(frozen=True, slots=True)
class Weighed:
    choice: Choice
    learnt: Placement | None = (
        None  # what to divide an index by that is built anew; None: as before it knows any
    )


def recent_events(log: PublicationLog) -> pa.RecordBatch | None:
    """The last events, to find out what they are like; None where there are none."""
    end = log.next_offset
    start = max(log.first_offset, end - _SAMPLE_EVENTS)
    if start >= end:
        return None
    return access_point(start, end, log.read(start, end))[-1]


def dividing_of(settings: PipelineSettings) -> Dividing:
    """How `mpartition` is to divide."""
    return Dividing(settings.dimensions, cuts="equal" if settings.cuts == "equal" else "quantiles")


def weigh(writer: IndexWriter, settings: PipelineSettings, workers: int, log: PublicationLog) -> Weighed:
    """What to do with the index. Each slice is taken for what one worker holds."""
    slices = settings.slices or workers
    if settings.elastic:
        slices = min(max(slices, settings.slices_min), settings.slices_max)
    contents = writer.contents()
    count, size = sum(held for held, _ in contents), sum(held for _, held in contents)
    memory = Memory(size, settings.worker_memory_bytes or _machine_bytes() // max(1, slices))
    present = _present(writer, slices) if writer.version else None
    if slices == 1 or (size <= _LARGE * memory.worker_bytes and count < _MANY):
        return Weighed(_elastic(present, slices) if settings.elastic else unweighed(slices, memory))
    in_use = placement_named(writer.placed.name).from_state(writer.placed.slices, writer.placed.state)
    sample = writer.sample(_representative(in_use), SAMPLE)
    copies = max(1.0, float(in_use.assign(sample).sum()) / max(1, len(sample.numbers)))
    memory = Memory(int(size / copies), memory.worker_bytes)
    events, reading = _recent_and_reading(log)
    # More dimensions than there is room for are of no use, however quick.
    dividing = replace(dividing_of(settings), fullest=memory.budget / max(1, memory.index_bytes))
    placements = _candidates(sample, slices, events, dividing, settings.elastic)
    stays = present is not None and (present.name in ELASTIC_PLACEMENTS or not settings.elastic)
    if present is not None and stays:
        placements = [*(each for each in placements if each.name != present.name), present]
    typical = draw_typical_events(sample) if events is None else events
    now = Circumstances(int(count / copies), min(slices, workers), reading)
    seconds = seconds_per_event(placements, sample, typical, now)
    options = [
        _option(each, took, memory, sample, typical) for each, took in zip(placements, seconds, strict=True)
    ]
    choice = choose(options, memory, options[-1] if stays else None)
    if stays and choice.name != options[-1].name and options[-1].worker_bytes <= memory.budget:
        # To build the index anew takes much longer than to make sure: the gain must show in a second trial, too.
        again = seconds_per_event(placements, sample, typical, now)
        options = [
            replace(each, seconds=(min if each is options[-1] else max)(each.seconds, took))
            for each, took in zip(options, again, strict=True)
        ]
        choice = choose(options, memory, options[-1])
    chosen = next(each for each in placements if each.name == choice.name)
    return Weighed(choice, chosen if isinstance(chosen, MPartition) else None)


def _recent_and_reading(log: PublicationLog) -> tuple[pa.RecordBatch | None, float]:
    """The last events, and what it takes to read one."""
    began, count = thread_time(), min(log.next_offset - log.first_offset, _SAMPLE_EVENTS)
    events = recent_events(log)
    return events, _READING_SECONDS if events is None else (thread_time() - began) / count


def _option(
    placement: Placement, seconds: float, memory: Memory, sample: ClauseTable, events: pa.RecordBatch
) -> Option:
    held = int(memory.index_bytes * expected(placement, sample, events).fullest)
    parts = applications(placement, sample) if isinstance(placement, MPartition) else ""
    return Option(placement.name, placement.slices, seconds, held, parts)


def _present(writer: IndexWriter, slices: int) -> Placement | None:
    """What the index is divided by, if it may stay so: with as many slices, or where slices come and go."""
    placed = writer.placed
    kind = placement_named(placed.name)
    if placed.name == Replicated.name:
        return kind(slices)
    may_stay = placed.slices == slices or placed.name in ELASTIC_PLACEMENTS
    return kind.from_state(placed.slices, placed.state) if may_stay else None


def _elastic(present: Placement | None, slices: int) -> Choice:
    if present is not None and present.name in ELASTIC_PLACEMENTS:
        return Choice(present.name, present.slices, f"{present.name}: as it is, and slices can come and go")
    reason = "slices can come and go, and there is too little to weigh one way to divide against another"
    return Choice(MPartition.name, slices, f"{MPartition.name}: {reason}")


def _representative(placement: Placement) -> list[int]:
    """Sets that hold registrations of every kind as often as there are."""
    if isinstance(placement, MPartition):
        return covering(placement)
    return [0] if isinstance(placement, Hashed) else list(range(len(placement.homes)))


def _candidates(
    sample: ClauseTable, slices: int, events: pa.RecordBatch | None, dividing: Dividing, elastic: bool
) -> list[Placement]:
    by_layers = MPartition.learnt(sample, slices, events, dividing)
    divided: list[MPartition] = [by_layers, EventSpace.learnt(sample, slices, events)]
    if len(by_layers.layers) == 1 and len(by_layers.layers[0].divisions) == 1:
        divided = [by_layers]  # which is the same
    if elastic:
        return list(divided)
    return [Replicated(slices), *(each for each in divided if each.layers), Hashed(slices)]


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
