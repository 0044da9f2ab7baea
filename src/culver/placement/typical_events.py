"""Events like registrations, where there are none to learn from: values fall where intervals begin and end."""

import numpy as np
import pyarrow as pa

from culver.matching import INT64_MAX, INT64_MIN, ClauseTable, Line, real_of_key, reals_of_keys
from culver.model import Event, Timestamp, Value
from culver.model.columns import concat, encode

_EVENTS = 512
_DIMENSIONS = 64  # those with most terms
_SEED = 20_110_517
_INNER = "data."


def draw_typical_events(table: ClauseTable) -> pa.RecordBatch:
    """The same for the same table. Every event has a value in every dimension that matters, drawn by itself."""
    random = np.random.default_rng(_SEED)
    data: list[dict[str, Value]] = [{} for _ in range(_EVENTS)]
    terms = np.bincount(table.term_dimension, minlength=len(table.dimensions))
    for place in np.argsort(-terms, kind="stable")[:_DIMENSIONS].tolist():
        name, line = table.dimensions[place]
        ends = table.term_bounds[table.term_dimension == place].reshape(-1)
        ends = ends[(ends != INT64_MIN) & (ends != INT64_MAX)]
        if line in (Line.NUMBERS, Line.REALS):
            ends = ends[np.isfinite(reals_of_keys(ends))]  # the next above the greatest real is none
        if not len(ends) or line is Line.LISTS:
            continue
        for event, key in zip(data, random.choice(ends, _EVENTS).tolist(), strict=True):
            event.setdefault(name.removeprefix(_INNER), _value(key, line, table.literals))
    return concat(encode([Event({}, each, b"{}") for each in data], 0))


def _value(key: int, line: Line, literals: tuple[bytes, ...]) -> Value:
    match line:
        case Line.NUMBERS | Line.REALS:
            return real_of_key(key)
        case Line.STRINGS:
            return literals[min(key >> 1, len(literals) - 1)].decode(errors="replace")
        case Line.BOOLEANS:
            return bool(key)
        case Line.TIMESTAMPS:
            return Timestamp(key)
        case _:
            return key
