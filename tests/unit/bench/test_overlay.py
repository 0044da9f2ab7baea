"""`culver bench overlay`: networks, routes and queues against what is known of them, and the records of a run."""

from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from culver.bench.bench_command import overlay as overlay_command
from culver.bench.overlay import bdrp_paper as paper, large_network, simulated_figures
from culver.bench.overlay.broker_queues import run_queues
from culver.bench.overlay.broker_topologies import SQUARE, Topology, paper_topology, waxman
from culver.bench.overlay.client_workload import SINGLE, SPREAD, ClientWorkload, WorkloadDraw
from culver.bench.overlay.overlay_bench import PAPERS
from culver.bench.overlay.overlay_findings import SIMULATED, OverlayFinding
from culver.bench.overlay.overlay_plan import FIGURES, quick_plan
from culver.bench.overlay.packet_routes import (
    B_DRP,
    FLOODING,
    BrokerNetwork,
    RouteTable,
    packet_bytes,
    route_table,
)
from culver.bench.overlay.real_sites.broker_costs import BrokerCosts
from culver.bench.overlay.real_sites.client_ramp import Ramp
from culver.bench.overlay.routing_comparison.site_reach import sites_reached
from culver.bench.overlay.routing_comparison.site_traffic import PACKETS, count_traffic, wanted_events
from culver.bench.overlay.simulated_figures import UNDELIVERED, SimulatedFigures
from culver.bench.workloads import named
from culver.config import UNLIMITED_FILTERS
from culver.model.language import parse
from culver.simulation import ROUTING_POLICIES

COSTS = BrokerCosts(take=100e-6, deliver=5e-6, send=20e-6, receive=80e-6, forward=10e-6)
MEMBERS = [
    "experiment", "what", "policy", "brokers", "clients", "setting", "rate", "paper", "ours", "unit", "how",
    "target", "met", "note",
]  # fmt: skip


# --- networks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("brokers", "diameter"), [(1, 0), (2, 1), (4, 2), (8, 3), (42, 11)])
def test_networks_have_the_diameters_of_the_paper(brokers: int, diameter: int) -> None:
    made = paper_topology(brokers, 1)
    assert (made.brokers, made.diameter) == (brokers, diameter)
    assert made.is_connected
    assert made == paper_topology(brokers, 1)


def test_four_brokers_are_a_square_with_one_diagonal() -> None:
    assert paper_topology(4, 1).links == SQUARE
    assert sorted(map(len, paper_topology(4, 1).neighbours())) == [2, 2, 3, 3]


def test_another_seed_gives_another_network_of_the_same_diameter() -> None:
    one, other = paper_topology(42, 1), paper_topology(42, 2)
    assert one != other
    assert one.diameter == other.diameter


def test_a_diameter_that_no_network_has_is_refused() -> None:
    with pytest.raises(ValueError, match="diameter 9"):
        waxman(4, 4, 9, 1)


# --- routes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", [2, 4, 8, 42])
def test_a_packet_reaches_each_destination_once_by_a_shortest_way(brokers: int) -> None:
    network = BrokerNetwork(paper_topology(brokers, 1))
    wanted = frozenset(range(0, brokers, 2))
    for origin in range(brokers):
        hops = network.partitioned(origin, wanted)
        assert Counter(hop.broker for hop in hops if hop.is_wanted) == Counter(wanted - {origin})
        assert max(Counter(hop.link for hop in hops).values(), default=1) == 1
        for place, hop in enumerate(hops):
            length, at = 1, place
            while hops[at].parent >= 0:
                length, at = length + 1, hops[at].parent
            assert length == len(network.way_back(hop.broker, origin))


@pytest.mark.parametrize("brokers", [2, 4, 8, 42])
def test_a_flooded_message_crosses_links_as_often_as_the_formula_says(brokers: int) -> None:
    topology = paper_topology(brokers, 1)
    network = BrokerNetwork(topology)
    for origin in range(brokers):
        hops = network.flooded(origin)
        assert len(hops) == topology.flooded_copies
        assert Counter(hop.broker for hop in hops if not hop.is_known) == Counter(
            set(range(brokers)) - {origin}
        )


def test_a_destination_more_makes_a_packet_longer() -> None:
    few, many = packet_bytes(1, 1, 200), packet_bytes(8, 1, 200)
    assert 200 < few < many
    assert packet_bytes(1, 1, 300) == few + 100 + 1  # its length takes one byte more


# --- queues -------------------------------------------------------------------------------------------


def _single_queue(seconds: float) -> RouteTable:
    def whole(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    none, nothing = whole(), np.zeros(0)
    return RouteTable(
        1, 1, 0, np.array([seconds]), whole(1), whole(0, 0), whole(0), none, none, none, nothing, none, none, none,
        none, whole(0, 0), none, 0,
    )  # fmt: skip


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_lone_broker_is_an_m_d_1_queue(load: float) -> None:
    service = 0.01
    run = run_queues(_single_queue(service), lambda times: np.full(len(times), load / service), 2_000, 1e6, 5)
    expected = service + load * service / (2 * (1 - load))  # Pollaczek and Khinchine
    assert run.mean_delay_seconds == pytest.approx(expected, rel=0.05)
    assert run.undelivered_percent == 0


def test_an_overloaded_broker_delivers_what_it_can_and_the_rest_is_late() -> None:
    run = run_queues(_single_queue(0.01), lambda times: np.full(len(times), 200.0), 20, 1e6, 5)
    assert run.delivered[1:].tolist() == pytest.approx([100] * 19, abs=1)
    assert run.undelivered_percent > 80


def test_a_link_carries_no_more_than_its_bandwidth() -> None:
    drawn = WorkloadDraw(replace(SPREAD, clients=20), 50, 1).spread(2)
    table = route_table(BrokerNetwork(paper_topology(2, 1)), drawn, FLOODING, COSTS)
    run = run_queues(table, lambda times: np.full(len(times), 2_000.0), 4, 100_000, 1)
    assert run.link_bytes.max() <= 100_000 + table.hop_bytes.max()
    assert run.link_bytes[1:].min() > 95_000
    assert run.undelivered_percent > 0


def test_every_delivery_is_due_once_whatever_the_policy() -> None:
    drawn = WorkloadDraw(replace(SPREAD, clients=40), 60, 1).spread(8)
    network = BrokerNetwork(paper_topology(8, 1))
    runs = [
        run_queues(
            route_table(network, drawn, policy, COSTS), lambda times: np.full(len(times), 100.0), 5, 1e7, 3
        )
        for policy in (B_DRP, FLOODING)
    ]
    assert runs[0].due.tolist() == runs[1].due.tolist()
    assert [run.undelivered_percent for run in runs] == [0, 0]
    assert runs[0].all_bytes < runs[1].all_bytes


# --- the paper's workload -----------------------------------------------------------------------------


def test_messages_are_for_as_many_clients_and_brokers_as_in_the_paper() -> None:
    drawn = WorkloadDraw(SPREAD, 1_000, 1).spread(8)
    assert drawn.client_replication == pytest.approx(paper.CLIENT_REPLICATION, rel=0.1)
    assert drawn.broker_replication == pytest.approx(paper.BROKER_REPLICATION, rel=0.1)
    assert WorkloadDraw(SINGLE, 500, 1).spread(1).client_replication == pytest.approx(
        paper.SINGLE_REPLICATION, rel=0.1
    )


def test_encoded_predicates_reach_every_broker_that_has_a_client() -> None:
    drawn = WorkloadDraw(SPREAD, 300, 1).spread(8)
    assert np.all(drawn.reached[drawn.counts > 0])


def test_messages_have_ten_attributes_of_which_three_in_five_are_strings() -> None:
    workload = ClientWorkload(clients=1, filters=1, names=300)
    messages = workload.messages(500, 1)
    assert {len(message) for message in messages} == {10}
    values = [value for message in messages for value in message.values()]
    assert sum(isinstance(value, str) for value in values) / len(values) == pytest.approx(0.6, abs=0.03)


def test_a_ramp_sends_as_many_messages_as_its_rates_say() -> None:
    ramp = Ramp(10.0, 1_000.0, 20.0)
    times = ramp.times()
    assert len(times) == ramp.count == 10_100
    assert np.all(np.diff(times) > 0)
    by_second = np.bincount(times.astype(int), minlength=20)
    assert by_second[0] == pytest.approx(10 + 49.5 / 2, abs=2)
    assert by_second[-1] == pytest.approx(1_000 - 49.5 / 2, abs=2)


# --- ways to route ------------------------------------------------------------------------------------


def test_ways_to_route_differ_in_what_they_send_and_none_loses_anything() -> None:
    workload, topology, events = named("W3"), Topology(5, ((0, 1), (1, 2), (2, 3), (3, 4), (0, 4))), 60
    predicates = [parse(text, UNLIMITED_FILTERS) for text in workload.filters(5, 3)]
    payloads = [
        b"%08d" % at + msgspec.json.encode(event) for at, event in enumerate(workload.events(events, 3))
    ]
    batch = workload.event_batch(events, 3)
    found = {
        name: count_traffic(policy, topology, payloads, batch, predicates)
        for name, policy in ROUTING_POLICIES.items()
    }
    order = ("exact", "b-drp", "b-drp, paper's encoding", "names-only", "flooding")
    received = [found[name].received for name in order]
    assert received == sorted(received)
    assert len({each.delivered for each in found.values()}) == 1
    assert found["exact"].unwanted == 0
    assert found["flooding"].crossings == events * topology.flooded_copies
    assert found["b-drp"].bytes[PACKETS] < found["flooding"].bytes[PACKETS]


def test_an_event_reaches_more_sites_the_less_their_predicates_say() -> None:
    workload = named("W3")
    predicates = [parse(text, UNLIMITED_FILTERS) for text in workload.filters(12, 3)]
    batch = workload.event_batch(200, 3)
    reached = sites_reached([predicates[site::6] for site in range(6)], batch)
    order = ("exact", "b-drp", "b-drp, paper's encoding", "names-only")
    assert [reached[name] for name in order] == sorted(reached.values())
    wanted = [frozenset.union(*wanted_events(batch, predicates[site::6])) for site in range(6)]
    assert reached["exact"] == pytest.approx(sum(map(len, wanted)) / 200)


# --- records ------------------------------------------------------------------------------------------


def test_a_finding_knows_whether_its_target_is_met() -> None:
    finding = OverlayFinding(experiment="5", what="x", unit="%", ours=3.14159, how=SIMULATED, target="<= 3.2")
    assert finding.is_met is True
    assert replace(finding, target=">= 3.2").is_met is False
    assert replace(finding, target=None).is_met is None
    assert list(finding.record()) == MEMBERS
    assert finding.record()["ours"] == 3.14


@pytest.mark.thorough
@pytest.mark.slow(seconds=4)
def test_all_figures_are_simulated_with_given_costs() -> None:
    plan = quick_plan(FIGURES, compares_routing=False)
    figures = SimulatedFigures(plan, COSTS, lambda text: None)
    results = [
        simulated_figures.distribution(plan),
        figures.growing_rate(FLOODING),
        figures.growing_rate(B_DRP),
        figures.constant_rates(),
        large_network.large_network(plan, COSTS, lambda text: None),
    ]
    findings = [finding for result in results for finding in result.findings] + figures.gain()
    assert {finding.experiment for finding in findings} == {"2", "4", "5", "6", "7", "4, 5"}
    (of_eight,) = [
        finding
        for finding in findings
        if (finding.experiment, finding.what, finding.brokers) == ("5", UNDELIVERED, 8)
    ]
    assert (of_eight.paper, of_eight.target) == (0.0, "<= 0")
    saved = {finding.setting: finding for finding in findings if finding.what.startswith("fewer bytes")}
    assert saved["12 links"].ours > saved["8 links"].ours > 1
    assert {finding.paper for finding in saved.values()} == {None}
    names = [plot.name for result in results for plot in result.plots]
    assert len(names) == len(set(names))
    assert {"figure-2", "figure-4-8", "figure-5-8", "figure-6-b-drp", "figure-7-clients"} <= set(names)


def test_the_command_offers_the_papers_that_can_be_run() -> None:
    (option,) = [each for each in overlay_command.params if each.name == "paper"]
    assert list(option.type.choices) == list(PAPERS)  # type: ignore[attr-defined]
