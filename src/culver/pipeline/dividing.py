"""The index of a site, divided as the settings say or as what was measured suggests."""

import logging
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa

from culver.config import PipelineSettings
from culver.errors import InvalidConfiguration
from culver.log.log import PublicationLog
from culver.matching.index import Index, IndexWriter, Memory
from culver.matching.index.slicing import Slicing, Undivided
from culver.pipeline import operators
from culver.pipeline.elasticity import ELASTIC_PLACEMENTS
from culver.placement.auto import Choice, Measured, choose
from culver.placement.expected import selective_share
from culver.placement.learning import Dividing
from culver.plugins import PLACEMENTS, filter_named, placement_named

logger = logging.getLogger(__name__)

AUTO = "auto"
_SAMPLE_EVENTS = 1_024
_GUESSED_SECONDS = 1e-6  # to match an event, where there is none to try it with


def open_index(
    directory: Path, settings: PipelineSettings, workers: int, log: PublicationLog, registry_version: int
) -> tuple[IndexWriter, Choice]:
    """The writer of a site's index, and how it is divided. An index that is damaged, or divided in another way, is
    made empty, to be filled again from the registry. Raises InvalidConfiguration, StorageError."""
    # Where this process matches events too, on its event loop, filters should not be made there.
    filters = filter_named if settings.engine == "inline" else None
    writer = IndexWriter(directory, filters)
    problems = list(writer.problems)
    if writer.registry_version > registry_version:
        problems.append(
            f"the index has version {writer.registry_version}, ahead of the registry's {registry_version}"
        )
    choice = _chosen(writer, directory, settings, workers, log)
    divided = (writer.placed.name, writer.placed.slices)
    if writer.version and divided != (choice.name, choice.slices):
        problems.append(f"it is divided by {divided[0]} into {divided[1]}, and is to be by {choice.reason}")
    if problems:
        logger.warning("rebuilding the index from the registry: %s", "; ".join(problems))
        shutil.rmtree(directory)
        writer = IndexWriter(directory, filters)
    writer.divide(_slicing(writer, choice))
    return writer, choice


def dividing_of(settings: PipelineSettings) -> Dividing:
    """How `mpartition` is to divide. Raises InvalidConfiguration."""
    if settings.dimensions < 1:
        raise InvalidConfiguration("pipeline.dimensions must be at least 1", field="pipeline.dimensions")
    match settings.cuts:
        case "quantiles" | "equal" as cuts:
            return Dividing(settings.dimensions, cuts=cuts)
    raise InvalidConfiguration(
        f"unknown cuts {settings.cuts!r}; known: quantiles, equal", field="pipeline.cuts"
    )


def recent_events(log: PublicationLog) -> pa.RecordBatch | None:
    """The last events, to find out what they are like; None where there are none."""
    end = log.next_offset
    start = max(log.first_offset, end - _SAMPLE_EVENTS)
    if start >= end:
        return None
    return operators.access_point(start, end, log.read(start, end))[-1]


def _slicing(writer: IndexWriter, choice: Choice) -> Slicing:
    if choice.name == Undivided.name:
        return Undivided()
    kind = placement_named(choice.name)
    return kind.from_state(choice.slices, writer.placed.state) if writer.version else kind(choice.slices)


def _chosen(
    writer: IndexWriter, directory: Path, settings: PipelineSettings, workers: int, log: PublicationLog
) -> Choice:
    """What to do; `slices` is what the index is divided into, so 1 where all of it is in every slice."""
    name, slices = settings.placement, settings.slices or workers
    if name == AUTO:
        choice = choose(_measure(writer, directory, settings, slices, log))
        placed = writer.placed
        if writer.version and placed.slices == choice.slices > 1 and choice.name != Undivided.name:
            # Divided already, and to be divided still: another way is hardly worth building everything anew.
            choice = Choice(
                placed.name, placed.slices, f"{placed.name}: as it is. By what was measured, {choice.reason}"
            )
    elif name in PLACEMENTS:
        choice = Choice(name, slices, f"{name}: as the setting pipeline.placement says")
        if writer.version and writer.placed.name == name in ELASTIC_PLACEMENTS:
            left = writer.placed.slices
            asked = f", though pipeline.slices says {slices}" if settings.slices not in (0, left) else ""
            choice = Choice(name, left, f"{choice.reason}, with as many slices as there were{asked}")
    else:
        known = ", ".join((AUTO, *sorted(PLACEMENTS)))
        raise InvalidConfiguration(
            f"unknown placement {name!r}; known: {known}", field="pipeline.placement", known=known.split(", ")
        )
    if choice.name == Undivided.name or (choice.slices == 1 and choice.name not in ELASTIC_PLACEMENTS):
        return Choice(Undivided.name, 1, choice.reason)
    return choice


def _measure(
    writer: IndexWriter, directory: Path, settings: PipelineSettings, workers: int, log: PublicationLog
) -> Measured:
    size = sum(held for _, held in writer.contents())
    memory = settings.worker_memory_bytes or _machine_bytes() // max(1, workers)
    seconds, share = _GUESSED_SECONDS, 0.0
    if size > memory // 4:  # it may be a question of the rest, which takes time to find out
        with Index.open(directory, writer.version, filters=filter_named) as index:
            seconds = _seconds_per_event(index, log)
            share = selective_share(index.sample(), workers)
    return Measured(size, memory, workers, seconds, share)


def _seconds_per_event(index: Index, log: PublicationLog) -> float:
    events = recent_events(log)
    if events is None:
        return _GUESSED_SECONDS
    began = time.perf_counter()
    for found in operators.match(lambda _: index, log.next_offset - events.num_rows, [events], Memory()):
        found.groups()
    return (time.perf_counter() - began) / len(events)


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
