"""W2's subscriptions, compiled and divided into slices, in files as the pipeline reads them."""

from collections.abc import Sequence
from pathlib import Path

from culver.bench.matching.drawn_subscriptions import Form, draw
from culver.bench.streamhub.streamhub_plan import SEED
from culver.bench.workloads import Workload, named
from culver.matching import ClauseTable, IndexWriter, compile_rows
from culver.model.language import prepare
from culver.placement import Placement, Replicated
from culver.plugins import placement_named

PLACEMENTS = ("hashed", "event-space", "kmeans", "replicated")
VERSION = 1


def workload() -> Workload:
    return named("W2")


def table_of(count: int) -> ClauseTable:
    """`count` subscriptions of W2, in the order of their numbers."""
    return compiled(draw(workload(), count, SEED).forms)


def compiled(forms: Sequence[Form]) -> ClauseTable:
    return ClauseTable.joined(
        [compile_rows(prepare(form.text), form.numbers, form.columns) for form in forms]
    )


def placement_for(placement: str, slices: int, table: ClauseTable) -> Placement:
    """What divides the index, learnt from what is to be in it; nothing where there is one slice, or every slice would
    hold all."""
    if slices == 1 or placement == Replicated.name:
        return Replicated(1)
    return placement_named(placement).learnt(table, slices)


def store(directory: Path, placement: Placement, table: ClauseTable) -> None:
    """Write the subscriptions as VERSION of an index; they are on disk when this returns."""
    writer = IndexWriter(directory)
    writer.divide(placement)
    writer.publish(VERSION, [], [], 0, [table])
