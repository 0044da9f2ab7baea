"""The model: events, values, predicates and the filter language. No input or output here."""

from culver.model.event import Event as Event, Origin as Origin
from culver.model.identifiers import (
    COLUMNAR as COLUMNAR,
    DELIVERY_ID as DELIVERY_ID,
    DURABLE_ID as DURABLE_ID,
    ENCODED as ENCODED,
    GROUP_POSITION as GROUP_POSITION,
    LIVE_PREFIX as LIVE_PREFIX,
    SET_NAME as SET_NAME,
    SITE_PREFIX as SITE_PREFIX,
    SUBSCRIPTION_ID as SUBSCRIPTION_ID,
)
from culver.model.text import normalise_text as normalise_text
from culver.model.timestamps import (
    EARLIEST as EARLIEST,
    LATEST as LATEST,
    parse_timestamp as parse_timestamp,
)
from culver.model.values import (
    DOMAIN_OF_KIND as DOMAIN_OF_KIND,
    KIND_OF_TYPE as KIND_OF_TYPE,
    Domain as Domain,
    Kind as Kind,
    Timestamp as Timestamp,
    Value as Value,
    domain_of as domain_of,
)
