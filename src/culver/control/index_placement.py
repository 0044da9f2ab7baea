"""Opens a site's index with its placement: the one that the settings name, or the best of several for `auto`.

    index in use  --sample-->  replicated, mpartition, event-space, hashed  --trial-->  seconds per event
                                                              --expected-->  bytes in the fullest slice   --> choose

A trial takes about half a second, so `auto` makes one only where it can matter. An index that is large for the
workers has to be divided, and the way makes a difference. An index that fits is matched fastest as a whole, unless
searching it costs much more than collecting what is found; that depends on the filters, and only many of them make up
for the tasks that read every event again. A small index that fits is replicated without a trial.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time

import pyarrow as pa

from culver.config import PipelineSettings
from culver.control.elasticity import ELASTIC_PLACEMENTS
from culver.control.placement_trial import SAMPLE, Circumstances, seconds_per_event
from culver.errors import StorageCorrupt
from culver.log import ReadableLog
from culver.matching import ClauseTable, IndexWriter
from culver.pipeline import access_point
from culver.placement import (
    DivisionOptions,
    EventSpace,
    Hashed,
    MemoryBudget,
    MPartition,
    Placement,
    PlacementChoice,
    PlacementOption,
    Replicated,
    choose_placement,
    choose_replicated,
    covering_sets,
    describe_applications,
    draw_typical_events,
    estimate_cost,
)
from culver.plugins import filter_named, placement_named

logger = logging.getLogger(__name__)

AUTO = "auto"
_SAMPLE_EVENTS = 1_024
# From so many registrations on, dividing may be faster although the index fits.
_MANY = 1 << 16
# Share of a worker's memory: the index grows, and half of the memory is the limit.
_LARGE = 0.25
# Assumed for one event where there is none to read.
_READING_SECONDS = 0.3e-6


@dataclass(frozen=True, slots=True)
class WeighedChoice:
    """`learnt` divides an index that is built anew; None where the placement has nothing to learn."""

    choice: PlacementChoice
    learnt: Placement | None = None


def open_index(
    directory: Path,
    settings: PipelineSettings,
    workers: int,
    log: ReadableLog,
    registry_version: int,
    unfit: Sequence[str] = (),
) -> tuple[IndexWriter, PlacementChoice]:
    """Returns the writer of a site's index, and how it is divided. Empties an index that is damaged, divided in
    another way, or `unfit` for reasons of the caller, who fills it again from the registry. Raises
    InvalidConfiguration, StorageError, and StorageCorrupt where the index proves that the registry lacks changes."""
    # The inline engine matches on this process's event loop, where making filters would hold everybody up.
    filters = filter_named if settings.engine == "inline" else None
    writer = IndexWriter(directory, filters)
    problems = [*writer.problems, *unfit]
    if writer.registry_version > registry_version:
        raise StorageCorrupt(
            f"the registry has version {registry_version}, but the index in {directory} has changes up to version "
            f"{writer.registry_version}: the last changes of registry.db are gone. Put the file back with its -wal; "
            "or, to go on without these changes, run `culver rescue`",
            path=str(directory),
        )
    weighed = _chosen(writer, settings, workers, log)
    choice = weighed.choice
    divided = (writer.placement.name, writer.placement.slices)
    if writer.version and divided != (choice.name, choice.slices):
        problems.append(f"it is divided by {divided[0]} into {divided[1]}, and is to be by {choice.reason}")
    if problems:
        logger.warning("rebuilding the index from the registry: %s", "; ".join(problems))
        shutil.rmtree(directory)
        writer = IndexWriter(directory, filters)
    writer.divide(_placement(writer, weighed))
    return writer, choice


def recent_events(log: ReadableLog) -> pa.RecordBatch | None:
    """The last events, as an example of what comes; None where there are none."""
    end = log.next_offset
    start = max(log.first_offset, end - _SAMPLE_EVENTS)
    while start < end:
        try:
            return access_point(start, end, log.read(start, end))[-1]
        except StorageCorrupt as exc:
            start = exc.details.get("end", end)  # the events behind the damage will do
    return None


def dividing_of(settings: PipelineSettings) -> DivisionOptions:
    return DivisionOptions(settings.dimensions, cuts="equal" if settings.cuts == "equal" else "quantiles")


def _placement(writer: IndexWriter, weighed: WeighedChoice) -> Placement:
    choice = weighed.choice
    if choice.name == Replicated.name:
        return Replicated(1)
    kind = placement_named(choice.name)
    if writer.version:
        return kind.from_state(choice.slices, writer.placement.state)
    return kind(choice.slices) if weighed.learnt is None else weighed.learnt


def _chosen(writer: IndexWriter, settings: PipelineSettings, workers: int, log: ReadableLog) -> WeighedChoice:
    """`slices` of the choice counts the parts of the index: 1 where every slice has all of it."""
    name, slices = settings.placement, settings.slices or workers
    if name == AUTO:
        weighed = weigh(writer, settings, workers, log)
    else:
        choice = PlacementChoice(name, slices, f"{name}: as the setting pipeline.placement says")
        if writer.version and writer.placement.name == name in ELASTIC_PLACEMENTS:
            left = writer.placement.slices
            asked = f", though pipeline.slices says {slices}" if settings.slices not in (0, left) else ""
            choice = PlacementChoice(name, left, f"{choice.reason}, with as many slices as there were{asked}")
            if asked:
                logger.warning("the index keeps its %d slices%s; culver slices adds and removes", left, asked)
        weighed = WeighedChoice(choice)
    choice = weighed.choice
    if choice.name == Replicated.name or (choice.slices == 1 and choice.name not in ELASTIC_PLACEMENTS):
        return WeighedChoice(PlacementChoice(Replicated.name, 1, choice.reason))
    return weighed


def weigh(writer: IndexWriter, settings: PipelineSettings, workers: int, log: ReadableLog) -> WeighedChoice:
    """The placement `auto`. It assumes that each worker holds one slice."""
    slices = settings.slices or workers
    if settings.elastic:
        slices = min(max(slices, settings.slices_min), settings.slices_max)
    contents = writer.contents()
    count, size = sum(held for held, _ in contents), sum(held for _, held in contents)
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = MemoryBudget(size, settings.worker_memory_bytes or machine_bytes // max(1, slices))
    present = _present(writer, slices) if writer.version else None
    if slices == 1 or (size <= _LARGE * memory.worker_bytes and count < _MANY):
        return WeighedChoice(
            _elastic(present, slices) if settings.elastic else choose_replicated(slices, memory)
        )
    in_use = placement_named(writer.placement.name).from_state(
        writer.placement.slices, writer.placement.state
    )
    sample = writer.sample(_representative(in_use), SAMPLE)
    copies = max(1.0, float(in_use.assign(sample).sum()) / max(1, len(sample.numbers)))
    memory = MemoryBudget(int(size / copies), memory.worker_bytes)
    events, reading = _recent_and_reading(log)
    # More dimensions than there is room for are of no use, however fast.
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
    choice = choose_placement(options, memory, options[-1] if stays else None)
    if stays and choice.name != options[-1].name and options[-1].worker_bytes <= memory.budget:
        # Building the index anew takes much longer than a second trial, in which the gain must show, too.
        again = seconds_per_event(placements, sample, typical, now)
        options = [
            replace(each, seconds=(min if each is options[-1] else max)(each.seconds, took))
            for each, took in zip(options, again, strict=True)
        ]
        choice = choose_placement(options, memory, options[-1])
    chosen = next(each for each in placements if each.name == choice.name)
    return WeighedChoice(choice, chosen if isinstance(chosen, MPartition) else None)


def _recent_and_reading(log: ReadableLog) -> tuple[pa.RecordBatch | None, float]:
    """The last events, and the seconds that reading one takes."""
    began, count = thread_time(), min(log.next_offset - log.first_offset, _SAMPLE_EVENTS)
    events = recent_events(log)
    return events, _READING_SECONDS if events is None else (thread_time() - began) / count


def _option(
    placement: Placement, seconds: float, memory: MemoryBudget, sample: ClauseTable, events: pa.RecordBatch
) -> PlacementOption:
    held = int(memory.index_bytes * estimate_cost(placement, sample, events).fullest)
    parts = describe_applications(placement, sample) if isinstance(placement, MPartition) else ""
    return PlacementOption(placement.name, placement.slices, seconds, held, parts)


def _present(writer: IndexWriter, slices: int) -> Placement | None:
    """The placement of the index, if it may stay: it has as many slices, or its slices come and go."""
    placed = writer.placement
    kind = placement_named(placed.name)
    if placed.name == Replicated.name:
        return kind(slices)
    may_stay = placed.slices == slices or placed.name in ELASTIC_PLACEMENTS
    return kind.from_state(placed.slices, placed.state) if may_stay else None


def _elastic(present: Placement | None, slices: int) -> PlacementChoice:
    if present is not None and present.name in ELASTIC_PLACEMENTS:
        return PlacementChoice(
            present.name, present.slices, f"{present.name}: as it is, and slices can come and go"
        )
    reason = "slices can come and go, and there is too little to weigh one way to divide against another"
    return PlacementChoice(MPartition.name, slices, f"{MPartition.name}: {reason}")


def _representative(placement: Placement) -> list[int]:
    """Sets that hold each kind of registration in its true proportion."""
    if isinstance(placement, MPartition):
        return covering_sets(placement)
    return [0] if isinstance(placement, Hashed) else list(range(len(placement.homes)))


def _candidates(
    sample: ClauseTable, slices: int, events: pa.RecordBatch | None, dividing: DivisionOptions, elastic: bool
) -> list[Placement]:
    by_layers = MPartition.learnt(sample, slices, events, dividing)
    divided: list[MPartition] = [by_layers, EventSpace.learnt(sample, slices, events)]
    if len(by_layers.layers) == 1 and len(by_layers.layers[0].divisions) == 1:
        divided = [by_layers]  # the event space would be the same
    if elastic:
        return list(divided)
    return [Replicated(slices), *(each for each in divided if each.layers), Hashed(slices)]
