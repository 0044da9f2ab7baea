from random import Random

from culver.config import FilterSettings
from culver.model.language import Clause, parse
from culver.overlay.clusters.layout.cluster_count import MeasuredTraffic, best_count
from culver.overlay.clusters.layout.event_popularity import PopularityCounts


def clauses(text: str) -> tuple[Clause, ...]:
    return parse(text, FilterSettings()).clauses


def skewed_counts(random: Random) -> PopularityCounts:
    """Everybody wants the news of one topic, few those of thirty others."""
    counts = PopularityCounts()
    for _ in range(600):
        popular = random.random() < 0.3
        topic = "sport" if popular else f"topic-{random.randrange(30)}"
        counts.published({"topic": topic, "size": random.randrange(1000)}, 0.7 if popular else 0.03)
    for number in range(400):
        topic = "sport" if number % 10 else f"topic-{random.randrange(30)}"
        counts.subscribed(clauses(f"topic = '{topic}' AND size > 5"))
    return counts


def test_the_popular_part_has_more_clusters() -> None:
    proposal = skewed_counts(Random(1)).propose(4, 100)
    division = proposal.division
    assert (division.version, division.attribute) == (4, "topic")
    assert division.part_of({"topic": "sport"}.get) == 0
    assert division.part_of({"topic": "topic-3"}.get) > 0
    assert len(proposal.clusters) == division.parts <= 3
    assert proposal.clusters[0] > proposal.clusters[-1]
    assert proposal.traffic < 0.9 * proposal.undivided


def test_uniform_interest_is_not_divided() -> None:
    random = Random(2)
    counts = PopularityCounts()
    for _ in range(600):
        counts.published({"topic": f"topic-{random.randrange(5)}"}, 0.3)
        counts.subscribed(clauses(f"topic = 'topic-{random.randrange(5)}'"))
    proposal = counts.propose(1, 100)
    assert proposal.division.parts == 1
    assert proposal.clusters == (best_count(MeasuredTraffic(600, 600, 0.3, 100)),)


def test_numbers_are_divided_into_intervals() -> None:
    random = Random(3)
    counts = PopularityCounts()
    for _ in range(200):
        counts.subscribed(clauses("load >= 900"))
    for _ in range(800):
        load = random.randrange(1000)
        counts.published({"load": load}, 0.9 if load >= 900 else 0.0)
    division = counts.propose(1, 100).division
    assert (division.attribute, bool(division.bounds)) == ("load", True)
    assert division.part_of({"load": 990}.get) == 0
    assert division.part_of({"load": 10}.get) > 0


def test_nothing_measured_is_nothing_divided() -> None:
    assert PopularityCounts().propose(1, 100).division.parts == 1
    assert PopularityCounts().propose(1, 0).clusters == (1,)


def test_more_attributes_and_values_than_fit_count_together() -> None:
    counts = PopularityCounts(most_attributes=2, most_values=3)
    for number in range(50):
        counts.published({f"name-{number}": "x", "topic": f"t{number}"}, 0.1)
        counts.subscribed(clauses(f"topic = 't{number}'"))
    proposal = counts.propose(1, 10)
    assert len(proposal.division.values) <= 3
