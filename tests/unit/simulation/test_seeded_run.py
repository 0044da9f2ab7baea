import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from culver.simulation import (
    RunsDiffer,
    SeededRun,
    SeedFailed,
    check_replay,
    replay_command,
    run_seed,
    run_seeds,
    seeded_run,
)
from culver.simulation.__main__ import main
from culver.simulation.simulated_network import ConnectionEnd, LinkQuality, SimulatedNetwork

ROOT = Path(__file__).parents[3]
THIS = "tests.unit.simulation.test_seeded_run"
CALLS = count()


def coin(run: SeededRun) -> None:
    """Fails for one seed in about six."""
    random = run.random("coin")
    for _ in range(20):
        run.clock.run_for(random.random())
        run.record("toss", random.randint(1, 6))
    if random.random() < 1 / 6:
        run.violate("the coin stands on its edge")


def moody(run: SeededRun) -> None:
    run.record("steady")
    run.record("call", next(CALLS))


def moody_and_wrong(run: SeededRun) -> None:
    moody(run)
    run.violate("wrong")


def broken(run: SeededRun) -> None:
    run.record("before")
    raise KeyError("nothing there")


class Chatter:
    """Two nodes that throw a ball to and fro while links fail."""

    def __init__(self, run: SeededRun) -> None:
        self.run = run

    def opened(self, end: ConnectionEnd) -> None:
        self.run.record("opened", end.node, end.peer_node)
        end.send(1)

    def received(self, end: ConnectionEnd, message: object) -> None:
        assert isinstance(message, int)
        self.run.record("received", end.node, end.peer_node, message)
        end.send(message + 1)

    def closed(self, end: ConnectionEnd) -> None:
        self.run.record("closed", end.node, end.peer_node)


def chatter(run: SeededRun) -> None:
    random = run.random("faults")
    network = SimulatedNetwork(run.clock, run.random("network"), LinkQuality(loss=0.05))
    nodes = ["paris", "rome", "oslo"]
    for node in nodes:
        network.listen(node, lambda _: Chatter(run))
    for _ in range(30):
        source, target = random.sample(nodes, 2)
        network.connect(source, target, Chatter(run))
        run.clock.run_for(random.random())
        ends = [end for node in nodes for end in network.connections(node)]
        if ends:
            random.choice([network.reset, network.make_half_open])(random.choice(ends))
        cut = network.partition(nodes[:1], nodes[1:])
        run.clock.after(random.random(), cut.end)


def test_a_seed_gives_the_same_trace_every_time_and_seeds_differ() -> None:
    assert run_seed(coin, 3) == run_seed(coin, 3)
    assert len(set(run_seeds(chatter, range(5)))) == 5
    assert check_replay(chatter, 7).records > 500


def test_a_failing_seed_is_raised_with_its_number_and_the_command_that_runs_it_again() -> None:
    with pytest.raises(SeedFailed, match="the coin stands on its edge") as raised:
        run_seeds(coin, range(100))
    outcome = raised.value.outcome
    text = str(raised.value)
    assert f"seed {outcome.seed} of" in text
    assert "It replays exactly" in text
    assert replay_command(coin, outcome.seed) in text
    assert f"-m culver.simulation {coin.__module__}:coin --seed {outcome.seed}" in text
    assert outcome == run_seed(coin, outcome.seed)


def test_an_exception_of_the_scenario_fails_the_seed() -> None:
    with pytest.raises(SeedFailed, match="KeyError: 'nothing there'") as raised:
        run_seeds(broken, [1])
    assert isinstance(raised.value.__cause__, KeyError)


def test_runs_that_differ_are_told_with_the_first_difference() -> None:
    with pytest.raises(
        RunsDiffer, match=r"record 1 is .*'call', \d+.* in one run and .*'call', \d+.* in the other"
    ):
        check_replay(moody, 1)
    with pytest.raises(SeedFailed, match="does not replay"):
        run_seeds(moody_and_wrong, [1])


def test_the_trace_keeps_the_last_records_and_the_digest_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded_run, "KEPT_RECORDS", 10)
    short, other = SeededRun(1), SeededRun(1)
    other.record("only here")
    for number in range(30):
        short.record(number)
        other.record(number)
    assert list(short.trace) == list(other.trace) == [(0.0, (number,)) for number in range(20, 30)]
    assert short.digest != other.digest


def test_parts_of_a_world_do_not_disturb_each_others_random_numbers() -> None:
    run = SeededRun(5)
    undisturbed = run.random("faults").random()
    run.random("network").random()
    assert run.random("faults").random() == undisturbed
    assert SeededRun(6).random("faults").random() != undisturbed


def test_a_scenario_that_no_command_could_name_is_refused() -> None:
    with pytest.raises(ValueError, match="not a function of a module"):
        replay_command(lambda run: None, 1)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_command_replays_a_seed_in_another_process_whatever_the_order_of_its_sets(hash_seed: str) -> None:
    command = [sys.executable, "-m", "culver.simulation", f"{THIS}:chatter", "--seed", "7"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(f"digest {run_seed(chatter, 7).digest}")


def test_the_command_line_runs_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{THIS}:chatter", "--seeds", "0", "3"]) == 0
    assert capsys.readouterr().out == "3 seeds, no violation\n"
    assert main([f"{THIS}:coin", "--seeds", "0", "100"]) == 1
    assert "the coin stands on its edge" in capsys.readouterr().out
