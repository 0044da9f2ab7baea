"""A data directory that version 0.1 wrote opens as it is.

The archive in `tests/data` comes from the inline engine. It has two subscriptions (`alerts`, with 40 acknowledged
deliveries, and `other`), a set of 200 rows (`quotes`), and four times the 50 events
`{"symbol": "S<i>", "price": i, "tags": ["a", "b"]}`.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service import Service

ARCHIVE = Path(__file__).parents[1] / "data" / "data-directory-0.1.tar.xz"
EVENTS = 200


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    # The events are older than what mailboxes keep by default.
    with Service(tmp_path / "data", CULVER_DELIVERY_MAILBOX_AGE_SECONDS="4000000000") as service:
        service.wait_until_ready()
        yield service


def pending(service: Service, subscription: str) -> int:
    return int(service.http.get(f"/v1/subscriptions/{subscription}").json()["pending"])


def test_subscriptions_mailboxes_and_sets_are_as_they_were(service: Service) -> None:
    status = service.status()
    assert (status["log_next_offset"], status["delivered_offset"]) == (EVENTS, EVENTS)
    assert status["subscriptions"] == 202
    assert pending(service, "alerts") == 4 * 29 - 40
    assert pending(service, "other") == EVENTS
    assert (pending(service, "quotes.7"), pending(service, "quotes.60")) == (4, 0)
    items = service.http.get("/v1/subscriptions/alerts/events").json()["items"]
    assert items[0]["event"] == {"symbol": "S32", "price": 32.0, "tags": ["a", "b"]}
    assert items[0]["offset"] == 50 + 32


def test_new_events_reach_old_subscriptions(service: Service) -> None:
    answer = service.http.post("/v1/events", json={"symbol": "S7", "price": 21})
    assert answer.json()["first_offset"] == EVENTS
    service.wait_until_delivered()
    assert pending(service, "alerts") == 4 * 29 - 40 + 1
    assert (pending(service, "quotes.7"), pending(service, "quotes.8")) == (5, 4)
