"""Publish measurements from a program that does not use asyncio, many at a time."""

from collections import deque
from concurrent.futures import Future
from datetime import UTC, datetime

import culver

COUNT = 1_000
AHEAD = 100  # publications that have no answer yet

with culver.connect_sync() as client:
    waiting: deque[Future[culver.Receipt]] = deque()
    for number in range(COUNT):
        waiting.append(client.publish_soon(sensor=f"s{number % 7}", value=number / 10, at=datetime.now(UTC)))
        if len(waiting) == AHEAD:
            waiting.popleft().result()  # raises where the event was not stored
    for publication in waiting:
        publication.result()
    print(f"{COUNT} measurements are on disk")  # noqa: T201
