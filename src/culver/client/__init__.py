"""The Python client: async first, with a thin synchronous face.

The names that users need are in `culver` itself; this package imports its transport libraries only when a
connection is first used.
"""

from culver.client.async_client import Client, ClientState, connect
from culver.client.client_types import (
    FilterTest,
    Gap,
    Mailbox,
    Message,
    Receipt,
    Rows,
    Subscription,
    SubscriptionSet,
    SyncMessage,
)
from culver.client.event_encoding import encode_event
from culver.client.message_stream import Stream
from culver.client.row_pieces import ARROW_STREAM, RowsLike, as_table, piece, rows_at_a_time
from culver.client.site_address import DEFAULT_URL, VARIABLE
from culver.client.sync_client import SyncClient, SyncStream, connect_sync

__all__ = [
    "ARROW_STREAM",
    "DEFAULT_URL",
    "VARIABLE",
    "Client",
    "ClientState",
    "FilterTest",
    "Gap",
    "Mailbox",
    "Message",
    "Receipt",
    "Rows",
    "RowsLike",
    "Stream",
    "Subscription",
    "SubscriptionSet",
    "SyncClient",
    "SyncMessage",
    "SyncStream",
    "as_table",
    "connect",
    "connect_sync",
    "encode_event",
    "piece",
    "rows_at_a_time",
]
