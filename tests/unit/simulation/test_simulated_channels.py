import os
import shlex
import subprocess
from pathlib import Path

import pytest

from culver.simulation import (
    ChannelWorld,
    RedisSession,
    Scenario,
    SeededRun,
    check_replay,
    replay_command,
    run_seeds,
)
from culver.simulation.channel_scenarios import moving_channels, troubled_channels

ROOT = Path(__file__).parents[3]


def begin(servers: int = 2) -> tuple[ChannelWorld, SeededRun]:
    run = SeededRun(1)
    world = ChannelWorld(run, servers)
    run.clock.run_until(1)
    return world, run


def deliveries(run: SeededRun) -> list[tuple[object, object]]:
    return [(values[1], values[3]) for _, values in run.trace if values[0] == "deliver"]


def test_clients_publish_and_subscribe_by_channel_and_by_pattern() -> None:
    world, run = begin()
    ann, bob = world.add_client("ann"), world.add_client("bob")
    ann.subscribe(b"news")
    bob.psubscribe(b"n*")
    run.clock.run_for(4)
    first = bob.publish(b"news")
    run.clock.run_for(1)
    assert sorted(deliveries(run)) == [("ann/1", first), ("bob/1", first)]
    ann.unsubscribe(b"news")
    bob.punsubscribe(b"n*")
    run.clock.run_for(1)
    ann.publish(b"news")
    run.clock.run_for(10)
    assert len(deliveries(run)) == 2
    assert world.oracle.check(run.clock.now) == []


def test_a_message_that_a_server_drops_is_reported_by_the_client_that_misses_it() -> None:
    world, run = begin()
    ann, bob = world.add_client("ann"), world.add_client("bob")
    ann.subscribe(b"news")
    run.clock.run_for(5)
    for server in world.servers.values():
        server.redis.loses = lambda session, channel, message: channel == b"news"
    bob.publish(b"news")
    run.clock.run_for(0.1)
    for server in world.servers.values():
        server.redis.loses = None
    run.clock.run_for(10)
    assert deliveries(run) == []
    assert world.oracle.reported_losses == 1
    assert world.oracle.check(run.clock.now) == []


def test_a_loss_that_nobody_reports_is_a_violation_of_the_run() -> None:
    world, run = begin()
    ann, bob = world.add_client("ann"), world.add_client("bob")
    ann.subscribe(b"news")
    run.clock.run_for(5)

    def lose(session: RedisSession, channel: bytes, message: bytes) -> bool:
        return channel == b"news"

    for server in world.servers.values():
        server.redis.loses = lose
    bob.publish(b"news")
    run.clock.run_for(10)
    world.check()
    (text,) = run.violations
    assert "ann/1 (channel b'news') never got b'bob/1:1'" in text


def test_a_channel_moves_while_its_messages_flow() -> None:
    world, run = begin(servers=3)
    ann, bob = world.add_client("ann"), world.add_client("bob")
    ann.subscribe(b"news")
    run.clock.run_for(4)
    world.move({b"news": ((1, 2, 3),)})
    payloads = []
    for _ in range(200):
        payloads.append(bob.publish(b"news"))
        run.clock.run_for(0.02)
    run.clock.run_for(8)
    assert world.keeper.core.keeper.entries[b"news"].groups == ((1, 2, 3),)
    assert [payload for _, payload in deliveries(run)] == payloads
    assert world.oracle.check(run.clock.now) == []


def test_whatever_is_killed_comes_back_and_messages_flow_again() -> None:
    world, run = begin()
    ann, bob = world.add_client("ann"), world.add_client("bob")
    ann.subscribe(b"news")
    world.move({b"news": ((1,), (2,))})
    run.clock.run_for(5)
    world.crash_server(1)
    world.crash_server(2, silently=True)
    world.kill_dispatcher(1)
    world.kill_keeper()
    ann.kill()
    run.clock.run_for(3)
    for number in world.servers:
        world.start_server(number)
    world.start_dispatcher(1)
    world.start_keeper()
    ann.start()
    ann.subscribe(b"news")
    run.clock.run_for(20)
    payload = bob.publish(b"news")
    run.clock.run_for(1)
    assert deliveries(run)[-1] == ("ann/2", payload)
    assert world.keeper.core.keeper.entries[b"news"].groups == ((1,), (2,))


@pytest.mark.parametrize("scenario", [moving_channels, troubled_channels])
def test_no_message_is_lost_in_silence(scenario: Scenario) -> None:
    """For the first seed; `tests/integration/test_channel_simulation.py` runs hundreds."""
    run_seeds(scenario, [0])


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("scenario", [moving_channels, troubled_channels])
def test_a_seed_replays_exactly_in_this_process_and_in_another(scenario: Scenario) -> None:
    digest = check_replay(scenario, 3).digest
    command = shlex.split(replay_command(scenario, 3))
    command = command[command.index("-m") - 1 :]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"digest {digest}\n" in done.stdout
