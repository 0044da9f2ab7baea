"""`kill -9` of the whole service, again and again, while events are published.

The reference decides what must have arrived: an acknowledged event exactly once in every mailbox whose filter
it satisfies, an event whose acknowledgement was lost at most once, any other event never.
"""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from culver.errors import CulverError
from culver.model.formats import parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from support.events import random_event_json
from support.filters import random_filter
from support.service import Service

SEED = 20130629
BATCH = 25


class Publisher(threading.Thread):
    """Publishes until `count` events are acknowledged. Each attempt has keys of its own, so that an event whose
    acknowledgement was lost can be told from the one sent in its place."""

    def __init__(self, service: Service, count: int, rng: random.Random) -> None:
        super().__init__(name="publisher")
        self.count = count
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.unknown: dict[str, dict[str, Any]] = {}
        self.positions: list[range] = []
        self.error: BaseException | None = None
        self._service = service
        self._rng = rng
        self._attempt = 0

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._service.url, timeout=30, trust_env=False) as http:
                while len(self.acknowledged) < self.count:
                    self._publish(http)
        except BaseException as exc:
            self.error = exc

    def _publish(self, http: httpx.Client) -> None:
        self._attempt += 1
        events = {}
        for i in range(BATCH):
            key = f"{self._attempt}-{i}"
            events[key] = {**plain_event(self._rng), "key": key}
        self.unknown.update(events)
        try:
            answer = http.post("/v1/events", json=list(events.values()))
        except httpx.TransportError:
            time.sleep(0.05)
            return
        if answer.status_code == 503:  # stopping or starting; nothing was taken
            time.sleep(0.05)
            return
        assert answer.status_code == 200, answer.text
        body = answer.json()
        self.positions.append(range(body["first_offset"], body["next_offset"]))
        for key, event in events.items():
            del self.unknown[key]
            self.acknowledged[key] = event


def plain_event(rng: random.Random) -> dict[str, Any]:
    while True:
        event = random_event_json(rng)
        if "specversion" not in event:
            return event


def some_filters(rng: random.Random, count: int) -> list[str]:
    """Random filters that are accepted, and one that every event satisfies."""
    texts = ["TRUE"]
    while len(texts) < count:
        text = random_filter(rng)
        try:
            parse(text)
        except CulverError:
            continue
        texts.append(text)
    return texts


@pytest.mark.system
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("engine", "events", "kills"),
    [
        pytest.param("inline", 3_000, 4, marks=pytest.mark.slow(seconds=9)),
        pytest.param(
            "spark", 2_000, 1, marks=[pytest.mark.spark, pytest.mark.thorough, pytest.mark.slow(seconds=20)]
        ),
    ],
)
def test_every_acknowledged_event_is_in_every_matching_mailbox_once(
    tmp_path: Path, full_length: bool, engine: str, events: int, kills: int
) -> None:
    if full_length:
        events, kills = 50_000, 10
    rng = random.Random(SEED)
    with Service(tmp_path / "data", engine) as service:
        service.wait_until_ready()
        filters = {}
        for text in some_filters(rng, 20):
            answer = service.http.post("/v1/subscriptions", json={"filter": text})
            assert answer.status_code == 201, answer.text
            filters[answer.json()["id"]] = text
        publisher = Publisher(service, events, rng)
        publisher.start()
        for kill in range(kills):
            wait_for_share(publisher, (kill + 1) / (kills + 1))
            time.sleep(rng.uniform(0, 0.3))
            service.kill()
            service.start()
            service.wait_until_listening()
            if rng.random() < 0.5:
                service.wait_until_ready()
        publisher.join()
        assert publisher.error is None, publisher.error
        service.wait_until_ready()
        service.wait_until_delivered()
        check_positions(publisher)
        for subscription, text in filters.items():
            check_mailbox(service, subscription, text, publisher)


def wait_for_share(publisher: Publisher, share: float) -> None:
    while publisher.is_alive() and len(publisher.acknowledged) < share * publisher.count:
        time.sleep(0.005)


def check_positions(publisher: Publisher) -> None:
    """No two acknowledgements name the same position."""
    claimed = sorted(offset for positions in publisher.positions for offset in positions)
    assert len(claimed) == len(set(claimed)) == len(publisher.acknowledged)


def check_mailbox(service: Service, subscription: str, text: str, publisher: Publisher) -> None:
    condition = parse(text).condition
    required = {
        key for key, event in publisher.acknowledged.items() if evaluate(condition, as_event(event)) is True
    }
    received: list[str] = []
    offsets: list[int] = []
    for item in service.receive_all(subscription):
        assert item["type"] == "event", f"a gap was announced: {item}"
        key = item["event"]["key"]
        sent = publisher.acknowledged.get(key) or publisher.unknown[key]
        assert item["event"] == sent
        assert evaluate(condition, as_event(sent)) is True, f"{text!r} does not match {sent}"
        received.append(key)
        offsets.append(item["offset"])
    assert len(received) == len(set(received)), f"duplicates for {text!r}"
    assert offsets == sorted(set(offsets))
    assert required <= set(received), f"{text!r} lost {sorted(required - set(received))[:5]}"


def as_event(event: dict[str, Any]) -> Any:
    return parse_event(json.dumps(event).encode())
