import random
from pathlib import Path

import numpy as np
import pytest

from culver.bench.workloads import named
from culver.errors import StorageCorrupt
from culver.matching import Entry, Index, IndexWriter, SearchMemory
from culver.matching.index.compile.compiler import compile_entries
from culver.model.columns import event_batch as batches
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import Predicate, evaluate
from culver.pipeline import operators
from culver.pipeline.operators import access_point, exit_point, match_events, route_events
from culver.placement.forwarding import SetLoad
from culver.placement.mpartition import MPartition
from culver.plugins import FORWARDINGS, forwarding_named
from support.events import random_event
from support.filters import parsed_or_refused, random_filter
from support.notifications import offsets_of


def pieces(events: list[Event], start: int, lengths: list[int]) -> list[tuple[int, object]]:
    cut = []
    at = 0
    for length in lengths:
        for batch in batches.encode(events[at : at + length], 0):
            cut.append((start + at, batch))
            at += batch.num_rows
    return cut


def test_access_point_joins_like_pieces_into_one_batch() -> None:
    events = [Event({}, {"a": i}, b"{}") for i in range(10)]
    [joined] = access_point(100, 110, pieces(events, 100, [1, 2, 3, 4]))
    assert [batches.event_at(joined, row) for row in range(10)] == events


def test_access_point_keeps_very_unlike_pieces_apart_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_MOST_CELLS", 2_000)
    events = [Event({}, {f"name{i}_{j}": j for j in range(20)}, b"{}") for i in range(60)]
    parts = access_point(0, 60, pieces(events, 0, [1] * 60))
    assert 1 < len(parts) < 60
    assert max(part.num_columns * part.num_rows for part in parts) <= 2_000
    assert [batches.event_at(part, row) for part in parts for row in range(part.num_rows)] == events


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_access_point_never_passes_over_a_missing_piece(missing: int) -> None:
    events = [Event({}, {"a": i}, b"{}") for i in range(6)]
    cut = pieces(events, 0, [2, 2, 2])
    del cut[missing]
    with pytest.raises(StorageCorrupt):
        access_point(0, 6, cut)


def test_operators_give_what_the_reference_gives(tmp_path: Path) -> None:
    rng = random.Random(5)
    parsed = [parsed_or_refused(random_filter(rng)) for _ in range(120)]
    predicates = [predicate for predicate in parsed if isinstance(predicate, Predicate)]
    writer = IndexWriter(tmp_path)
    writer.publish(1, [Entry(number, predicate) for number, predicate in enumerate(predicates)], [], 0)
    events = [random_event(rng) for _ in range(60)]
    index = Index.open(tmp_path, 1)
    parts = access_point(1_000, 1_060, pieces(events, 1_000, [1, 20, 39]))
    found = [each.part() for each in match_events(lambda _: index, 1_000, parts, SearchMemory())]
    result = exit_point(1_000, 1, parts, found, SearchMemory())
    index.close()
    assert (result.start, result.end) == (1_000, 1_060)
    assert result.sizes.tolist() == [len(event.payload) for event in events]
    for number, predicate in enumerate(predicates):
        expected = [
            1_000 + i for i, event in enumerate(events) if evaluate(predicate.condition, event) is True
        ]
        assert offsets_of(result, number) == expected, predicate.text


def test_exit_point_without_a_match_still_covers_the_range(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, [Entry(1, parse("a = 'nothing has this'"))], [], 0)
    index = Index.open(tmp_path, 1)
    parts = access_point(5, 8, pieces([Event({}, {"a": 1}, b"{}")] * 3, 5, [3]))
    found = [each.part() for each in match_events(lambda _: index, 5, parts, SearchMemory())]
    result = exit_point(5, 1, parts, found, SearchMemory())
    index.close()
    assert (result.start, result.end, len(result.numbers), len(result.rows)) == (5, 8, 0, 0)
    assert result.bounds.tolist() == [0]
    assert result.rows.dtype == np.uint16


@pytest.mark.parametrize("policy", sorted(FORWARDINGS))
def test_a_block_is_decided_on_as_a_whole_however_it_is_cut(policy: str) -> None:
    workload = named("W1")
    table = compile_entries(
        Entry(number, parse(text)) for number, text in enumerate(workload.filters(400, 1))
    )
    placement = MPartition.learnt(table, 4)
    events = workload.event_batch(300, 2)
    sizes = placement.assign(table).sum(axis=0)
    unknown = np.zeros(len(placement.homes))
    load = SetLoad(placement.homes, 4, sizes, unknown, unknown, unknown, unknown)
    cut = [events.slice(0, 1), events.slice(1, 120), events.slice(121)]
    [whole], parts = (
        route_events(placement, forwarding_named(policy)(), load, 50, each) for each in ([events], cut)
    )
    assert [len(part.sets[0]) for part in parts] == [1, 120, 179]
    for choice in range(len(whole.sets)):
        assert np.concatenate([part.sets[choice] for part in parts]).tolist() == whole.sets[choice].tolist()
        assert (
            np.concatenate([part.slices[choice] for part in parts]).tolist() == whole.slices[choice].tolist()
        )
