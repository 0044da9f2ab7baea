"""Hundreds of seeds of simulated channels: moves, and trouble of every kind. A failing seed says how to replay it."""

import pytest

from culver.simulation import run_seeds
from culver.simulation.channel_scenarios import moving_channels, resized_channels, troubled_channels
from support.seed_parts import seed_parts


@pytest.mark.slow(seconds=6)
@seed_parts(240)
def test_troubled_channels_lose_nothing_in_silence(part: range) -> None:
    assert run_seeds(troubled_channels, part)


@pytest.mark.slow(seconds=5)
@seed_parts(40, each=10)
def test_moving_channels_lose_nothing(part: range) -> None:
    assert run_seeds(moving_channels, part)


@pytest.mark.slow(seconds=5)
@seed_parts(20, each=5)
def test_channels_whose_servers_come_and_go_lose_nothing(part: range) -> None:
    assert run_seeds(resized_channels, part)
