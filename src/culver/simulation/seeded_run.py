"""Runs of a scenario that depend on a seed and on nothing else, so that a failure can be looked at again.

A scenario is a function of a module. It builds its world on the run's clock and random numbers, records what happens,
and records a violation wherever a promise is broken:

    def restless_servers(run: SeededRun) -> None:
        network = SimulatedNetwork(run.clock, run.random("network"))
        ...
        run.clock.run_until(60)

    run_seeds(restless_servers, range(300))

The order of a set of strings differs from process to process. A run that depends on it replays only where
``PYTHONHASHSEED`` is the same; a test that compares digests of two processes finds this out.
"""

import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from random import Random
from typing import NamedTuple

from culver.simulation.virtual_clock import VirtualClock

#: How many of a run's last records are kept. All of them count in the digest.
KEPT_RECORDS = 20_000
MOST_VIOLATIONS = 100
_SHOWN_RECORDS = 20

RecordValue = str | bytes | int | float | bool | None


class TraceRecord(NamedTuple):
    """Something that happened in a run."""

    time: float
    values: tuple[RecordValue, ...]

    def describe(self) -> str:
        words = (value if isinstance(value, str) else repr(value) for value in self.values)
        return f"{self.time:>12.6f}  " + " ".join(words)


class SeededRun:
    """One run: its clock, its random numbers, its trace and the violations found."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.violations: list[str] = []
        self.trace: deque[TraceRecord] = deque(maxlen=KEPT_RECORDS)
        self.records = 0
        self._digest = blake2b(digest_size=16)

    def random(self, name: str) -> Random:
        """The random numbers of one part of the world. Parts with different names do not disturb each other."""
        return Random(f"{self.seed}/{name}")

    def record(self, *values: RecordValue) -> None:
        """Adds what happens now to the trace."""
        entry = TraceRecord(self.clock.now, values)
        self.records += 1
        self._digest.update(repr(entry).encode())
        self.trace.append(entry)

    def violate(self, text: str) -> None:
        """Records that a promise is broken. The run goes on; it fails in the end."""
        self.record("violation", text)
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(f"at {self.clock.now:.6f}: {text}")

    @property
    def digest(self) -> str:
        """Two runs with the same digest have recorded the same things at the same times."""
        return self._digest.hexdigest()


Scenario = Callable[[SeededRun], None]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What one seed led to. ``error`` is what the scenario raised, if anything."""

    seed: int
    digest: str
    records: int
    trace: tuple[TraceRecord, ...]
    violations: tuple[str, ...]
    error: Exception | None

    @property
    def has_failed(self) -> bool:
        return bool(self.violations) or self.error is not None


class SeedFailed(AssertionError):
    """A seed has broken a promise. The message has the seed and the command that runs it again."""

    def __init__(self, text: str, outcome: RunOutcome) -> None:
        super().__init__(text)
        self.outcome = outcome


class RunsDiffer(AssertionError):
    """Two runs of one seed went different ways: something besides the seed has a say."""


def run_seed(scenario: Scenario, seed: int) -> RunOutcome:
    """Runs a scenario once. A failure is part of the outcome and raises nothing."""
    run = SeededRun(seed)
    error: Exception | None = None
    try:
        scenario(run)
    except Exception as raised:
        error = raised
        run.record("error", type(raised).__name__, str(raised))
    return RunOutcome(seed, run.digest, run.records, tuple(run.trace), tuple(run.violations), error)


def run_seeds(scenario: Scenario, seeds: Iterable[int]) -> list[str]:
    """Runs a scenario once for each seed, and returns the digests.

    :raises SeedFailed: at the first seed that fails, after it was run a second time to see that it replays.
    """
    return [_run_checked(scenario, seed).digest for seed in seeds]


def check_replay(scenario: Scenario, seed: int) -> RunOutcome:
    """Runs a seed twice and returns the outcome.

    :raises RunsDiffer: the two traces are not the same; the message has the first difference.
    """
    first, second = run_seed(scenario, seed), run_seed(scenario, seed)
    if first.digest == second.digest:
        return first
    difference = "it lies before what the traces keep"
    if first.records <= KEPT_RECORDS and second.records <= KEPT_RECORDS:
        number, one, other = next(
            (number, one, other)
            for number, (one, other) in enumerate(zip_longest(first.trace, second.trace))
            if one != other
        )
        difference = f"record {number} is {one} in one run and {other} in the other"
    raise RunsDiffer(f"seed {seed} of {_name_of(scenario)} does not replay: {difference}")


def replay_command(scenario: Scenario, seed: int) -> str:
    """The command that runs one seed again and prints its trace, from the root of the source tree."""
    hash_seed = os.environ.get("PYTHONHASHSEED")
    setting = f"PYTHONHASHSEED={hash_seed} " if hash_seed else ""
    python = shlex.quote(sys.executable)
    return f"{setting}{python} -m culver.simulation {_name_of(scenario)} --seed {seed}"


def _run_checked(scenario: Scenario, seed: int) -> RunOutcome:
    outcome = run_seed(scenario, seed)
    if not outcome.has_failed:
        return outcome
    try:
        check_replay(scenario, seed)
        replays = "It replays exactly"
    except RunsDiffer as differ:
        replays = str(differ)
    found = [*outcome.violations]
    if outcome.error is not None:
        found.append(f"{type(outcome.error).__name__}: {outcome.error}")
    lines = [
        f"seed {seed} of {_name_of(scenario)} has failed:",
        *(f"  {text}" for text in found[:_SHOWN_RECORDS]),
        f"{replays}. Run it again with",
        f"  {replay_command(scenario, seed)}",
        "The last records before the end:",
        *(f"  {record.describe()}" for record in outcome.trace[-_SHOWN_RECORDS:]),
    ]
    raise SeedFailed("\n".join(lines), outcome) from outcome.error


def _name_of(scenario: Scenario) -> str:
    """``module:function``, as the command line takes it."""
    name: str = getattr(scenario, "__qualname__", "<")
    if "<" in name:
        raise ValueError(f"{scenario} is not a function of a module, so no command could run it again")
    return f"{scenario.__module__}:{name}"
