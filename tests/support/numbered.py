"""Quotes that follow from their number, filters over them, and a process that publishes them at a steady rate.

Everything about event n is a function of n, for one number or an array of them. So what each subscription must get is
worked out with NumPy from the numbers alone, and the publisher need only write down which numbers were acknowledged:

    python -m support.numbered URL JOURNAL EVENTS_PER_SECOND

    journal    first number | count | first offset, or -1 where no answer came     int64 each, one row a request

It publishes until its standard input ends. A request without an answer is not sent again; its numbers may have
arrived.
"""

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from numpy.typing import NDArray

SYMBOLS = 1_000
_REQUESTS_PER_SECOND = 20
_PATIENCE_SECONDS = 60.0
UNKNOWN = -1

Numbers = NDArray[np.int64]


def attributes(numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Symbol, price in hundredths and volume of events (splitmix64 of the number, cut in three)."""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    symbols = z % np.uint64(SYMBOLS)
    prices = (z >> np.uint64(16)) % np.uint64(10_000)
    volumes = (z >> np.uint64(36)) % np.uint64(100_000)
    return symbols.astype(np.int64), prices.astype(np.int64), volumes.astype(np.int64)


def lines(numbers: Numbers) -> bytes:
    """The events as a JSON array."""
    columns = (column.tolist() for column in (numbers, *attributes(numbers)))
    return b"[%s]" % b",".join(
        b'{"n":%d,"symbol":"S%d","price":%d.%02d,"volume":%d}'
        % (n, symbol, cents // 100, cents % 100, volume)
        for n, symbol, cents, volume in zip(*columns, strict=True)
    )


@dataclass(frozen=True, slots=True)
class QuoteFilter:
    """One symbol, or all of them, with prices from `low` up to, not including, `high`."""

    symbol: int | None
    low: int
    high: int
    most_volume: int = 100_000

    @property
    def text(self) -> str:
        parts = [f"price >= {self.low / 100:.2f}", f"price < {self.high / 100:.2f}"]
        parts += [f"volume < {self.most_volume}"]
        if self.symbol is not None:
            parts.insert(0, f"symbol = 'S{self.symbol}'")
        return " AND ".join(parts)

    def matching(self, numbers: Numbers) -> Numbers:
        symbols, prices, volumes = attributes(numbers)
        chosen = (prices >= self.low) & (prices < self.high) & (volumes < self.most_volume)
        if self.symbol is not None:
            chosen &= symbols == self.symbol
        return numbers[chosen]


def some_filters(count: int, seed: int) -> list[QuoteFilter]:
    """About one event in 2,000 satisfies each; one filter in ten is on ranges alone."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        low = int(rng.integers(0, 5_000))
        if i % 10:
            made.append(QuoteFilter(int(rng.integers(0, SYMBOLS)), low, low + 5_000))
        else:
            made.append(QuoteFilter(None, low, low + 100, 5_000))
    return made


@dataclass(frozen=True, slots=True)
class Journal:
    """What a publisher has written down."""

    acknowledged: Numbers
    unknown: Numbers
    offsets: Numbers  # of the acknowledged events

    @classmethod
    def read(cls, path: Path) -> "Journal":
        data = np.fromfile(path, np.int64)
        rows = data[: len(data) // 3 * 3].reshape(-1, 3)
        known = rows[:, 2] != UNKNOWN
        return cls(
            _spread(rows[known, 0], rows[known, 1]),
            _spread(rows[~known, 0], rows[~known, 1]),
            _spread(rows[known, 2], rows[known, 1]),
        )


def _spread(firsts: Numbers, counts: Numbers) -> Numbers:
    parts = [np.arange(first, first + count) for first, count in zip(firsts, counts, strict=True)]
    return np.concatenate([np.empty(0, np.int64), *parts])


def publish(url: str, journal: Path, events_per_second: int, stopping: threading.Event) -> None:
    """What is late by more than a second is let go, so that an outage is not followed by a flood."""
    batch = max(1, events_per_second // _REQUESTS_PER_SECOND)
    number, due = 0, time.monotonic()
    with (
        httpx.Client(base_url=url, timeout=_PATIENCE_SECONDS, trust_env=False) as http,
        journal.open("wb", buffering=0) as written,
    ):
        while not stopping.is_set():
            due = max(due + 1 / _REQUESTS_PER_SECOND, time.monotonic() - 1.0)
            stopping.wait(due - time.monotonic())
            body = lines(np.arange(number, number + batch))
            first_offset = UNKNOWN
            try:
                answer = http.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
            except httpx.TransportError:
                stopping.wait(0.1)
            else:
                if answer.status_code == 503:  # it is starting or stopping, and has taken nothing
                    continue
                answer.raise_for_status()
                first_offset = answer.json()["first_offset"]
            written.write(np.array([number, batch, first_offset], np.int64).tobytes())
            number += batch


def main(url: str, journal: str, events_per_second: str) -> None:
    stopping = threading.Event()

    def stop_at_end_of_input() -> None:
        sys.stdin.buffer.read()
        stopping.set()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    publish(url, Path(journal), int(events_per_second), stopping)


if __name__ == "__main__":
    main(*sys.argv[1:])
