"""The model: events, values, predicates and the filter language. No input or output here."""

from culver.model.event import Event
from culver.model.identifiers import DELIVERY_ID, DURABLE_ID, LIVE_PREFIX, SET_NAME, SUBSCRIPTION_ID
from culver.model.scheme import COLUMNAR
from culver.model.text import normalise_text
from culver.model.timestamps import EARLIEST, LATEST
from culver.model.values import Domain, Kind, Timestamp, Value

__all__ = [
    "COLUMNAR",
    "DELIVERY_ID",
    "DURABLE_ID",
    "EARLIEST",
    "LATEST",
    "LIVE_PREFIX",
    "SET_NAME",
    "SUBSCRIPTION_ID",
    "Domain",
    "Event",
    "Kind",
    "Timestamp",
    "Value",
    "normalise_text",
]
