"""The Python client: async first, with a thin synchronous face.

The names that users need are in `culver` itself. Each name is loaded when it is first used, and the transport
libraries when a connection is.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.client.async_client import Client as Client, ClientState as ClientState, connect as connect
    from culver.client.event_encoding import encode_event as encode_event
    from culver.client.log_calls import Include as Include, LogTable as LogTable
    from culver.client.receiving.received_messages import (
        GroupGap as GroupGap,
        GroupMessage as GroupMessage,
        HistoryEvent as HistoryEvent,
        Message as Message,
        SyncGroupMessage as SyncGroupMessage,
        SyncMessage as SyncMessage,
    )
    from culver.client.receiving.streams import GroupStream as GroupStream, Stream as Stream
    from culver.client.row_pieces import (
        ARROW_STREAM as ARROW_STREAM,
        RowsLike as RowsLike,
        as_table as as_table,
        piece as piece,
        rows_at_a_time as rows_at_a_time,
    )
    from culver.client.site_address import DEFAULT_URL as DEFAULT_URL, VARIABLE as VARIABLE
    from culver.client.sync_client import (
        SyncClient as SyncClient,
        SyncGroupStream as SyncGroupStream,
        SyncStream as SyncStream,
        connect_sync as connect_sync,
    )
    from culver.messages import (
        AcceptedEvents as AcceptedEvents,
        FilterTest as FilterTest,
        Gap as Gap,
        Mailbox as Mailbox,
        Receipt as Receipt,
        Rows as Rows,
        Subscription as Subscription,
        SubscriptionSet as SubscriptionSet,
    )
else:
    __getattr__ = lazy_names(__name__)
