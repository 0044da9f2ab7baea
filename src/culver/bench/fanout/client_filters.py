"""The filters of W2 as a subscriber of NATS or Valkey evaluates them: by symbol first, then one after another."""

from collections.abc import Sequence

import msgspec

from culver.bench.workloads.quotes import QuotesWorkload, market

_BUSY_FORM = 3  # the one of W2's forms that names no symbol


class Quote(msgspec.Struct):
    """The attributes of an event that W2's filters read."""

    bench_sequence: int
    symbol: str
    open: float
    high: float
    close: float
    volume: int


class ClientFilters:
    """Those of the first `count` filters of a seed that are numbered `chosen`. It finds as many matches as the
    texts of `QuotesWorkload.filters`."""

    def __init__(self, count: int, seed: int, chosen: Sequence[int]) -> None:
        drawn = QuotesWorkload().drawn(count, seed)
        names = market().symbols
        value = {name: column.tolist() for name, column in drawn.values.items()}
        # Bounds of a filter on open, close and volume, each with its lowest and highest value.
        self._by_symbol: dict[str, list[tuple[float, float, float, float]]] = {}
        self._busy: list[tuple[float, float, float]] = []
        endless = float("inf")
        for i in chosen:
            form = int(drawn.forms[i])
            if form == _BUSY_FORM:
                self._busy.append((value["busy_volume"][i], value["high_low"][i], value["high_high"][i]))
                continue
            bounds = {
                0: (endless, value["upper_close"][i], endless, 0),
                1: (endless, value["band_low"][i], value["band_high"][i], 0),
                2: (endless, -endless, endless, value["upper_volume"][i]),
                4: (value["opened_below"][i], value["closed_above"][i], endless, 0),
            }[form]
            self._by_symbol.setdefault(names[drawn.symbols[i]], []).append(bounds)

    @property
    def symbols(self) -> list[str]:
        """The symbols that the filters name; empty if one of them names none and needs all events."""
        return [] if self._busy else list(self._by_symbol)

    def matches(self, quote: Quote) -> int:
        """How many of the filters the event satisfies."""
        found = 0
        for opened_below, lowest_close, highest_close, lowest_volume in self._by_symbol.get(quote.symbol, ()):
            if (
                quote.open <= opened_below
                and lowest_close <= quote.close <= highest_close
                and quote.volume >= lowest_volume
            ):
                found += 1
        for lowest_volume, low, high in self._busy:
            if quote.volume >= lowest_volume and low <= quote.high <= high:
                found += 1
        return found
