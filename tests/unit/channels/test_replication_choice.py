from dataclasses import replace

from hypothesis import given, strategies as st

from culver.channels.core.balance.load_estimate import ChannelDemand
from culver.channels.core.balance.replication_choice import (
    ONE_SERVER,
    ReplicaShape,
    ReplicationChoice,
    shape_of,
)
from culver.channels.core.balance.server_capacity import LoadThresholds, ServerCapacity

MB = 1e6


def _choice(most_servers: int = 8) -> ReplicationChoice:
    return ReplicationChoice(ServerCapacity(bandwidth=10 * MB), LoadThresholds(), most_servers)


def _demand(
    publications: float, subscribers: int, megabytes: float, cpu_in: float = 0.0, cpu_out: float = 0.0
) -> ChannelDemand:
    sent = publications * subscribers
    return ChannelDemand(publications, subscribers, sent, megabytes * MB, cpu_in, cpu_out)


def test_a_channel_that_one_server_bears_is_not_replicated() -> None:
    assert _choice().needed(_demand(1000, 10, 8.5), ONE_SERVER) == ONE_SERVER


def test_many_publications_for_few_subscribers_use_all_subscribers_replication() -> None:
    assert _choice().needed(_demand(50_000, 1, 20), ONE_SERVER) == ReplicaShape(groups=3, width=1)


def test_few_publications_for_many_subscribers_use_all_publishers_replication() -> None:
    assert _choice().needed(_demand(10, 5000, 20), ONE_SERVER) == ReplicaShape(groups=1, width=3)


def test_many_publications_for_many_subscribers_use_a_grid() -> None:
    assert _choice().needed(_demand(1000, 1000, 29), ONE_SERVER) == ReplicaShape(groups=2, width=2)


def test_all_subscribers_replication_wins_a_tie_as_in_the_paper() -> None:
    assert _choice().needed(_demand(1000, 1000, 14), ONE_SERVER) == ReplicaShape(groups=2, width=1)


def test_a_foreign_publisher_knows_one_server_so_subscribers_use_all() -> None:
    foreign = replace(_demand(10, 5000, 20), foreign=True)
    assert _choice().needed(foreign, ONE_SERVER) == ReplicaShape(groups=3, width=1)
    assert _choice().needed(foreign, ReplicaShape(groups=1, width=3)) == ReplicaShape(groups=3, width=1)


def test_a_fan_out_that_takes_long_is_divided_though_the_load_is_low() -> None:
    demand = _demand(0.1, 7000, 0.1, cpu_out=0.007)
    assert _choice().needed(demand, ONE_SERVER) == ReplicaShape(groups=1, width=2)


def test_a_server_does_not_take_all_the_connections_that_redis_allows() -> None:
    assert _choice().needed(_demand(0, 20_000, 0), ONE_SERVER).width == 3


def test_publications_that_cost_cpu_need_groups_and_not_wider_ones() -> None:
    shape = _choice().needed(_demand(1_000, 1_000, 0.1, cpu_in=1.5, cpu_out=0.1), ONE_SERVER)
    assert shape.groups >= 3


def test_a_channel_keeps_its_servers_until_far_fewer_are_enough() -> None:
    three = ReplicaShape(3, 1)
    assert _choice().needed(_demand(50_000, 1, 12), three) == three
    assert _choice().needed(_demand(50_000, 1, 8.9), three) == ReplicaShape(2, 1)
    assert _choice().needed(_demand(50_000, 1, 4), three) == ONE_SERVER


def test_without_enough_servers_the_shape_that_strains_least_is_taken() -> None:
    assert _choice(most_servers=2).needed(_demand(50_000, 1, 90), ONE_SERVER) == ReplicaShape(2, 1)


def test_groups_that_lost_a_server_count_by_the_narrowest() -> None:
    assert shape_of(((1, 2), (3,))) == ReplicaShape(2, 1)


demands = st.builds(
    _demand,
    st.floats(0, 1e5),
    st.integers(0, 50_000),
    st.floats(0, 200),
    st.floats(0, 3),
    st.floats(0, 3),
)


@given(demands, st.integers(1, 9))
def test_a_choice_is_stable_while_the_demand_is(demand: ChannelDemand, most: int) -> None:
    """No flapping: what was chosen for a demand is kept for the same demand."""
    choice = _choice(most)
    chosen = choice.needed(demand, ONE_SERVER)
    assert chosen.servers <= most
    again = choice.needed(demand, chosen)
    assert again == chosen or choice.needed(demand, again) == again
