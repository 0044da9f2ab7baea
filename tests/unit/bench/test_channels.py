"""The benchmark of the channels: what it computes without any server."""

import asyncio
from random import Random

import pytest

from culver.bench.channels import dynamoth_paper as paper
from culver.bench.channels.channels_findings import ChannelFinding
from culver.bench.channels.clients import wide_area
from culver.bench.channels.clients.client_crowd import figures_of
from culver.bench.channels.clients.client_process import Crowd, CrowdReport, CrowdTask
from culver.bench.channels.clients.game_world import GameWorld, WalkingPlayer, hash_imbalance, typical_world
from culver.bench.channels.game_run import GameHistory, GameSecond
from culver.bench.channels.rate_proxy import TokenBucket
from culver.bench.channels.replication_experiment import groups_for


def history(*responses: float) -> GameHistory:
    made = GameHistory("dynamoth", "none")
    for second, response in enumerate(responses):
        made.seconds.append(GameSecond(second, 100 + second, 1, response, 0.0, 0.5, 0.5, 0))
    return made


def report(*, size: int, received: int, responses: int, response_sum: float, cpu: float = 0.1) -> CrowdReport:
    return CrowdReport(size, 0, received, responses, response_sum, 0.01, 0.02, cpu, 0.0)


def test_a_walking_player_stays_on_the_map_and_does_not_jump() -> None:
    world = GameWorld(4)
    player = WalkingPlayer(world, Random(1), 0.0)
    x, y = player.place(0.0)
    for step in range(1, 2_000):
        new_x, new_y = player.place(step / 3)
        assert 0.0 <= new_x <= 1.0
        assert 0.0 <= new_y <= 1.0
        assert ((new_x - x) ** 2 + (new_y - y) ** 2) ** 0.5 <= 1 / 3 / world.crossing_seconds + 1e-9
        x, y = new_x, new_y


def test_every_place_of_the_map_has_one_of_its_tiles() -> None:
    world = GameWorld(3)
    assert len(set(world.tiles())) == 9
    for place in (0.0, 0.34, 0.999, 1.0):
        assert world.tile(place, place) in world.tiles()


def test_tiles_in_the_middle_have_more_load_as_walks_show() -> None:
    world = GameWorld(4)
    shares = world.load_shares()
    assert sum(shares.values()) == pytest.approx(1.0)
    counts = dict.fromkeys(world.tiles(), 0)
    for seed in range(300):
        player = WalkingPlayer(world, Random(seed), 0.0)
        for step in range(20):
            counts[player.tile(step * 10.0)] += 1
    squares = sum(count**2 for count in counts.values())
    assert counts[world.tile(0.4, 0.4)] ** 2 / squares == pytest.approx(
        shares[world.tile(0.4, 0.4)], rel=0.25
    )
    assert shares[world.tile(0.4, 0.4)] > 3 * shares[world.tile(0.4, 0.0)]


def test_a_typical_world_is_the_median_for_consistent_hashing() -> None:
    chosen = hash_imbalance(typical_world(4, 8), 8)
    others = sorted(hash_imbalance(GameWorld(4, f"game{number}"), 8) for number in range(101))
    assert chosen == others[50]


def test_a_spike_is_no_overload_and_the_end_is() -> None:
    spike = history(10.0, 400.0, 20.0, 30.0)
    assert spike.overloaded_since() is None
    assert spike.borne() == 103
    end = history(10.0, 400.0, 20.0, 200.0, 300.0)
    assert end.overloaded_since() == 3
    assert end.borne() == 103


def test_figures_add_up_the_processes_and_the_seconds() -> None:
    one = [report(size=10, received=100, responses=2, response_sum=0.02) for _ in range(2)]
    other = [report(size=5, received=50, responses=2, response_sum=0.06, cpu=0.4) for _ in range(2)]
    figures = figures_of([one, other])
    assert (figures.size, figures.received, figures.responses) == (15, 150.0, 8)
    assert figures.response_ms == pytest.approx(20.0)
    assert figures.cpu == pytest.approx(0.4)
    assert figures_of([[], []]).response_ms is None


def test_wide_area_passages_have_the_mean_of_the_paper() -> None:
    random = Random(1)
    draws = [wide_area.draw_seconds(random.gauss()) for _ in range(50_000)]
    assert 2e3 * sum(draws) / len(draws) == pytest.approx(paper.USUAL_RESPONSE_MS, rel=0.02)
    assert sorted(draws)[25_000] < sum(draws) / len(draws)


def test_a_token_bucket_lets_its_rate_through() -> None:
    bucket = TokenBucket(1_000.0, 100.0, 0.0)
    assert bucket.take(100, 0.0) == 0.0
    assert bucket.take(50, 0.0) == pytest.approx(0.05)
    assert bucket.take(50, 0.0) == pytest.approx(0.1)
    assert bucket.take(100, 0.3) == 0.0


def test_both_replications_use_all_servers() -> None:
    assert groups_for("all-publishers", [1, 2, 3]) == ((1, 2, 3),)
    assert groups_for("all-subscribers", [1, 2, 3]) == ((1,), (2,), (3,))


def test_a_record_tells_the_ratio_to_the_paper() -> None:
    finding = ChannelFinding(
        experiment="2", what="players", unit="players", ours=500, paper=1_000, policy="dynamoth"
    )
    record = finding.record()
    assert (record["ours"], record["paper"], record["ratio"]) == (500, 1_000, 0.5)
    assert (record["what"], record["policy"]) == ("players", "dynamoth")


def test_a_message_tells_who_sent_it_and_when() -> None:
    async def measure() -> tuple[int, float, int]:
        crowd = Crowd(CrowdTask("players", ["http://127.0.0.1:1"], payload_bytes=200))
        payload = crowd.stamped(7)
        number, seconds = crowd.took(payload)
        await crowd.close()
        return number, seconds, len(payload)

    number, seconds, size = asyncio.run(measure())
    assert (number, size) == (7, 200)
    assert 0.0 <= seconds < 1.0
