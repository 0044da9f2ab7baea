"""What every engine does: it follows the head, and hands every range to the sink, once, in order."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from culver import plugins
from culver.config import CHOICES, LogSettings
from culver.errors import InvalidConfiguration
from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.spark.signals import SignalSender
from culver.pipeline.spark.spark_engine import SparkEngine
from support.engine_bench import EngineBench, events
from support.logs import damage_record, last_segment, records_of
from support.until import settled, until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(
    scope="module",
    params=[
        "inline",
        pytest.param(
            "spark",
            marks=[pytest.mark.spark, pytest.mark.slow(seconds=3), pytest.mark.together("spark engine")],
        ),
    ],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[EngineBench, Run]]:
    """One engine for all tests of this module, because Spark takes long to start. Its tasks run while a test does."""
    directory = tmp_path_factory.mktemp("engine")
    with (
        asyncio.Runner() as runner,
        closing(plugins.open_log((directory / "log").as_uri(), LogSettings())) as log,
    ):
        bench = EngineBench(request.param, directory, log)

        async def start() -> None:
            assert (bench.engine.ready, bench.engine.state) == (False, "starting")
            await bench.engine.start()
            assert not bench.engine.ready, "it returns before the engine is ready"
            await bench.done()

        runner.run(start())
        yield bench, runner.run
        runner.run(bench.engine.stop())


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """The engine keeps files open from one test to the next."""


@pytest.fixture
def bench(running: tuple[EngineBench, Run]) -> EngineBench:
    return running[0]


@pytest.fixture
def run(running: tuple[EngineBench, Run]) -> Run:
    return running[1]


def expected(bench: EngineBench, values: list[int]) -> list[set[int]]:
    return [{number for number in bench.registered if value >= number} for value in values]


def test_engine_has_its_name_in_the_table_and_tells_how_it_is(bench: EngineBench) -> None:
    assert plugins.engine_named(bench.engine.name) is type(bench.engine)
    assert (bench.engine.ready, bench.engine.state) == (True, "running")
    assert bench.engine.parallelism(bench.settings) == 1
    assert bench.progress, "it tells how far its start has come"


def test_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfiguration, match="unknown engine 'abacus'; known: inline, spark") as caught:
        plugins.engine_named("abacus")
    assert caught.value.field == "pipeline.engine"
    assert set(CHOICES["pipeline.engine"]) == set(plugins.ENGINES)


def test_every_event_below_the_head_reaches_the_sink_with_its_registrations(
    bench: EngineBench, run: Run
) -> None:
    async def scenario() -> None:
        bench.register(5, 20)
        values = [4, 10, 30, *range(2_000)]  # more than one range
        first = bench.commit(events(values))
        await bench.done()
        reached = [bench.reached[first + i] for i in range(len(values))]
        assert reached == expected(bench, values)

    run(scenario())


def test_events_behind_the_head_wait_for_the_index_version_that_comes_with_them(
    bench: EngineBench, run: Run
) -> None:
    async def scenario() -> None:
        first = bench.log.append(events([50]))
        bench.register(40)
        assert first not in bench.reached
        bench.move(log_end=bench.log.next_offset)
        await bench.done()
        assert bench.reached[first] == expected(bench, [50])[0]
        assert 40 in bench.reached[first]

    run(scenario())


def test_events_that_were_foreseen_count_for_nothing_until_they_are_in_the_log(
    bench: EngineBench, run: Run
) -> None:
    async def scenario() -> None:
        bench.register(60)
        bench.foresee([70])  # this commit fails
        first = bench.commit(bench.foresee([1, 61]))
        await bench.done()
        assert [bench.reached[first], bench.reached[first + 1]] == expected(bench, [1, 61])
        bench.engine.foresee(bench.log.next_offset, [])  # a commit of many events
        second = bench.commit(events([62]))
        await bench.done()
        assert bench.reached[second] == expected(bench, [62])[0]

    run(scenario())


def test_range_that_the_sink_refuses_comes_again(bench: EngineBench, run: Run) -> None:
    async def scenario() -> None:
        bench.refusing = True
        first = bench.commit(events([7]))
        await until(lambda: bench.refused > 0)
        assert first not in bench.reached
        bench.refusing = False
        await bench.done()
        assert bench.reached[first] == expected(bench, [7])[0]
        assert bench.engine.state == "running"

    run(scenario())


def test_batch_that_is_damaged_before_it_is_matched_reaches_all_registrations_at_its_last_event(
    bench: EngineBench, run: Run
) -> None:
    async def scenario() -> None:
        bench.register(80)
        firsts = [bench.log.append(events([each, 90, 1])) for each in (0, 81, 100)]
        bench.log.append([each for _ in range(70) for each in events([5])])  # more than a log keeps in memory
        directory = bench.files.log
        [record] = [each for each in records_of(last_segment(directory)) if each.offset == firsts[1]]
        damage = damage_record(last_segment(directory), record)
        bench.move(log_end=bench.log.next_offset)
        await bench.done()
        for first, values in ((firsts[0], [0, 90, 1]), (firsts[2], [100, 90, 1, 5])):
            assert [bench.reached[first + i] for i in range(len(values))] == expected(bench, values)
        assert [bench.reached[firsts[1] + i] for i in range(3)] == [set(), set(), set(bench.registered)]
        assert bench.damage == [damage]
        assert (bench.engine.ready, bench.engine.state) == (True, "running")

    run(scenario())


def test_observation_counts_the_events_that_were_handed_on(bench: EngineBench, run: Run) -> None:
    async def scenario() -> None:
        before = bench.engine.observe()
        bench.commit(events([1, 2, 3]))
        await bench.done()
        after = bench.engine.observe()
        assert (before.position, after.position) == (bench.head.log_end - 3, bench.head.log_end)
        assert after.blocks > before.blocks
        assert sum(each.events for each in after.slices) - sum(each.events for each in before.slices) == 3
        assert (after.ahead, after.waiting_files) == (0, 0)

    run(scenario())


def test_batches_go_by_the_load_that_was_told(bench: EngineBench, run: Run) -> None:
    async def scenario() -> None:
        bench.engine.tell(LoadReport(registrations=1_000))
        bench.engine.tell(bench.engine.observe().load)
        first = bench.commit(events([25]))
        await bench.done()
        assert bench.reached[first] == expected(bench, [25])[0]

    run(scenario())


def test_engine_whose_process_dies_is_not_ready_until_the_next_one_works(
    bench: EngineBench, run: Run
) -> None:
    engine = bench.engine
    if not isinstance(engine, SparkEngine):
        pytest.skip("it has no process of its own")

    async def scenario() -> None:
        await bench.done()
        late = SignalSender(engine.signals_path)
        children = psutil.Process().children()
        [driver] = [each for each in children if "culver.pipeline.spark.driver" in each.cmdline()]
        [machine] = driver.children()
        machine.kill()
        while engine.state == "running" or driver.is_running():
            assert engine.ready == (engine.state == "running")
            await asyncio.sleep(0)
        late.send("warm")  # from a worker that has outlived its driver
        await settled()
        assert not engine.ready
        assert "no driver" in engine.state
        late.close()

    run(scenario())


def test_new_engine_continues_at_the_frontier_of_the_one_that_stopped(bench: EngineBench, run: Run) -> None:
    async def scenario() -> None:
        await bench.engine.stop()
        assert (bench.engine.ready, bench.engine.state) == (False, "stopped")
        first = bench.commit(events([8, 80]))  # the old engine still hears of the head
        assert first not in bench.reached
        bench.new_engine()
        bench.move()  # and the new one before it starts
        await bench.engine.start()
        await bench.done()
        assert [bench.reached[first], bench.reached[first + 1]] == expected(bench, [8, 80])

    run(scenario())
