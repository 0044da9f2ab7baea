"""Sets on a whole service: delivered to, restarted, and killed in the middle of registering."""

import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from culver.bench.bulk_registration import register_rows
from support.service import Service

FILTER = "symbol = ? AND close >= ?"
ROWS = 2_000
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def stream(first: int) -> bytes:
    """Row i of a set has the symbol s(i mod 100) and the price i."""
    places = range(first, first + ROWS)
    batch = pa.record_batch(
        [pa.array([f"s{place % 100}" for place in places]), pa.array([float(place) for place in places])],
        ["symbol", "close"],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def add(http: httpx.Client, first: int) -> dict[str, Any]:
    query = {"filter": FILTER, "first": str(first)}
    answer = http.post("/v1/sets/quotes", content=stream(first), params=query, headers=ARROW)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


def pending(service: Service, place: int) -> int:
    answer = service.http.get(f"/v1/subscriptions/quotes.{place}")
    assert answer.status_code == 200, answer.text
    return int(answer.json()["pending"])


def test_members_are_delivered_to_before_and_after_a_restart(tmp_path: Path) -> None:
    with Service(tmp_path / "site") as service:
        service.wait_until_ready()
        service.http.post("/v1/events", json={"symbol": "s1", "close": 1e6})
        assert [add(service.http, first)["since"] for first in (0, ROWS)] == [1, 1]
        assert register_rows(service.http, "other", "close < ?", {"close": [-1.0] * 10}) > 0
        replaced = service.http.put("/v1/subscriptions/quotes.201", json={"filter": "close < 0"})
        assert replaced.status_code == 200
        assert service.http.delete("/v1/subscriptions/quotes.301").status_code == 204
        event = {"symbol": "s1", "close": 2_001}
        assert service.http.post("/v1/events", json=event).status_code == 200
        service.wait_until_delivered()
        counts = [pending(service, place) for place in (1, 101, 201, 2, 2_001, 2_101)]
        assert counts == [1, 1, 0, 0, 1, 0]
        items = service.http.get("/v1/subscriptions/quotes.101/events").json()["items"]
        assert [item["event"] for item in items] == [event]
        service.http.post("/v1/subscriptions/quotes.1/ack", json={"delivery_id": "quotes.1:1"})
        service.kill()
        service.start()
        service.wait_until_ready()
        counts = [pending(service, place) for place in (1, 101, 201, 2, 2_001, 2_101)]
        assert counts == [0, 1, 0, 0, 1, 0]
        assert service.http.get("/v1/subscriptions/quotes.301").status_code == 404
        service.http.post("/v1/events", json={"symbol": "s1", "close": -5})
        service.http.post("/v1/events", json={"symbol": "s1", "close": 1e6})
        service.wait_until_delivered()
        assert [pending(service, place) for place in (1, 101, 201, 2, 2_101)] == [1, 2, 1, 0, 1]
        assert service.http.delete("/v1/sets/quotes").json() == {"removed": 2 * ROWS - 1}
        service.http.post("/v1/events", json={"symbol": "s1", "close": 1e6})
        service.wait_until_delivered()
        left = service.http.get("/v1/subscriptions").json()["subscriptions"]
        assert [(each["id"], each["pending"]) for each in left] == [(f"other.{n}", 1) for n in range(10)]
        assert add(service.http, 0)["first"] == 0
        service.wait_until_delivered()
        assert pending(service, 1) == 0


def test_killed_service_has_every_acknowledged_block_and_no_piece_of_another(tmp_path: Path) -> None:
    acknowledged = 0
    begun = threading.Event()

    def register(service: Service) -> None:
        nonlocal acknowledged
        with httpx.Client(base_url=service.url, timeout=30, trust_env=False) as http:
            while True:
                try:
                    acknowledged = add(http, acknowledged)["next"]
                    begun.set()
                except httpx.TransportError:
                    return

    with Service(tmp_path / "site") as service:
        service.wait_until_ready()
        for round_ in range(2):
            thread = threading.Thread(target=register, args=(service,))
            begun.clear()
            thread.start()
            assert begun.wait(60)
            time.sleep(0.05 + 0.13 * round_)  # into one of the next blocks
            service.kill()
            thread.join()
            service.start()
            service.wait_until_ready()
            (found,) = service.http.get("/v1/sets").json()["sets"]
            assert found["count"] == found["next"] in (acknowledged, acknowledged + ROWS)
            acknowledged = found["next"]
        assert acknowledged >= ROWS
        service.http.post("/v1/events", json={"symbol": "s0", "close": acknowledged - 100})
        service.wait_until_delivered()
        assert [pending(service, place) for place in (0, acknowledged - 100, 1)] == [1, 1, 0]
