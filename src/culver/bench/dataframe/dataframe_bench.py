"""Prepares the events and filters of each workload, and runs the contestants on them, each in its own process."""

import importlib
import multiprocessing
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from culver import Matcher
from culver.bench.bench_frame import BenchmarkFailed, Record, Tell, rounded
from culver.bench.dataframe import site_frames
from culver.bench.dataframe.dataframe_plan import (
    BARE,
    CONTESTANTS,
    JOIN,
    PROBE,
    DataframeContestant,
    DataframePlan,
    MatchingRate,
    Task,
)
from culver.bench.dataframe.event_files import event_table, write_parts
from culver.bench.matching.drawn_subscriptions import DrawnSubscriptions, Form, draw
from culver.bench.workloads import Workload, named

_SEED = 1


def run(plan: DataframePlan, tell: Tell) -> list[Record]:
    """Raises BenchmarkFailed where two contestants find a different number of pairs."""
    records: list[Record] = []
    for workload, count in plan.comparisons:
        with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as folder:
            task = _prepared(plan, workload, count, Path(folder))
            tell(f"{workload.name} with {count:,} filters is prepared")
            found: dict[str, MatchingRate] = {}
            for system in plan.systems:
                measured = _measured(CONTESTANTS[system], task, plan.limit_seconds, tell)
                if measured is not None:
                    found[system] = measured
                    tell(f"{CONTESTANTS[system].title}: {measured.events_per_second:,.0f} events/s")
        pairs = {system: each.pairs for system, each in found.items()}
        if len(set(pairs.values())) > 1:
            raise BenchmarkFailed(f"they find different pairs: {pairs}")
        records += _records(workload.name, count, plan, found)
    if plan.site_events:
        with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as folder:
            records += site_frames.run(named("W2"), plan.site_events, plan.rounds, Path(folder), tell)
    return records


def _records(
    workload: str, count: int, plan: DataframePlan, found: dict[str, MatchingRate]
) -> Iterator[Record]:
    for system in plan.systems:
        measured = found.get(system)
        yield {
            "workload": workload,
            "filters": count,
            "system": CONTESTANTS[system].title,
            "events_per_second": rounded(measured.events_per_second, 4) if measured else None,
            "us_per_event": rounded(1e6 / measured.events_per_second, 4) if measured else None,
            "matches_per_event": rounded(measured.pairs / PROBE, 4) if measured else None,
            "times_the_join": _ratio(measured, found.get(JOIN)),
            "times_the_bare_matcher": _ratio(measured, found.get(BARE)),
        }


def _ratio(one: MatchingRate | None, other: MatchingRate | None) -> float | None:
    if one is None or other is None:
        return None
    return rounded(one.events_per_second / other.events_per_second, 3)


def _measured(
    contestant: DataframeContestant, task: Task, limit_seconds: float, tell: Tell
) -> MatchingRate | None:
    """What a contestant measures in a process of its own; None if it is not installed or has not finished."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(contestant.function, task, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_seconds):
            tell(f"{contestant.title} is left out: it had not finished after {limit_seconds:.0f} s")
            return None
        found = ours.recv()
    except EOFError:
        raise BenchmarkFailed(f"the process that measures {contestant.title} died") from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if isinstance(found, ModuleNotFoundError):
        tell(f"{contestant.title} is left out: {found.name} is not installed (pip install 'culver[bench]')")
        return None
    if isinstance(found, BaseException):
        raise BenchmarkFailed(f"{contestant.title}: {found}") from found
    assert isinstance(found, MatchingRate)
    return found


def _run(function: str, task: Task, answer: Connection) -> None:
    module, _, name = function.partition(":")
    try:
        answer.send(getattr(importlib.import_module(module), name)(task))
    except ModuleNotFoundError as exc:
        answer.send(exc)
    except Exception as exc:
        answer.send(RuntimeError(f"{type(exc).__name__}: {exc}"))


# --- what the contestants read -------------------------------------------------------------------------------


def _prepared(plan: DataframePlan, workload: Workload, count: int, directory: Path) -> Task:
    sizes = [PROBE]
    while sizes[-1] < plan.most_events:
        sizes.append(min(plan.most_events, 8 * sizes[-1]))
    events = event_table(workload, sizes[-1], _SEED)
    task = Task(directory, (), tuple(sizes), plan.rounds, plan.seconds)
    for size in sizes:
        write_parts(events.slice(0, size), Path(task.events(size)))
    drawn = draw(workload, count, _SEED)
    _save(drawn, task)
    return Task(directory, tuple(map(_condition, drawn.forms)), task.sizes, plan.rounds, plan.seconds)


def _save(drawn: DrawnSubscriptions, task: Task) -> None:
    with Matcher() as matcher:
        for number, form in enumerate(drawn.forms):
            ids = [f"f{each}" for each in form.numbers.tolist()]
            values = {f"v{place}": pa.array(column) for place, column in enumerate(form.columns)}
            pq.write_table(pa.table({"id": ids, **values}), task.form(number))
            matcher.add_many(form.text, values, ids=ids)
        matcher.save(task.filters)


def _condition(form: Form) -> str:
    """Equalities first, which are what a join looks up."""
    places = sorted(range(len(form.bounds)), key=lambda place: form.bounds[place].operator != "=")
    return " AND ".join(
        f"e.{form.bounds[place].attribute} {form.bounds[place].operator} s.v{place}" for place in places
    )
