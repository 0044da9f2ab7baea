"""The index of a site, divided as the settings say or as what was measured suggests."""

import logging
import shutil
from pathlib import Path

from culver.config import PipelineSettings
from culver.control.elasticity import ELASTIC_PLACEMENTS
from culver.control.placement_measurement import Weighed, weigh
from culver.log import PublicationLog
from culver.matching import IndexWriter, Slicing, Undivided
from culver.placement import Choice
from culver.plugins import filter_named, placement_named

logger = logging.getLogger(__name__)

AUTO = "auto"


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
    weighed = _chosen(writer, settings, workers, log)
    choice = weighed.choice
    divided = (writer.placed.name, writer.placed.slices)
    if writer.version and divided != (choice.name, choice.slices):
        problems.append(f"it is divided by {divided[0]} into {divided[1]}, and is to be by {choice.reason}")
    if problems:
        logger.warning("rebuilding the index from the registry: %s", "; ".join(problems))
        shutil.rmtree(directory)
        writer = IndexWriter(directory, filters)
    writer.divide(_slicing(writer, weighed))
    return writer, choice


def _slicing(writer: IndexWriter, weighed: Weighed) -> Slicing:
    choice = weighed.choice
    if choice.name == Undivided.name:
        return Undivided()
    kind = placement_named(choice.name)
    if writer.version:
        return kind.from_state(choice.slices, writer.placed.state)
    return kind(choice.slices) if weighed.learnt is None else weighed.learnt


def _chosen(writer: IndexWriter, settings: PipelineSettings, workers: int, log: PublicationLog) -> Weighed:
    """What to do; `slices` is what the index is divided into, so 1 where all of it is in every slice."""
    name, slices = settings.placement, settings.slices or workers
    if name == AUTO:
        weighed = weigh(writer, settings, workers, log)
    else:
        choice = Choice(name, slices, f"{name}: as the setting pipeline.placement says")
        if writer.version and writer.placed.name == name in ELASTIC_PLACEMENTS:
            left = writer.placed.slices
            asked = f", though pipeline.slices says {slices}" if settings.slices not in (0, left) else ""
            choice = Choice(name, left, f"{choice.reason}, with as many slices as there were{asked}")
            if asked:
                logger.warning("the index keeps its %d slices%s; culver slices adds and removes", left, asked)
        weighed = Weighed(choice)
    choice = weighed.choice
    if choice.name == Undivided.name or (choice.slices == 1 and choice.name not in ELASTIC_PLACEMENTS):
        return Weighed(Choice(Undivided.name, 1, choice.reason))
    return weighed
