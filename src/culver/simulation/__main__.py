"""Runs one seed of a scenario again with its trace, or many seeds.

    python -m culver.simulation MODULE:SCENARIO --seed 17
    python -m culver.simulation MODULE:SCENARIO --seeds 0 10000

The second form runs the seeds from 0 to 9999 and stops at the first that fails.
"""

import argparse
import pkgutil
import sys
from collections.abc import Iterator

from culver.simulation.seeded_run import Scenario, SeedFailed, run_seed, run_seeds

_TOLD_SEEDS = 500


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if no seed fails, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m culver.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("scenario", help="MODULE:FUNCTION")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed and print what it records")
    which.add_argument(
        "--seeds", type=int, nargs=2, metavar=("FIRST", "END"), help="run all seeds from FIRST"
    )
    options = parser.parse_args(arguments)
    scenario: Scenario = pkgutil.resolve_name(options.scenario)
    if options.seed is not None:
        return _show(scenario, options.seed)
    try:
        digests = run_seeds(scenario, _counted(range(*options.seeds)))
    except SeedFailed as failed:
        sys.stdout.write(f"{failed}\n")
        return 1
    sys.stdout.write(f"{len(digests)} seeds, no violation\n")
    return 0


def _counted(seeds: range) -> Iterator[int]:
    """Tells on standard error how far a long run is."""
    for done, seed in enumerate(seeds):
        if done and done % _TOLD_SEEDS == 0:
            sys.stderr.write(f"{done:,} of {len(seeds):,} seeds\n")
        yield seed


def _show(scenario: Scenario, seed: int) -> int:
    outcome = run_seed(scenario, seed)
    if outcome.records > len(outcome.trace):
        sys.stdout.write(f"... the first {outcome.records - len(outcome.trace)} records are left out\n")
    for record in outcome.trace:
        sys.stdout.write(f"{record.describe()}\n")
    sys.stdout.write(f"seed {seed}, {outcome.records} records, digest {outcome.digest}\n")
    for violation in outcome.violations:
        sys.stdout.write(f"violation {violation}\n")
    if outcome.error is not None:
        raise outcome.error
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
