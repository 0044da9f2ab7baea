"""An index with subscriptions of several filtering schemes: one version names all of them, and they never mix."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from culver.errors import InvalidConfiguration
from culver.matching import Entry, Grouping, Index, IndexWriter, SearchMemory
from culver.matching.filter import Filter
from culver.matching.index.segments.text_segment import TextSegment
from culver.matching.index.storage.version_files import read_version
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from culver.model.values import Value
from culver.placement.fixed_placements import Hashed
from culver.plugins import filter_named
from support.events import random_event
from support.filters import random_filter

SCHEMES = ("columnar", "counting", "reference")


def batch_of(*events: Mapping[str, Value]) -> pa.RecordBatch:
    return concat(encode([Event({}, data, b"{}") for data in events], 0))


def rows(index: Index, batch: pa.RecordBatch, first_offset: int = 0) -> list[list[int]]:
    matches = index.match(batch, first_offset)
    return [
        sorted(matches.numbers[matches.offsets[row] : matches.offsets[row + 1]].tolist())
        for row in range(batch.num_rows)
    ]


def found(
    writer: IndexWriter, directory: Path, data: Mapping[str, Value], first_offset: int = 0
) -> list[int]:
    with Index.open(directory, writer.version, filters=filter_named) as index:
        return rows(index, batch_of(data), first_offset)[0]


def entries(first: int, count: int, scheme: str, since: int = 0) -> list[Entry]:
    return [Entry(number, parse("x = 1"), since, scheme) for number in range(first, first + count)]


def schemes_in(directory: Path, version: int) -> list[tuple[str, int]]:
    return sorted(
        (stored.segment.scheme, len(stored.segment)) for stored in read_version(directory, version).segments
    )


def test_each_scheme_has_segments_of_its_own_and_all_are_asked(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    for version, scheme in enumerate((*SCHEMES, *SCHEMES), 1):
        writer.publish(version, entries(10 * version, 2, scheme), [], 0)
    assert schemes_in(tmp_path, 6) == [(scheme, 4) for scheme in SCHEMES]
    assert found(writer, tmp_path, {"x": 1}) == [n for v in range(1, 7) for n in (10 * v, 10 * v + 1)]
    assert found(writer, tmp_path, {"x": 2}) == []
    assert {name: count for name, (count, _) in writer.schemes().items()} == dict.fromkeys(SCHEMES, 4)
    again = IndexWriter(tmp_path)
    assert (again.version, again.problems, again.schemes()) == (6, [], writer.schemes())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_registrations_of_every_scheme_are_in_effect_between_their_positions(
    scheme: str, tmp_path: Path
) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, [*entries(1, 1, scheme, 2), *entries(2, 1, scheme), *entries(3, 1, scheme, 1)], [], 0)
    writer.publish(2, [], [(2, 3), (3, 4), (99, 1)], 0)
    batch = batch_of(*[{"x": 1}] * 5)
    expected = [[2], [2, 3], [1, 2, 3], [1, 3], [1]]
    with Index.open(tmp_path, 2, filters=filter_named) as index:
        assert index.count == 1
        assert rows(index, batch) == expected
        assert rows(index, batch_of({"x": 1}), 9) == [[1]]
        chosen = np.array([True, False, True, False, True])
        some = index.match(batch, chosen=chosen)
        assert np.diff(some.offsets).tolist() == [1, 0, 3, 0, 1]
        later = index.match(batch, 100, chosen)
        assert np.diff(later.offsets).tolist() == [1, 0, 1, 0, 1]
        assert set(later.numbers.tolist()) == {1}
    with Index.open(tmp_path, 1, filters=filter_named) as index:
        assert rows(index, batch)[4] == [1, 2, 3], "the version before is as it was"


def test_a_replacement_that_changes_the_scheme_does_so_at_one_position(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, entries(1, 1, "columnar"), [], 0)
    for version, scheme in enumerate(("counting", "reference", "columnar"), 2):
        position = 10 * version
        writer.publish(version, entries(version, 1, scheme, position), [(version - 1, position)], 0)
    batch = batch_of(*[{"x": 1}] * 60)
    with Index.open(tmp_path, 4, filters=filter_named) as index:
        expected = [[1]] * 20 + [[2]] * 10 + [[3]] * 10 + [[4]] * 20
        assert rows(index, batch) == expected
        assert index.numbers == (1, 4)


def test_compactions_merge_segments_of_one_scheme_and_drop_what_has_ended(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    for version in range(1, 9):
        writer.publish(version, entries(300 * version, 300, SCHEMES[version % 2]), [], 0)
    assert schemes_in(tmp_path, 8) == [("columnar", 300)] * 4 + [("counting", 300)] * 4
    while (compaction := writer.plan_compaction(50)) is not None:
        assert len({source.segment.scheme for source in compaction.sources}) == 1
        compaction.run()
        # One of them ends while it runs.
        writer.publish(
            writer.registry_version + 1, [], [(int(compaction.sources[0].segment.arrays.numbers[0]), 40)], 0
        )
        writer.install(compaction)
    assert schemes_in(tmp_path, writer.version) == [("columnar", 1200), ("counting", 1200)]
    assert found(writer, tmp_path, {"x": 1}, 100) == sorted({*range(300, 2700)} - {300, 600})
    writer.publish(writer.registry_version + 1, [], [(n, 45) for n in range(301, 600)], 50)
    compaction = writer.plan_compaction(50, quiet=True)
    assert compaction is not None
    compaction.run()
    writer.install(compaction)
    assert schemes_in(tmp_path, writer.version) == [("columnar", 1200), ("counting", 900)]
    assert found(writer, tmp_path, {"x": 1}, 50) == [*range(601, 2700)]
    writer.retire(writer.version)
    assert IndexWriter(tmp_path).problems == []
    assert len(list(tmp_path.glob("*.segment"))) == 2


def test_slices_hold_their_share_of_every_scheme(tmp_path: Path) -> None:
    rng = random.Random(5)
    writer = IndexWriter(tmp_path)
    writer.divide(Hashed(2))
    added = [Entry(n, parse(random_filter(rng)), 0, rng.choice(SCHEMES)) for n in range(120)]
    writer.publish(1, added, [(n, 0) for n in range(0, 120, 7)], 0)
    events = [random_event(rng) for _ in range(40)]
    batch = concat(encode(events, 0))
    halves = []
    for place in range(2):
        with Index.open(tmp_path, 1, place, filter_named) as index:
            halves.append(rows(index, batch))
    for row, event in enumerate(events):
        left = [entry for entry in added if entry.number % 7]
        expected = [entry.number for entry in left if evaluate(entry.predicate.condition, event) is True]
        assert sorted(halves[0][row] + halves[1][row]) == expected
    assert sum(count for count, _ in writer.schemes().values()) == sum(n % 7 > 0 for n in range(120))


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("count", [3, 200])
def test_what_is_found_by_registration_has_every_scheme_in_its_time(
    count: int, some: bool, tmp_path: Path
) -> None:
    writer = IndexWriter(tmp_path)
    added = [Entry(n, parse("x >= 0"), 101, SCHEMES[n % 3]) for n in range(30)]
    writer.publish(1, added, [(n, 100 + count) for n in range(0, 30, 4)], 0)
    batch = batch_of(*[{"x": n % 2 - 1} for n in range(count + 1)])
    chosen = np.arange(count + 1) % 3 > 0 if some else None
    with Index.open(tmp_path, 1, filters=filter_named) as index:
        groups = Grouping().group([each.part() for each in index.find(batch, 90, 10, chosen, SearchMemory())])
        assert [scheme for scheme, _, _ in index.take_scheme_work()] == ["counting", "reference"]
    expected = [
        (n, 10 + row)
        for n in range(30)
        for row in range(1, count + 1)
        if row % 2 and (n % 4 or row < count) and (not some or row % 3)
    ]
    numbers = np.repeat(groups.numbers, np.diff(groups.bounds))
    assert list(zip(numbers.tolist(), groups.rows.tolist(), strict=True)) == expected


def test_filters_are_made_once_and_only_where_events_are_matched(tmp_path: Path) -> None:
    made: list[str] = []

    def counted(name: str) -> type[Filter]:
        made.append(name)
        return filter_named(name)

    IndexWriter(tmp_path).publish(1, entries(1, 3, "counting"), [], 0)
    writer = IndexWriter(tmp_path)
    writer.publish(2, entries(10, 1, "columnar"), [(1, 5)], 0)
    for version in (1, 2, 2):
        with Index.open(tmp_path, version, filters=counted) as index:
            rows(index, batch_of({"x": 1}))
    assert made == ["counting"]
    ready = IndexWriter(tmp_path, counted)
    ready.publish(3, entries(20, 1, "reference"), [], 0)
    assert made == ["counting", "reference"], "before the version appears"
    with Index.open(tmp_path, 3, filters=counted) as index:
        assert rows(index, batch_of({"x": 1})) == [[1, 2, 3, 10, 20]]
    assert made == ["counting", "reference"]


def test_what_each_scheme_did_is_told_once(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    writer.publish(1, [*entries(1, 2, "columnar"), *entries(3, 3, "counting")], [], 0)
    with Index.open(tmp_path, 1, filters=filter_named) as index:
        rows(index, batch_of({"x": 1}, {"x": 1}, {"x": 2}))
        ((scheme, pairs, seconds),) = index.take_scheme_work()
        assert (scheme, pairs) == ("counting", 6)
        assert 0 < seconds < 60
        assert index.take_scheme_work() == ()


def test_a_scheme_that_cannot_be_had_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    IndexWriter(tmp_path).publish(1, entries(1, 1, "magic"), [], 0)
    with pytest.raises(ValueError, match="scheme magic"):
        Index.open(tmp_path, 1)
    with (
        Index.open(tmp_path, 1, filters=filter_named) as index,
        pytest.raises(InvalidConfiguration, match="columnar, counting, encoded, reference"),
    ):
        index.match(batch_of({"x": 1}))


def test_texts_come_back_as_they_were_written(tmp_path: Path) -> None:
    texts: Sequence[str] = ("name = 'Zoë 🐎'", "x = 1", "x  =  1", "note LIKE '%''%'")
    added = [Entry(9 - n, parse(text), n, "reference") for n, text in enumerate(texts)]
    IndexWriter(tmp_path).publish(1, added, [], 0)
    (stored,) = read_version(tmp_path, 1).segments
    assert isinstance(stored.segment, TextSegment)
    content = stored.segment.content()
    assert (content.numbers.tolist(), content.since.tolist()) == ([6, 7, 8, 9], [3, 2, 1, 0])
    assert content.texts == texts[::-1]
