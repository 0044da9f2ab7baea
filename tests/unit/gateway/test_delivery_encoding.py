"""Batches, their bounds, and payloads that go through untouched."""

import json
import random

from culver.delivery.deliveries import Delivery, DeliveryGap
from culver.gateway.api.delivery_encoding import (
    MAX_BATCH_BYTES,
    MAX_BATCH_DELIVERIES,
    Received,
    ReceiveLimit,
    batches,
    encode,
    item_of,
)


def delivery(offset: int, size: int = 10) -> Delivery:
    return Delivery("s", offset, b'"' + b"x" * (size - 2) + b'"')


def test_a_payload_is_spliced_byte_by_byte() -> None:
    payload = '{"price": 1.50,  "name": "Zoë 🦊", "big": 9007199254740993}'.encode()
    encoded = encode(item_of(Delivery("alerts", 17, payload)))
    assert payload in encoded
    assert json.loads(encoded)["delivery_id"] == "alerts:17"
    assert json.loads(encoded)["type"] == "event"


def test_a_gap_item_says_what_may_be_missing() -> None:
    members = encode(item_of(DeliveryGap("alerts", 3, 9, None, "overflow")))
    assert json.loads(members) == {"type": "gap", "start": 3, "end": 9, "dropped": None, "reason": "overflow"}


def test_batches_keep_order_and_stay_within_their_bounds() -> None:
    source = random.Random(7)
    items: list[Received] = [
        DeliveryGap("s", n, n + 1, 1, "overflow")
        if source.random() < 0.01
        else delivery(n, source.choice([10, 500, 200_000]))
        for n in range(2_000)
    ]
    seen: list[Received] = []
    for batch in batches(items):
        if isinstance(batch, DeliveryGap):
            seen.append(batch)
            continue
        seen += batch
        assert len(batch) <= MAX_BATCH_DELIVERIES
        assert len(batch) == 1 or sum(len(item.payload) for item in batch) <= MAX_BATCH_BYTES
    assert seen == items


def test_small_events_are_soon_asked_for_by_the_full_batch() -> None:
    limit = ReceiveLimit()
    for _ in range(4):
        limit.observe([delivery(n) for n in range(limit.value)])
    assert limit.value == MAX_BATCH_DELIVERIES


def test_large_events_are_asked_for_one_by_one() -> None:
    limit = ReceiveLimit()
    limit.observe([delivery(n, MAX_BATCH_BYTES) for n in range(limit.value)])
    assert limit.value == 1
    limit.observe([])
    assert limit.value == 1
