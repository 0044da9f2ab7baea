"""What tasks of a batch are told: the report of the load, its way through a file, and the plan."""

from pathlib import Path

from culver.pipeline.batch_plan import BatchPlan, LoadFile, LoadReport


def test_a_block_is_as_long_as_its_matches_allow() -> None:
    assert LoadReport(registrations=40_000).block_events() == 65_536
    assert LoadReport(registrations=10_000_000).block_events() == 1_024, (
        "a guess, before anything is measured"
    )
    assert LoadReport(registrations=10_000_000, pairs_per_event=130.0).block_events() == 65_536
    assert LoadReport(registrations=10_000_000, pairs_per_event=33_000.0).block_events() == 1_024
    assert LoadReport(registrations=1_000_000, pairs_per_event=3_300.0).block_events() == 16_384


def test_what_was_known_before_a_restart_holds_until_something_is_measured() -> None:
    before = LoadReport("a", 5, 130.0, (1.0,), (2.0,), (0.1,), cores=2)
    unmeasured = LoadReport(registrations=10_000_000)
    assert unmeasured.or_as_before(LoadReport()).block_events() == 1_024
    known = unmeasured.or_as_before(before)
    assert (known.block_events(), known.registrations, known.rates, known.cores) == (
        65_536,
        10_000_000,
        (1.0,),
        2,
    )
    measured = LoadReport("b", 7, 3.0, (9.0,), (9.0,), (9.0,), cores=4)
    assert measured.or_as_before(before) == measured


def test_a_report_goes_through_its_file(tmp_path: Path) -> None:
    file = LoadFile(tmp_path / "load.json")
    assert file.read() == LoadReport()
    report = LoadReport("a", 5, 1.5, (1.0, 0.0), (2.0, 0.0), (0.1, 0.0), cores=3)
    file.write(report)
    assert LoadFile(tmp_path / "load.json").read() == report
    (tmp_path / "load.json").write_text('{"division": "a", "registrations": 5, "pairs_per_event": 1}')
    assert file.read() == LoadReport("a", 5, 1.0), "as of before cores were told"
    (tmp_path / "load.json").write_text('{"division": 1')
    assert file.read() == LoadReport(), "what cannot be read is not known"


def test_blocks_have_a_lower_bound_however_much_an_event_matches() -> None:
    assert LoadReport(pairs_per_event=1e12).block_events() == 1 << 10


def test_tasks_share_the_slices_and_only_alike_plans_are_joined() -> None:
    plan = BatchPlan(7, slices=5, tasks=2)
    assert [list(plan.slices_of(task)) for task in range(2)] == [[0, 2, 4], [1, 3]]
    assert plan.mark == BatchPlan(7, slices=5, tasks=2).mark
    assert plan.mark != BatchPlan(8, slices=5, tasks=2).mark
    assert plan.mark != BatchPlan(7, slices=5, tasks=2, load=LoadReport("a")).mark
