"""How much the benchmark of the channels measures."""

from collections.abc import Sequence
from dataclasses import dataclass

from culver.bench.channels import dynamoth_paper as paper
from culver.bench.channels.slot_migrations import MigrationWay

EXPERIMENTS = ("1", "2", "3", "reconfigurations", "analyser")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsPlan:
    """Limits are in megabits per second and server. They are so low that the servers' bandwidth and not this
    machine's cores is the bottleneck, and such that one server bears about as many clients as in the paper where
    the paper says how many."""

    experiments: Sequence[str] = EXPERIMENTS
    proxies: bool = False
    wide_area: bool = False
    client_processes: int = 2
    payload_bytes: int = 200

    figure_servers: Sequence[int] = (1, 3)
    subscriber_counts: Sequence[int] = (100, 200, 300, 400, 500, 600, 700, 800)
    subscriber_megabits: float = 15.0
    publisher_counts: Sequence[int] = (50, 100, 200, 300, 400, 500, 600, 700, 800)
    publisher_megabits: float = 6.5
    step_seconds: float = 8.0
    settle_seconds: float = 3.0

    hot_servers: Sequence[int] = (1, 2, 3, 4)
    hot_megabits: float = 2.0
    hot_clients: int = 60
    hot_seconds: float = 15.0

    overhead_rounds: int = 7
    overhead_messages: int = 20_000

    changes: int = 100
    change_seconds: float = 1.5
    change_rate: float = 5_000.0
    change_publishers: int = 8
    changed_channels: int = 40
    migration_ways: Sequence[MigrationWay] = tuple(MigrationWay)

    analyser_players: int = 300
    analyser_tiles_across: int = 16
    analyser_rate: float = 6.0
    analyser_seconds: float = 60.0

    game_megabits: float = 4.0
    tiles_across: int = 2
    first_players: int = 25
    most_players: int = 600
    players_per_second: float = 0.25
    game_servers: int = paper.SERVERS
    #: The paper's T_wait: long enough that a move has ended and the load of five seconds was measured without it.
    wait_seconds: float = 6.0
    overload_seconds: float = 30.0

    elastic_players: Sequence[int] = (90, 25, 70)
    elastic_players_per_second: float = 0.5
    elastic_hold_seconds: float = 60.0


def quick_plan(experiments: Sequence[str], *, proxies: bool, wide_area: bool) -> ChannelsPlan:
    """A plan that runs everything once with few clients, to show that it works. Its figures mean nothing."""
    return ChannelsPlan(
        experiments=experiments,
        proxies=proxies,
        wide_area=wide_area,
        client_processes=1,
        figure_servers=(2,),
        subscriber_counts=(20,),
        publisher_counts=(10,),
        step_seconds=1.0,
        settle_seconds=0.2,
        hot_servers=(2,),
        hot_clients=10,
        hot_seconds=1.0,
        hot_megabits=0.5,
        overhead_rounds=1,
        overhead_messages=500,
        changes=6,
        change_seconds=0.3,
        change_rate=400.0,
        change_publishers=2,
        changed_channels=10,
        migration_ways=(MigrationWay.SETSLOT,),
        analyser_players=10,
        analyser_tiles_across=2,
        analyser_seconds=3.0,
        game_megabits=0.5,
        tiles_across=2,
        first_players=6,
        most_players=12,
        players_per_second=2.0,
        game_servers=2,
        wait_seconds=1.0,
        overload_seconds=2.0,
        elastic_players=(8, 4, 6),
        elastic_players_per_second=2.0,
        elastic_hold_seconds=1.0,
    )
