"""The balancer under a game whose players walk from tile to tile, on a model of the servers."""

from statistics import median

import pytest

from culver.bench.channels.clients.game_world import typical_world
from culver.channels.core.balance.channel_balancer import BalancerSettings
from support.fluid_game import BalancedGame, HashedGame

_SERVERS = 8
_SEEDS = range(3)


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize(("tiles_across", "more"), [(2, 1.8), (3, 1.5)])
def test_the_balancer_bears_many_more_players_than_consistent_hashing(tiles_across: int, more: float) -> None:
    world = typical_world(tiles_across, _SERVERS)
    settings = BalancerSettings(max_servers=_SERVERS)
    balanced = [BalancedGame(world, settings, seed).borne() for seed in _SEEDS]
    hashed = [HashedGame(world, settings, seed).borne() for seed in _SEEDS]
    assert median(balanced) >= more * median(hashed), (balanced, hashed)
