"""What a worker hands back is cut, so that it fits into Arrow's arrays whatever an event matches."""

from typing import Any

import pyarrow as pa
import pytest

from culver import Matcher
from culver.matcher import match_lists
from culver.spark.matching import worker_matching
from culver.spark.matching.worker_matching import ShippedFilters, WorkerMatching

_MATCHERS: dict[str, Matcher] = {}


class KnownFilters(ShippedFilters):
    def matcher(self) -> Matcher:
        return _MATCHERS[self.digest]


def results(events: dict[str, list[Any]], ids: list[str], explode: bool = False) -> list[pa.RecordBatch]:
    """Of filters of which the first matches rows from 0 on, the second rows from 1 on, and so on."""
    with Matcher() as matcher:
        matcher.add_many("row >= ?", {"first": list(range(len(ids)))}, ids=ids)
        _MATCHERS["known"] = matcher
        matching = WorkerMatching(KnownFilters("known"), "ids", explode, "UTC")
        return list(matching(iter([pa.record_batch(events)])))


def pairs(batches: list[pa.RecordBatch]) -> list[tuple[int, str]]:
    return [
        (row["row"], id_)
        for batch in batches
        for row in batch.to_pylist()
        for id_ in (row["ids"] if isinstance(row["ids"], list) else [row["ids"]])
    ]


@pytest.mark.parametrize("explode", [False, True])
def test_results_are_cut_by_their_ids_and_by_their_bytes(
    monkeypatch: pytest.MonkeyPatch, explode: bool
) -> None:
    rows, ids = list(range(30)), [f"filter {number}" for number in range(20)]
    wanted = [(row, ids[number]) for row in rows for number in range(min(row + 1, 20))]
    monkeypatch.setattr(worker_matching, "_MOST_IDS", 50)
    by_ids = results({"row": rows}, ids, explode)
    assert pairs(by_ids) == wanted
    assert max(len(batch["ids"].flatten()) if not explode else batch.num_rows for batch in by_ids) <= 50

    monkeypatch.undo()
    assert len(results({"row": rows}, ids, explode)) < len(by_ids)
    monkeypatch.setattr(worker_matching, "_MOST_BYTES", 2000)
    by_bytes = results({"row": rows, "text": ["x" * 50] * 30}, ids, explode)
    assert pairs(by_bytes) == wanted
    assert max(batch.nbytes for batch in by_bytes) < 2500


def test_an_event_is_repeated_in_several_batches_where_one_cannot_hold_it_often_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_matching, "_MOST_BYTES", 10_000)
    ids = [f"f{number}" for number in range(25)]
    batches = results({"row": [99], "payload": ["y" * 1000]}, ids, explode=True)
    assert [batch.num_rows for batch in batches] == [9, 9, 7]
    assert pairs(batches) == [(99, id_) for id_ in ids]


def test_ids_that_do_not_fit_into_one_array_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_lists, "_MOST_BYTES", 100)
    batches = results({"row": list(range(100, 200))}, [f"filter {number}" for number in range(5)])
    assert pairs(batches) == [(row, f"filter {number}") for row in range(100, 200) for number in range(5)]
    assert len(batches) > 30


def test_events_without_a_match_keep_their_rows_in_lists_only() -> None:
    events = {"row": [-1, -2, 0]}
    assert [batch["ids"].to_pylist() for batch in results(events, ["a"])] == [[[]], [[], ["a"]]]
    assert pairs(results(events, ["a"], explode=True)) == [(0, "a")]
