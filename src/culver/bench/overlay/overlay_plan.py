"""How much the benchmark of the overlay measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from culver.bench.overlay import bdrp_paper as paper

FIGURES = ("2", "3", "4", "5", "6", "7")
FIGURES_OF_PAPER = {"b-drp": FIGURES, "clusters": ("2", "3"), "gossip": ()}
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySetting:
    """Sites have `links` links each, counted at one end, and `predicates` predicates of so many `conjunctions`. Each
    site publishes `burst` events at a time."""

    name: str
    links: float = 1.2
    delay_seconds: float = 0.01
    predicates: int = 1
    conjunctions: int = 20
    burst: int = 1


STRATEGY_SETTINGS = (
    StrategySetting(name="wide area"),
    StrategySetting(name="wide area, few want an event", conjunctions=2),
    StrategySetting(name="wide area, many want an event", predicates=10),
    StrategySetting(name="wide area, 10 events at a time", burst=10),
    StrategySetting(name="near one another", links=4.0, delay_seconds=0.001),
)
"""Wide areas have as many links a site as the 42 brokers of the paper about B-DRP, and delays of 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayPlan:
    """Rates are messages a second of all clients together."""

    figures: Sequence[str] = FIGURES
    # Bytes on links, and tables of predicates: beside the paper's figures.
    compares_routing: bool = True
    data_dir: Path | None = None  # where real sites keep their files; None: the system's temporary directory

    # Simulated brokers.
    cost_events: int = 8_000
    messages: int = 1_000  # that all messages are drawn from
    networks: Sequence[int] = paper.NETWORKS
    link_counts: Sequence[int] = (8, 10, 12, 14)  # of 8 brokers
    ramp_seconds: int = 40
    constant_rates: Sequence[int] = paper.CONSTANT_RATES
    constant_seconds: int = 10
    large_network: int = paper.LARGE_NETWORK
    large_messages: int = 120
    large_rate: float = 10.0 * paper.LARGE_CLIENTS
    clients_per_broker: Sequence[int] = (10, 20, paper.MOST_CLIENTS_PER_BROKER)
    filter_counts: Sequence[int] = (10, 20, 40)
    constraint_counts: Sequence[int] = (1, 2, 5)
    link_capacities: Sequence[int] = (
        paper.SLOW_LINK_BYTES_PER_SECOND, paper.LINK_BYTES_PER_SECOND, 10 * paper.LINK_BYTES_PER_SECOND,
    )  # fmt: skip

    # Real brokers: as many as this machine bears beside their clients.
    real_networks: Sequence[int] = (1, 2, 4)
    real_seconds: float = 20.0
    real_rate: float = 1_000.0
    single_rate: float = 1_500.0

    # Ways to route, on W3.
    traffic_sites: int = paper.LARGE_NETWORK
    traffic_events: int = 1_260
    predicates_per_site: Sequence[int] = (1, 2, 5, 10)
    reach_events: int = 2_048
    table_sites: int = 1_000
    table_events: int = 8_192
    table_rounds: int = 7

    # The two ways to route of production. Events are those of each site.
    strategy_settings: Sequence[StrategySetting] = STRATEGY_SETTINGS
    strategy_sites: Sequence[int] = (5, 10, 25, 50, 100)
    strategy_events: int = 10
    strategy_changes: int = 10

    # Members of the overlay's gossip.
    gossip_members: Sequence[int] = (10, 30, 100, 300, 1_000)
    gossip_seeds: int = 5
    gossip_seconds: float = 120.0

    # Brokers in clusters.
    cluster_seconds: int = 60
    cluster_settling_seconds: int = 60
    cluster_seeds: Sequence[int] = (2, 3, 4, 5)
    cluster_exponents: Sequence[float] = (1.1, 1.2)  # of Zipf's law, beside 1
    cluster_reliefs: Sequence[float] = (0.5, 0.7, 0.75)  # shares of R, beside the setting's
    cluster_counts: Sequence[int] = (*range(1, 31), *range(35, 101, 5))
    cluster_traffics: Sequence[tuple[int, int, float]] = (
        (200, 50, 0.1), (200, 200, 0.1), (200, 1_000, 0.1), (200, 200, 0.5), (200, 200, 0.7), (200, 1_000, 0.7),
    )  # fmt: skip
    # The matching ratios of busy brokers and of the others, and how many subscriptions there are.
    origin_traffics: Sequence[tuple[float, float, int]] = (
        (0.05, 0.9, 10), (0.05, 0.9, 100), (0.05, 0.9, 1_000), (0.05, 0.9, 10_000),
        (0.9, 0.05, 10), (0.9, 0.05, 100), (0.9, 0.05, 1_000), (0.9, 0.05, 10_000),
    )  # fmt: skip


def quick_plan(figures: Sequence[str], compares_routing: bool, data_dir: Path | None = None) -> OverlayPlan:
    """A plan that runs everything once, on little data, to show that it works. Its figures mean nothing."""
    return OverlayPlan(
        figures=figures,
        compares_routing=compares_routing,
        data_dir=data_dir,
        cost_events=200,
        messages=100,
        networks=(1, 8),
        link_counts=(8, 12),
        ramp_seconds=3,
        constant_rates=(1_600,),
        constant_seconds=2,
        large_network=8,
        large_messages=20,
        large_rate=200.0,
        clients_per_broker=(10,),
        filter_counts=(20,),
        constraint_counts=(2,),
        link_capacities=(paper.SLOW_LINK_BYTES_PER_SECOND,),
        real_networks=(2,),
        real_seconds=1.0,
        real_rate=50.0,
        single_rate=50.0,
        traffic_sites=4,
        traffic_events=40,
        predicates_per_site=(1, 2),
        reach_events=256,
        table_sites=50,
        table_events=512,
        table_rounds=1,
        strategy_settings=STRATEGY_SETTINGS[:1],
        strategy_sites=(5,),
        strategy_events=4,
        strategy_changes=2,
        gossip_members=(10, 30),
        gossip_seeds=1,
        gossip_seconds=5.0,
        cluster_seconds=1,
        cluster_settling_seconds=1,
        cluster_seeds=(2,),
        cluster_exponents=(),
        cluster_reliefs=(),
        cluster_counts=(1, 10, 100),
        cluster_traffics=((20, 20, 0.5),),
        origin_traffics=((0.05, 0.9, 10),),
    )
