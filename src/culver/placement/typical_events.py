"""Events to learn from where there are none: their values fall where the intervals of registrations begin and end."""

import numpy as np
import pyarrow as pa

from culver.matching import HIGHEST_KEY, LOWEST_KEY, ClauseTable, KeyLine, real_of_key, reals_of_keys
from culver.model import Event, Timestamp, Value
from culver.model.columns import concat, encode

_EVENTS = 512
# The dimensions with most terms.
_DIMENSIONS = 64
_SEED = 20_110_517
_INNER = "data."


def draw_typical_events(table: ClauseTable) -> pa.RecordBatch:
    """Draw events, the same for the same table. Every event has a value in each of the dimensions with most terms."""
    random = np.random.default_rng(_SEED)
    data: list[dict[str, Value]] = [{} for _ in range(_EVENTS)]
    terms = np.bincount(table.term_dimension, minlength=len(table.dimensions))
    for place in np.argsort(-terms, kind="stable")[:_DIMENSIONS].tolist():
        name, line = table.dimensions[place]
        ends = table.term_bounds[table.term_dimension == place].reshape(-1)
        ends = ends[(ends != LOWEST_KEY) & (ends != HIGHEST_KEY)]
        if line in (KeyLine.NUMBERS, KeyLine.REALS):
            ends = ends[np.isfinite(reals_of_keys(ends))]  # the key above that of the greatest real
        if not len(ends) or line is KeyLine.LISTS:
            continue
        for event, key in zip(data, random.choice(ends, _EVENTS).tolist(), strict=True):
            event.setdefault(name.removeprefix(_INNER), _value(key, line, table.literals))
    return concat(encode([Event({}, each, b"{}") for each in data], 0))


def _value(key: int, line: KeyLine, literals: tuple[bytes, ...]) -> Value:
    match line:
        case KeyLine.NUMBERS | KeyLine.REALS:
            return real_of_key(key)
        case KeyLine.STRINGS:
            return literals[min(key >> 1, len(literals) - 1)].decode(errors="replace")
        case KeyLine.BOOLEANS:
            return bool(key)
        case KeyLine.TIMESTAMPS:
            return Timestamp(key)
        case _:
            return key
