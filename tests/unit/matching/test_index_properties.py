"""The columnar filter and the index give the reference's answers, on every path that a layout can take.

Filters come in families (`support.families`), so that they lie in groups, chunks and trees; events lie at their
bounds. Every history is drawn from its seed alone, which a failure names, with the filter and the event.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from culver.matching import Entry, Grouping, Index, IndexWriter, SearchMemory
from culver.matching.filter import Matches, matches_of
from culver.matching.filters import columnar
from culver.matching.filters.columnar import ColumnarFilter
from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import compile_entries
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.layout import chunks
from culver.matching.index.search.columnar_matcher import ColumnarMatcher
from culver.matching.index.segments.columnar_segment import ColumnarSegment, encode
from culver.matching.index.segments.segment_file import FOREVER, SegmentView
from culver.matching.index.storage import index_reader, merge_policy
from culver.matching.index.storage.compaction import merge_columnar
from culver.model.columns import event_batch as batches
from culver.model.event import Event
from culver.model.language.predicate import Predicate, evaluate
from culver.plugins import filter_named
from support.clauses import described, from_chunks
from support.families import NEEDS, Events, Family, Member, box_family, prepared, random_family

SMALL_CHUNKS = 128
SOME_NEEDS = ("", "word LIKE '%a%'", "NOT ('red' IN tags)")


class Checker:
    """Compares answers with the reference, and counts the pairs that it was asked about."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.pairs = 0

    def truth(self, predicates: Mapping[int, Predicate], events: Sequence[Event]) -> list[set[int]]:
        """For each event, the numbers of the filters that match it."""
        self.pairs += len(predicates) * len(events)
        return [
            {number for number, each in predicates.items() if evaluate(each.condition, event) is True}
            for event in events
        ]

    def same(
        self,
        path: str,
        matches: Matches,
        expected: Sequence[set[int]],
        predicates: Mapping[int, Predicate],
        events: Sequence[Event],
    ) -> None:
        bounds = matches.offsets.tolist()
        assert len(bounds) == len(events) + 1
        for row, (begin, end) in enumerate(itertools.pairwise(bounds)):
            found = matches.numbers[begin:end].tolist()
            if len(found) == len(expected[row]) and set(found) == expected[row]:
                continue
            count = Counter(found)
            for number in sorted(set(found) | expected[row]):
                wanted = int(number in expected[row])
                text = predicates[number].text if number in predicates else "(a number that is not there)"
                assert count[number] == wanted, (
                    f"seed {self.seed}, {path}, row {row} of {len(events)}: number {number} is named "
                    f"{count[number]} times instead of {wanted}\n  filter {text}\n  event  {events[row].data}"
                )


def gathered(
    index: Index, batch: pa.RecordBatch, first: int, first_row: int, chosen: NDArray[np.bool_] | None
) -> Matches:
    """What is found for groups of registrations, listed event by event again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_reader, "_is_sparse", lambda parts, count: False)
        memory = SearchMemory()
        parts = [each.part() for each in index.find(batch, first - first_row, first_row, chosen, memory)]
    groups = Grouping().group(parts)
    assert (np.diff(groups.numbers) > 0).all()
    assert groups.bounds[0] == 0
    assert groups.bounds[-1] == len(groups.rows)
    rows: list[list[int]] = [[] for _ in range(batch.num_rows)]
    for number, (begin, end) in zip(
        groups.numbers.tolist(), itertools.pairwise(groups.bounds.tolist()), strict=True
    ):
        of_one = groups.rows[begin:end].astype(np.int64)
        assert begin < end
        assert (np.diff(of_one) > 0).all()
        for row in of_one.tolist():
            rows[row - first_row].append(number)
    return matches_of(rows)


def batch_of(events: Sequence[Event]) -> pa.RecordBatch:
    return batches.concat(batches.encode(events, 0))


def paths_of(segments: Iterable[ColumnarSegment]) -> Counter[str]:
    """Which of the paths through the kernels these segments offer."""
    seen: Counter[str] = Counter()
    for segment in segments:
        arrays = segment.arrays
        sizes = np.diff(arrays.buckets.reshape(-1, 3), axis=0)
        seen["free"] += len(arrays.free_registration)
        seen["clauses one by one"] += int(sizes[:, 1].sum())
        seen["boxes"] += int(np.count_nonzero(arrays.slot_registration >= 0))
        seen["groups of several chunks"] += int(np.count_nonzero(np.diff(arrays.group_chunks) > 1))
        seen["chunks of several leaves"] += int(np.count_nonzero(np.diff(arrays.chunk_leaves) > 1))
        seen["boxes with needs"] += int(np.count_nonzero(arrays.group_needy))
        seen["axes with halvings"] += int(np.count_nonzero(arrays.axis_steps))
        seen["axes measured in reals"] += int(np.count_nonzero(arrays.axis_real))
        seen["buckets of values"] += len(arrays.key_bucket)
        seen["buckets of needs"] += int(np.count_nonzero(arrays.need_bucket >= 0))
        seen["repeats"] += segment.repeats
        seen["dense"] += segment.dense
        seen["holes"] += not segment.dense
    return seen


def random_members(rng: random.Random) -> list[Member]:
    """Those of one to three families, in a random order."""
    families = [random_family(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    members = [
        each for family in families for each in family.members(rng, rng.choice((20, 40, 90, 200, 400)))
    ]
    rng.shuffle(members)
    return members[:600]


# --- the filter in memory -------------------------------------------------------------------------------


def columnar_history(seed: int, checker: Checker) -> Counter[str]:
    """Members come, by two ways, are replaced and leave; batches of several sizes are matched in between."""
    rng = random.Random(seed)
    members = random_members(rng)
    events = Events(members)
    present: dict[int, Predicate] = {}
    step = rng.choice((1, 1, 7))
    fresh = itertools.count(rng.randrange(1000), step)
    with ColumnarFilter() as made:

        def check(sizes: Iterable[int]) -> None:
            assert len(made) == len(present)
            for size in sizes:
                drawn = events.several(rng, size)
                expected = checker.truth(present, drawn)
                checker.same("columnar", made.match(batch_of(drawn)), expected, present, drawn)

        rounds = rng.choice((1, 2, 4))
        for part in range(rounds):
            coming = {next(fresh): member for member in members[part::rounds]}
            replaced = rng.sample(sorted(present), len(present) // 10)
            coming |= {number: rng.choice(members) for number in replaced}
            present |= {number: member.predicate() for number, member in coming.items()}
            if rng.random() < 0.5:
                add_by_rows(made, coming)
            else:
                made.add((number, present[number]) for number in coming)
            if rng.random() < 0.3:
                check([1])
            gone = rng.sample(sorted(present), len(present) // rng.choice((4, 8, 1000)))
            made.remove([*gone, 10**9])
            for number in gone:
                del present[number]
            check([1, 3, 20])
        check([rng.choice((127, 128, 129, 200, 260))])
        if rng.random() < 0.3:
            idle = batch_of(events.several(rng, 1))
            for _ in range(18):  # until it is made compact
                made.match(idle)
            made.close()
            check([30])
        made.close()
        return paths_of(piece.segment for piece in made._pieces)


def add_by_rows(made: ColumnarFilter, coming: Mapping[int, Member]) -> None:
    by_template: dict[str, list[int]] = {}
    for number, member in coming.items():
        by_template.setdefault(member.template, []).append(number)
    for template, numbers in by_template.items():
        columns = list(zip(*(coming[number].values for number in numbers), strict=True))
        made.add_rows(prepared(template), np.array(numbers, np.int64), columns)


ALL_PATHS = {
    "free",
    "clauses one by one",
    "boxes",
    "groups of several chunks",
    "chunks of several leaves",
    "boxes with needs",
    "axes with halvings",
    "axes measured in reals",
    "buckets of values",
    "buckets of needs",
    "repeats",
    "dense",
    "holes",
}


@pytest.mark.slow(seconds=6)
@pytest.mark.timeout(1800)
def test_families_match_like_the_reference_in_the_columnar_filter(
    monkeypatch: pytest.MonkeyPatch, full_length: bool
) -> None:
    seen: Counter[str] = Counter()
    pairs = 0
    for seed in range(100, 350 if full_length else 114):
        with monkeypatch.context() as patched:
            if seed % 2:
                patched.setattr(chunks, "MOST_BOXES", SMALL_CHUNKS)
            if seed % 4 >= 2:  # more segments, and merges in the thread
                patched.setattr(merge_policy, "SMALLEST", 16)
                patched.setattr(columnar, "_MERGED_AT_ONCE", 64)
            checker = Checker(seed)
            seen += columnar_history(seed, checker)
            pairs += checker.pairs
    assert {path for path, count in seen.items() if count} == ALL_PATHS
    assert pairs >= (5_000_000 if full_length else 500_000)


# --- the index in files ---------------------------------------------------------------------------------


class IndexHistory:
    """Versions of an index with windows: registrations that begin and end at positions, compactions beside the
    publications, and writers that start again from the files."""

    def __init__(self, directory: Path, seed: int, checker: Checker) -> None:
        self._rng = random.Random(seed)
        self._scheme_rng = random.Random(f"schemes of {seed}")
        self._schemes = ("columnar",) * 8 + (() if seed % 3 else ("counting", "counting", "reference"))
        self._directory = directory
        self._checker = checker
        self._writer = IndexWriter(directory)
        self._predicates: dict[int, Predicate] = {}
        self._windows: dict[int, tuple[int, int]] = {}
        self._position = 0
        self._horizon = 0
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        rng = self._rng
        members = random_members(rng)
        events = Events(members)
        fresh = itertools.count(rng.randrange(1000), rng.choice((1, 1, 5)))
        versions = rng.choice((2, 4, 6))
        for version in range(1, versions + 1):
            coming = {next(fresh): member for member in members[version - 1 :: versions]}
            compaction = self._writer.plan_compaction(self._horizon, rng.random() < 0.6)
            self._publish({number: member.predicate() for number, member in coming.items()})
            if compaction is not None:
                compaction.run()
                if rng.random() < 0.5:
                    self._publish({})
                self._writer.install(compaction)
                self.seen["compactions"] += 1
            if rng.random() < 0.4:
                self._writer.retire(self._writer.version)
                self._writer = IndexWriter(self._directory)
                assert self._writer.problems == []
            self._check(events.several(rng, 25 if version < versions else 140))

    def _publish(self, coming: Mapping[int, Predicate]) -> None:
        rng = self._rng
        self._position += rng.randrange(100)
        ended: list[tuple[int, int]] = []
        for number, predicate in coming.items():
            self._predicates[number] = predicate
            self._windows[number] = (self._position + rng.choice((0, 0, rng.randrange(60))), FOREVER)
        open_still = [number for number, (_, until) in self._windows.items() if until == FOREVER]
        for number in rng.sample(open_still, len(open_still) // rng.choice((3, 9, 1000))):
            until = self._position + rng.randrange(60)
            self._windows[number] = (self._windows[number][0], until)
            ended.append((number, until))
        if rng.random() < 0.5:
            self._horizon = max(self._horizon, self._position - 20)
        version = self._writer.registry_version + rng.randrange(1, 3)
        entries = [
            Entry(number, each, self._windows[number][0], self._scheme_rng.choice(self._schemes))
            for number, each in coming.items()
        ]
        self._writer.publish(version, entries, ended, self._horizon)

    def _check(self, events: Sequence[Event]) -> None:
        truth = self._checker.truth(self._predicates, events)
        batch = batch_of(events)
        with Index.open(self._directory, self._writer.version, filters=filter_named) as index:
            for first in (self._horizon, self._position + self._rng.randrange(100), 2**62):
                expected = [
                    {n for n in found if self._windows[n][0] <= first + row < self._windows[n][1]}
                    for row, found in enumerate(truth)
                ]
                path = f"index version {index.version} at {first}"
                self._checker.same(path, index.match(batch, first), expected, self._predicates, events)
                chosen = np.array([self._rng.random() < 0.7 for _ in events])
                some = [found if taken else set() for found, taken in zip(expected, chosen, strict=True)]
                for how, wanted, mask in (("all", expected, None), ("some", some, chosen)):
                    found = gathered(index, batch, first, self._rng.choice((0, 1, 60_000)), mask)
                    self._checker.same(f"{path}, {how} gathered", found, wanted, self._predicates, events)
        parts = self._writer._current.segments
        columnar = [stored.segment for stored in parts if isinstance(stored.segment, ColumnarSegment)]
        self.seen += paths_of(columnar)
        self.seen["other schemes"] += len(columnar) < len(parts)
        self.seen["tombstones"] += sum(len(stored.tombstones) for stored in parts)
        self.seen["several segments"] += len(parts) > 1


@pytest.mark.slow(seconds=6)
@pytest.mark.timeout(1800)
def test_families_match_like_the_reference_in_an_index_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, full_length: bool
) -> None:
    seen: Counter[str] = Counter()
    pairs = 0
    for seed in range(3000, 3200 if full_length else 3012):
        with monkeypatch.context() as patched:
            if seed % 2:
                patched.setattr(chunks, "MOST_BOXES", SMALL_CHUNKS)
            if seed % 4 >= 2:
                patched.setattr(merge_policy, "SMALLEST", 16)
            checker = Checker(seed)
            history = IndexHistory(tmp_path / str(seed), seed, checker)
            history.run()
            seen += history.seen
            pairs += checker.pairs
    assert {path for path, count in seen.items() if count} == {
        *ALL_PATHS,
        "compactions",
        "tombstones",
        "several segments",
        "other schemes",
    }
    assert pairs >= (5_000_000 if full_length else 500_000)


# --- groups of certain sizes ----------------------------------------------------------------------------


def check_group(family: Family, count: int, events: int, seed: int, groups: int) -> ColumnarSegment:
    """`count` boxes of the family in one segment, which must have so many groups, match like the reference."""
    rng = random.Random(seed)
    members = family.members(rng, count)
    drawn = Events(members[: max(events, 100)]).several(rng, events)
    numbered = {7 * number: member.predicate() for number, member in enumerate(members)}
    segment = from_chunks(encode(compile_entries(Entry(n, each) for n, each in numbered.items())))
    assert len(segment.arrays.group_needy) == groups
    checker = Checker(seed)
    matches = ColumnarMatcher([SegmentView(segment)]).match(BatchColumns(batch_of(drawn)), 0)
    checker.same(f"a group of {count}", matches, checker.truth(numbered, drawn), numbered, drawn)
    return segment


@pytest.mark.parametrize("need", SOME_NEEDS)
@pytest.mark.parametrize("count", [15, 16, 63, 64, 65, 128, 129])
def test_a_group_is_searched_rightly_whether_its_leaves_are_full_or_not(count: int, need: str) -> None:
    for seed, draw in enumerate(("even", "wide", "skewed", "crowded", "clustered")):
        family = box_family(("a", "b"), (draw, "even"), need)
        segment = check_group(family, count, 30, seed, int(count >= 16))
        leaves = -(-count // 64) if count >= 16 else 0
        assert segment.arrays.chunk_leaves[-1] == leaves


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("count", "draw", "need", "levels"),
    [(4_096, "even", "", 2), (4_097, "crowded", "", 3), (4_097, "skewed", "NOT ('red' IN tags)", 3)],
)
def test_trees_of_two_and_of_three_levels_are_searched_rightly(
    count: int, draw: str, need: str, levels: int, full_length: bool
) -> None:
    family = box_family(("a", "b"), (draw, "even"), need)
    events = 150 if full_length else 20
    arrays = check_group(family, count, events, 5, 1).arrays
    leaves = -(-count // 64)
    nodes = leaves + -(-leaves // 64) + (levels - 2)
    assert len(arrays.nodes) == nodes * len(arrays.group_dimension) * 2 * 64


@pytest.mark.parametrize(("more", "expected"), [(0, 1), (1, 2)])
def test_as_many_boxes_as_ranks_allow_are_one_chunk_and_one_more_are_two(more: int, expected: int) -> None:
    count = chunks.MOST_BOXES + more
    bounds = np.sort(np.random.default_rng(6).uniform(0.0, 1.0, (count, 2)), axis=1)
    assert len(np.unique(bounds)) == 2 * count, "every bound is an edge of its own"
    table = compile_rows(prepared("x BETWEEN ? AND ?"), np.arange(count), [bounds[:, 0], bounds[:, 1]])
    segment = from_chunks(encode(table))
    assert segment.arrays.group_chunks.tolist() == [0, expected]
    every = bounds.reshape(-1)
    near = [np.nextafter(every[::900], to) for to in (every[::900], 0.0, 1.0)]
    values = np.concatenate([*near, [every.min(), every.max(), 0.0, 1.0]])
    batch = batch_of([Event({}, {"x": x}, b"{}") for x in values.tolist()])
    matches = ColumnarMatcher([SegmentView(segment)]).match(BatchColumns(batch), 0)
    for row, x in enumerate(values.tolist()):
        found = np.sort(matches.numbers[matches.offsets[row] : matches.offsets[row + 1]])
        expected_numbers = np.flatnonzero((bounds[:, 0] <= x) & (x <= bounds[:, 1]))
        assert np.array_equal(found, expected_numbers), (x, np.setxor1d(found, expected_numbers)[:5])


@pytest.mark.parametrize("count", [128, 129, 700])
def test_many_small_chunks_are_searched_rightly(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(chunks, "MOST_BOXES", SMALL_CHUNKS)
    for seed, need in enumerate(SOME_NEEDS):
        family = box_family(("a", "b", "c"), ("skewed", "equal", "mixed"), need)
        segment = check_group(family, count, 40, seed, 1)
        assert segment.arrays.group_chunks[-1] >= -(-count // SMALL_CHUNKS)


# --- back from segments to tables -----------------------------------------------------------------------


def without_empty(table: ClauseTable) -> ClauseTable:
    """The clauses that can hold, which are all that a segment keeps."""
    empty = table.term_bounds[:, 0] > table.term_bounds[:, 1]
    clause = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
    return table.select_clauses(np.setdiff1d(np.arange(len(table.clause_registration)), clause[empty]))


@pytest.mark.timeout(1800)
def test_segments_of_families_give_back_their_tables_and_merge_to_what_compiling_gives(
    monkeypatch: pytest.MonkeyPatch, full_length: bool
) -> None:
    for seed in range(5000, 5200 if full_length else 5016):
        with monkeypatch.context() as patched:
            if seed % 2:
                patched.setattr(chunks, "MOST_BOXES", SMALL_CHUNKS)
            rng = random.Random(seed)
            members = random_members(rng)
            entries = [Entry(3 * n, each.predicate(), rng.randrange(9)) for n, each in enumerate(members)]
            parts, wholes = [], []
            for some in (entries[::2], entries[1::2]):
                table = compile_entries(some)
                segment = from_chunks(encode(table))
                assert described(segment.table()) == described(without_empty(table)), f"seed {seed}"
                parts.append(SegmentView(segment))
                wholes += some
            merged, _ = merge_columnar(parts, 0)
            expected = without_empty(compile_entries(wholes))
            assert described(merged) == described(expected), f"seed {seed}"
            again = from_chunks(encode(merged))
            assert described(again.table()) == described(expected), f"seed {seed}"


def test_every_need_is_drawn_by_some_family() -> None:
    rng = random.Random(1)
    drawn = {piece.text for _ in range(400) for form in random_family(rng).forms for piece in form}
    assert set(NEEDS) <= drawn
