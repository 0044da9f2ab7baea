"""The benchmark of fan-out: what it computes without any server."""

import fnmatch
from pathlib import Path

import msgspec
import pytest

from culver.bench.fanout import rival_servers
from culver.bench.fanout.bare_connections import (
    FANOUT_NAME,
    MarkerCount,
    fanout_names,
    numbered_payloads,
    renumbered,
)
from culver.bench.fanout.client_filters import ClientFilters, Quote
from culver.bench.workloads.quotes import QuotesWorkload
from culver.config import FilterSettings
from culver.model.formats.event_bodies import parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate


def test_a_subscriber_finds_the_matches_of_the_filters_texts() -> None:
    events = QuotesWorkload().events(40, seed=3)
    texts = QuotesWorkload().filters(300, seed=5)
    table = ClientFilters(300, 5, range(300))
    found = [
        table.matches(msgspec.json.decode(payload.text, type=Quote)) for payload in numbered_payloads(events)
    ]
    conditions = [parse(text, FilterSettings()).condition for text in texts]
    parsed = [parse_event(msgspec.json.encode(event)) for event in events]
    assert sum(found) > 0
    assert found == [sum(evaluate(each, event) is True for each in conditions) for event in parsed]


def test_the_patterns_of_a_connection_differ_and_all_match_the_channel() -> None:
    names = fanout_names("valkey", 100)
    assert len(set(names)) == 100
    assert all(fnmatch.fnmatchcase(FANOUT_NAME, name) for name in names)
    assert fanout_names("nats", 3) == [FANOUT_NAME] * 3


@pytest.mark.parametrize("size", [1, 2, 7, 50, 1_000])
def test_an_event_counts_once_however_the_stream_is_cut(size: int) -> None:
    stream = b"".join(payload.text for payload in numbered_payloads(QuotesWorkload().events(20, seed=1)))
    markers = MarkerCount()
    assert sum(markers.add(stream[at : at + size]) for at in range(0, len(stream), size)) == 20


def test_a_renumbered_event_differs_in_its_number_alone() -> None:
    payload = numbered_payloads(QuotesWorkload().events(1, seed=1))[0]
    before, after = msgspec.json.decode(payload.text), msgspec.json.decode(renumbered(payload, 17).text)
    assert after == {**before, "bench_sequence": 17}


def test_a_system_that_is_not_installed_is_named_with_its_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(rival_servers._WHEELS, "nats", ("no-such-wheel", "no-such-server"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rival_servers.rival_program("nats") is None
    assert "pip install no-such-wheel" in rival_servers.missing_rival("nats")
