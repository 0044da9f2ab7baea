"""What `culver demo overlay` draws. tests/system runs it."""

import pytest

from culver.cli import main
from culver.cli.demo.demo_sites import free_ports
from culver.cli.demo.site_chain import NAMES, Arrival, SiteChain, way_lines


def test_chain_is_drawn_with_its_spare_link() -> None:
    assert SiteChain.of(3).drawing() == [
        "paris ---- lyon ---- bonn",
        "  |                   |",
        "  +------ cost 6 -----+",
    ]
    assert SiteChain.of(2).drawing() == ["paris ---- lyon"]


def test_each_site_dials_the_one_before_it_and_the_last_also_the_first() -> None:
    chain = SiteChain.of(4)
    assert {name: list(chain.dialled_by(name)) for name in chain.names} == {
        "paris": [],
        "lyon": [("paris", 1)],
        "bonn": [("lyon", 1)],
        "oslo": [("bonn", 1), ("paris", 7)],
    }


@pytest.mark.parametrize("count", range(3, len(NAMES) + 1))
def test_spare_link_costs_more_than_the_chain(count: int) -> None:
    chain = SiteChain.of(count)
    assert chain.spare_cost is not None
    assert chain.spare_cost > count - 1
    assert len(set(chain.names)) == count
    assert len({len(line) for line in chain.drawing()[1:]}) == 1


def test_way_of_an_event_is_told_hop_by_hop() -> None:
    paths = {"bonn": ["lyon", "bonn"], "oslo": ["lyon", "bonn", "oslo"]}
    arrivals = {"bonn": Arrival(0.009, 4), "oslo": Arrival(0.0125, 0)}
    trips = {("paris", "lyon"): 0.001, ("lyon", "bonn"): None}
    assert way_lines("paris", 0.0031, paths, trips, arrivals) == [
        "paris      0.0 ms  published",
        "           3.1 ms  acknowledged: it is on disk",
        "  |                paris sends one packet for {bonn, oslo}, over a link with a round trip of 1.0 ms",
        "lyon               in transit: stores nothing, sends it on",
        "  |                lyon sends one packet for {bonn, oslo}",
        "bonn       9.0 ms  at the subscriber, from offset 4 of the log of bonn",
        "  |                bonn sends one packet for {oslo}",
        "oslo      12.5 ms  at the subscriber, from offset 0 of the log of oslo",
    ]


def test_carriers_of_clusters_are_shown_on_the_way() -> None:
    paths = {"lyon": ["lyon"], "oslo": ["lyon", "bonn", "oslo"]}
    arrivals = {"lyon": Arrival(0.009, 4), "oslo": Arrival(0.0125, 0)}
    lines = way_lines("paris", 0.0031, paths, {}, arrivals, {"lyon", "bonn"})
    assert lines[3:6] == [
        "lyon               carrier of a cluster: matches it for the members",
        "lyon       9.0 ms  at the subscriber, from offset 4 of the log of lyon",
        "  |                lyon sends one packet for {oslo}",
    ]
    assert lines[6] == "bonn               carrier of a cluster: matches it for the members"


def test_ports_are_free_and_different() -> None:
    assert len(set(free_ports(20))) == 20


@pytest.mark.parametrize("count", ["1", "13", "x"])
def test_number_of_sites_is_limited(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "overlay", "--sites", count]) == 2
    assert "--sites" in capsys.readouterr().err
