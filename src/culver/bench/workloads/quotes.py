"""W2: StreamHub's stock quotes (section 5.1 and figure 6 of its paper), on a synthetic market.

The market is one data set, the same for every seed: 200 symbols over 1,260 trading days. A seed draws
events (a symbol on a day, uniformly) and subscriptions, whose bounds are quantiles of the history that they
ask about. At 100,000 subscriptions an event matches about 175, the paper's 0.18 %.
"""

import functools
import string
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.workloads.workload import batch_of, event_stream, filter_stream

SYMBOLS = 200
DAYS = 1_260
_MARKET_SEED = 20_140_526
_FIRST_DAY = np.datetime64("2019-01-02")

SHARES = (0.35, 0.20, 0.20, 0.15, 0.10)
"""How often each of the five forms of filter occurs, in the order of `_FORMS`."""


@dataclass(frozen=True, slots=True)
class Market:
    """Every array but the names has the shape (symbols, days)."""

    symbols: list[str]
    dates: list[str]  # one per day, RFC 3339
    open: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    close: NDArray[np.float64]
    volume: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The draws for `count` filters: the form of each, its symbol, and a value for every name in `_FORMS`."""

    forms: NDArray[np.int64]
    symbols: NDArray[np.int64]
    values: dict[str, NDArray[Any]]


class QuotesWorkload:
    name = "W2"
    subscriptions = 100_000

    def draws(self, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The symbol and the day of each event."""
        random = event_stream(seed)
        return random.integers(SYMBOLS, size=count), random.integers(DAYS, size=count)

    def drawn(self, count: int, seed: int) -> Drawn:
        """The filters of `filters(count, seed)` as columns."""
        quotes = market()
        random = filter_stream(seed)
        forms = random.choice(len(SHARES), size=count, p=SHARES)
        symbols = random.integers(SYMBOLS, size=count)
        u = random.random(count)
        closing, opening = _Quantiles(quotes.close), _Quantiles(quotes.open)
        volumes = _Quantiles(quotes.volume.astype(np.float64))
        all_highs = _Quantiles(quotes.high.reshape(1, -1))
        all_volumes = _Quantiles(quotes.volume.astype(np.float64).reshape(1, -1))
        anywhere = np.zeros(count, np.int64)
        centre, narrow = 0.125 + 0.75 * u, 0.0135 + 0.973 * random.random(count)
        values = {
            "upper_close": closing.at(symbols, 0.45 + 0.55 * u),
            "band_low": closing.at(symbols, centre - 0.125),
            "band_high": closing.at(symbols, centre + 0.125),
            "upper_volume": np.rint(volumes.at(symbols, 0.45 + 0.55 * u)).astype(np.int64),
            "busy_volume": np.rint(all_volumes.at(anywhere, 0.7 + 0.3 * u)).astype(np.int64),
            "high_low": all_highs.at(anywhere, narrow - 0.0135),
            "high_high": all_highs.at(anywhere, narrow + 0.0135),
            "opened_below": opening.at(symbols, 0.5 + 0.5 * u),
            "closed_above": closing.at(symbols, u),
        }
        return Drawn(forms, symbols, values)

    def filters(self, count: int, seed: int) -> list[str]:
        names = market().symbols
        drawn = self.drawn(count, seed)
        lists = {name: column.tolist() for name, column in drawn.values.items()}
        return [
            _FORMS[form].format(symbol=names[symbol], **{name: column[i] for name, column in lists.items()})
            for i, (form, symbol) in enumerate(zip(drawn.forms.tolist(), drawn.symbols.tolist(), strict=True))
        ]

    def events(self, count: int, seed: int) -> list[dict[str, Any]]:
        quotes = market()
        symbols, days = self.draws(count, seed)
        columns = [
            getattr(quotes, name)[symbols, days].tolist()
            for name in ("open", "high", "low", "close", "volume")
        ]
        return [
            {
                "symbol": quotes.symbols[symbol],
                "open": opened,
                "high": high,
                "low": low,
                "close": closed,
                "volume": volume,
                "date": {"$timestamp": quotes.dates[day]},
            }
            for symbol, day, opened, high, low, closed, volume in zip(
                symbols.tolist(), days.tolist(), *columns, strict=True
            )
        ]

    def event_batch(self, count: int, seed: int) -> pa.RecordBatch:
        quotes = market()
        symbols, days = self.draws(count, seed)
        names = pa.array(quotes.symbols).take(pa.array(symbols))
        columns = {"d:s:symbol": names}
        for name in ("open", "high", "low", "close"):
            columns[f"d:r:{name}"] = pa.array(getattr(quotes, name)[symbols, days])
        columns["d:i:volume"] = pa.array(quotes.volume[symbols, days])
        moments = _trading_days().astype("datetime64[us]").astype(np.int64)
        columns["d:t:date"] = pa.array(moments[days])
        return batch_of(self.events(count, seed), columns)


_FORMS = (
    "symbol = '{symbol}' AND close >= {upper_close!r}",
    "symbol = '{symbol}' AND close BETWEEN {band_low!r} AND {band_high!r}",
    "symbol = '{symbol}' AND volume >= {upper_volume}",
    "volume >= {busy_volume} AND high BETWEEN {high_low!r} AND {high_high!r}",
    "symbol = '{symbol}' AND open <= {opened_below!r} AND close >= {closed_above!r}",
)


@functools.cache
def market() -> Market:
    """The data set: prices walk from a log-normal base, volumes vary around a log-normal level."""
    random = np.random.default_rng(_MARKET_SEED)
    base = 50.0 * np.exp(random.normal(0.0, 0.8, (SYMBOLS, 1)))
    shape = (SYMBOLS, DAYS)
    closing = base * np.exp(np.cumsum(random.normal(0.0002, 0.015, shape), axis=1))
    last = np.concatenate([base, closing[:, :-1]], axis=1)
    opening = last * np.exp(random.normal(0.0, 0.004, shape))
    high = np.maximum(opening, closing) * np.exp(np.abs(random.normal(0.0, 0.006, shape)))
    low = np.minimum(opening, closing) * np.exp(-np.abs(random.normal(0.0, 0.006, shape)))
    level = 2e6 * np.exp(random.normal(0.0, 0.5, (SYMBOLS, 1)))
    volume = np.rint(level * np.exp(random.normal(0.0, 0.4, shape))).astype(np.int64)
    dates = [f"{day}T00:00:00Z" for day in _trading_days()]
    return Market(_ticker_symbols(random), dates, opening, high, low, closing, volume)


class _Quantiles:
    """Quantiles of each row of a table, interpolated between neighbours."""

    def __init__(self, rows: NDArray[np.float64]) -> None:
        self._sorted = np.sort(rows, axis=1)

    def at(self, row: NDArray[np.int64], quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        last = self._sorted.shape[1] - 1
        position = np.clip(quantile, 0.0, 1.0) * last
        below = np.minimum(position.astype(np.int64), last - 1)
        low, high = self._sorted[row, below], self._sorted[row, below + 1]
        interpolated: NDArray[np.float64] = low + (high - low) * (position - below)
        return interpolated


def _trading_days() -> NDArray[np.datetime64]:
    return np.busday_offset(_FIRST_DAY, np.arange(DAYS), roll="forward")


def _ticker_symbols(random: np.random.Generator) -> list[str]:
    """Distinct names of three or four letters."""
    names: dict[str, None] = {}
    while len(names) < SYMBOLS:
        letters = random.integers(26, size=int(random.integers(3, 5)))
        names["".join(string.ascii_uppercase[letter] for letter in letters)] = None
    return list(names)
