"""Publish many measurements concurrently from a program without asyncio."""

from collections import deque
from concurrent.futures import Future
from datetime import UTC, datetime

import culver

COUNT = 1_000
# Unanswered publications at a time.
IN_FLIGHT = 100

with culver.connect_sync() as client:
    waiting: deque[Future[culver.Receipt]] = deque()
    for number in range(COUNT):
        waiting.append(client.publish_soon(sensor=f"s{number % 7}", value=number / 10, at=datetime.now(UTC)))
        if len(waiting) == IN_FLIGHT:
            waiting.popleft().result()  # raises if the event was not stored
    for publication in waiting:
        publication.result()
    print(f"{COUNT} measurements are on disk")  # noqa: T201
