from collections.abc import Sequence

from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.model.language.parser import parse
from culver.placement.auto_choice import (
    MemoryBudget,
    PlacementOption,
    choose_placement,
    choose_replicated,
    describe_applications,
)
from culver.placement.mpartition import MPartition

MB, GB = 1_000_000, 1_000_000_000
REPLICATED = PlacementOption("replicated", 4, 8e-6, 2 * GB)
MPARTITION = PlacementOption("mpartition", 4, 12e-6, 900 * MB, "one application: price (90 %); the rest 10 %")
HASHED = PlacementOption("hashed", 4, 20e-6, 500 * MB)
OPTIONS = [REPLICATED, MPARTITION, HASHED]


def table_of(texts: Sequence[str]) -> ClauseTable:
    return compile_entries(Entry(number, parse(text)) for number, text in enumerate(texts))


def test_the_quickest_is_taken_where_all_fit() -> None:
    choice = choose_placement(OPTIONS, MemoryBudget(2 * GB, 4 * GB))
    assert (choice.name, choice.slices) == ("replicated", 4)
    assert choice.reason == (
        "replicated: an event takes 8 µs, and a worker holds 2 GB; with mpartition 12 µs and 900 MB; with hashed "
        "20 µs and 500 MB"
    )


def test_the_quickest_of_those_that_fit_is_taken_and_names_its_applications() -> None:
    choice = choose_placement(OPTIONS, MemoryBudget(2 * GB, 2 * GB))
    assert choice.name == "mpartition"
    assert "with replicated 8 µs and 2 GB, which is too much" in choice.reason
    assert choice.reason.endswith(" (one application: price (90 %); the rest 10 %)")
    assert choose_placement(OPTIONS, MemoryBudget(2 * GB, GB)).name == "hashed"


def test_a_division_pays_where_it_is_quicker_though_everything_fits() -> None:
    quick = PlacementOption("mpartition", 4, 5e-6, 3 * GB)
    assert choose_placement([REPLICATED, quick], MemoryBudget(2 * GB, 6 * GB)).name == "mpartition"


def test_a_division_that_is_hardly_quicker_does_not_pay_where_everything_fits() -> None:
    quick = PlacementOption("mpartition", 4, 7e-6, 900 * MB)
    assert choose_placement([REPLICATED, quick], MemoryBudget(2 * GB, 6 * GB)).name == "replicated"
    assert choose_placement([REPLICATED, quick], MemoryBudget(2 * GB, 6 * GB), quick).name == "mpartition"


def test_where_none_fits_the_smallest_is_taken_and_the_reason_says_how_many_workers_would_do() -> None:
    choice = choose_placement(OPTIONS, MemoryBudget(2 * GB, 400 * MB))
    assert choice.name == "hashed"
    assert "a worker holds 500 MB, which is more than half of the 400 MB that it has" in choice.reason
    assert "With 10 workers it could be divided" in choice.reason


def test_what_is_in_use_stays_unless_another_is_clearly_quicker() -> None:
    memory = MemoryBudget(2 * GB, 2 * GB)
    nearly = PlacementOption("hashed", 4, 14e-6, 500 * MB)
    choice = choose_placement([MPARTITION, nearly], memory, nearly)
    assert choice.name == "hashed"
    assert choice.reason.startswith(
        "hashed: an event takes 14 µs, and a worker holds 500 MB; with mpartition 12 µs"
    )
    assert choose_placement(OPTIONS, memory, HASHED).name == "mpartition"


def test_what_is_in_use_does_not_stay_where_it_does_not_fit() -> None:
    slow = PlacementOption("hashed", 4, 9e-6, 500 * MB)
    assert choose_placement([REPLICATED, slow], MemoryBudget(2 * GB, 2 * GB), REPLICATED).name == "hashed"


def test_a_small_index_is_replicated_without_a_question() -> None:
    choice = choose_replicated(4, MemoryBudget(4_600_000, 2 * GB))
    assert (choice.name, choice.slices) == ("replicated", 4)
    assert choice.reason == (
        "replicated: the index of 4.6 MB fits into each worker's 2 GB, and so every event is matched once, by any of "
        "the 4 workers"
    )


def test_one_worker_has_nothing_to_divide() -> None:
    assert (
        choose_replicated(1, MemoryBudget(MB, GB)).reason
        == "replicated: there is one worker, and nothing to divide"
    )
    assert "with 4 workers it could be divided" in choose_replicated(1, MemoryBudget(2 * GB, GB)).reason


def test_applications_are_told_by_the_attributes_that_they_ask_about() -> None:
    texts = [f"price BETWEEN {n} AND {n + 2} AND volume = {n}" for n in range(600)]
    texts += [f"latitude BETWEEN {n} AND {n + 2}" for n in range(300)]
    texts += [f"text LIKE '%{n}%'" for n in range(100)]
    table = table_of(texts)
    told = describe_applications(MPartition.learnt(table, 4), table)
    assert told.startswith("2 applications: ")
    assert {"price, volume (60 %)", "volume, price (60 %)"} & set(
        told.removeprefix("2 applications: ").split("; ")
    )
    assert told.endswith("; latitude (30 %); the rest 10 %")
    assert describe_applications(MPartition(4), table) == "nothing tells registrations apart"
