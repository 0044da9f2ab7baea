import msgspec
import pytest
from hypothesis import given, strategies as st

from culver.channels.core.channel_plan import MoveRoute, PlanEntry, Ring, ServerAddress, single

groups = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(
    lambda sizes: tuple(
        tuple(range(sum(sizes[:place]) + 1, sum(sizes[: place + 1]) + 1)) for place in range(len(sizes))
    )
)


@given(groups, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 10_000))
def test_every_subscriber_meets_every_publication_exactly_once(
    parts: tuple[tuple[int, ...], ...], publisher: int, client: int, sequence: int
) -> None:
    entry = PlanEntry(1, parts)
    met = set(entry.publish_group(publisher, sequence)) & entry.subscribe_servers(client)
    assert len(met) == 1


def test_groups_that_overlap_or_are_empty_are_refused() -> None:
    for parts in [(), ((),), ((1, 1),), ((1,), (1, 2))]:
        with pytest.raises(ValueError, match="disjoint"):
            PlanEntry(1, parts)


def test_an_entry_is_described_in_the_words_of_the_paper() -> None:
    described = [
        PlanEntry(1, parts).describe() for parts in [((1,),), ((1,), (2,)), ((1, 2),), ((1, 2), (3,))]
    ]
    assert described == ["one server", "all subscribers", "all publishers", "both"]


def _ring(*homes: int) -> Ring:
    return Ring(1, tuple(ServerAddress(number, f"redis://h{number}") for number in homes), homes)


def test_a_ring_without_one_server_moves_only_the_channels_of_that_server() -> None:
    channels = [b"channel-%d" % number for number in range(2_000)]
    before, after = _ring(1, 2, 3, 4), _ring(1, 2, 4)
    for channel in channels:
        if before.home(channel) != 3:
            assert after.home(channel) == before.home(channel)
    shares = [sum(before.home(channel) == home for channel in channels) / 2_000 for home in (1, 2, 3, 4)]
    assert max(shares) < 0.4
    assert min(shares) > 0.1


def test_a_ring_and_a_route_survive_their_journey() -> None:
    ring = _ring(1, 2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ring), type=Ring) == ring
    route = MoveRoute(b"c", PlanEntry(4, ((2, 3),)), (single(0, 1),), active=True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(route), type=MoveRoute) == route
    assert route.servers == {1, 2, 3}
    assert route.entry_of(0) == single(0, 1)
    assert route.entry_of(3) is None
