from dataclasses import replace

from culver.placement.auto import Measured, choose
from culver.plugins import PLACEMENTS

GB = 1_000_000_000
SMALL = Measured(
    index_bytes=4_600_000, worker_bytes=2 * GB, workers=4, match_seconds=5e-6, selective_share=0.85
)
LARGE = replace(SMALL, index_bytes=2 * GB)


def test_an_index_that_fits_is_replicated() -> None:
    choice = choose(SMALL)
    assert (choice.name, choice.slices) == ("replicated", 4)
    assert choice.reason == (
        "replicated: the index of 4.6 MB fits into each worker's 2 GB, and so every event is matched once, by any of "
        "the 4 workers"
    )


def test_a_large_index_with_a_selective_dimension_is_divided_by_it() -> None:
    choice = choose(LARGE)
    assert (choice.name, choice.slices) == ("event-space", 4)
    assert "tells 85 % of the registrations apart" in choice.reason
    assert "725 MB" in choice.reason


def test_a_large_index_without_one_is_hashed() -> None:
    choice = choose(replace(LARGE, selective_share=0.1))
    assert (choice.name, choice.slices) == ("hashed", 4)
    assert "each of 4 slices holds 500 MB, and every event goes to all" in choice.reason


def test_where_parts_do_not_fit_either_the_reason_says_how_many_workers_would_do() -> None:
    choice = choose(replace(LARGE, index_bytes=9 * GB))
    assert choice.name == "hashed"
    assert choice.reason.endswith("that is still too much, 9 workers would do")


def test_one_worker_has_nothing_to_divide() -> None:
    assert choose(replace(SMALL, workers=1)).slices == 1
    choice = choose(replace(LARGE, workers=1))
    assert (choice.name, choice.slices) == ("replicated", 1)
    assert "with 2 workers it could be divided" in choice.reason


def test_whatever_is_chosen_exists_and_begins_its_reason() -> None:
    for index_bytes in (0, 10**6, 10**9, 10**12):
        for workers in (1, 2, 64):
            for share in (0.0, 0.5, 1.0):
                choice = choose(Measured(index_bytes, GB, workers, 1e-6, share))
                assert choice.name in PLACEMENTS
                assert choice.reason.startswith(f"{choice.name}: ")
