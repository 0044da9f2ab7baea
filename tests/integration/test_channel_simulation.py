"""Hundreds of seeds of simulated channels: moves, and trouble of every kind. A failing seed says how to replay it."""

import pytest

from culver.simulation import run_seeds
from culver.simulation.channel_scenarios import moving_channels, resized_channels, troubled_channels

_SEEDS_OF_TEST = 20


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("first", range(0, 240, _SEEDS_OF_TEST))
def test_troubled_channels_lose_nothing_in_silence(first: int) -> None:
    assert run_seeds(troubled_channels, range(first, first + _SEEDS_OF_TEST))


@pytest.mark.slow(seconds=9)
@pytest.mark.parametrize("first", range(0, 40, _SEEDS_OF_TEST))
def test_moving_channels_lose_nothing(first: int) -> None:
    assert run_seeds(moving_channels, range(first, first + _SEEDS_OF_TEST))


@pytest.mark.slow(seconds=9)
@pytest.mark.parametrize("first", range(0, 20, _SEEDS_OF_TEST // 2))
def test_channels_whose_servers_come_and_go_lose_nothing(first: int) -> None:
    assert run_seeds(resized_channels, range(first, first + _SEEDS_OF_TEST // 2))
