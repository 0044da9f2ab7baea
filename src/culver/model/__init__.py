"""The model: events, values, predicates and the filter language. No input or output here."""

from culver.model.event import Event
from culver.model.scheme import COLUMNAR
from culver.model.text import normalise_text
from culver.model.timestamps import EARLIEST, LATEST
from culver.model.values import Domain, Kind, Timestamp, Value

__all__ = [
    "COLUMNAR",
    "EARLIEST",
    "LATEST",
    "Domain",
    "Event",
    "Kind",
    "Timestamp",
    "Value",
    "normalise_text",
]
