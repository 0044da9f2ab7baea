"""Culver: content-based publish/subscribe on Apache Spark.

    async with culver.connect() as client:
        await client.publish(symbol="XYZ", price=21.5)
        async for message in client.subscribe("price > 20"):
            ...

Importing this module is cheap: each name below is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names
from culver.version import __version__ as __version__

if TYPE_CHECKING:
    from culver.client import (
        AcceptedEvents as AcceptedEvents,
        Client as Client,
        ClientState as ClientState,
        FilterTest as FilterTest,
        Gap as Gap,
        GroupGap as GroupGap,
        GroupMessage as GroupMessage,
        GroupStream as GroupStream,
        HistoryEvent as HistoryEvent,
        Mailbox as Mailbox,
        Message as Message,
        Receipt as Receipt,
        Rows as Rows,
        Stream as Stream,
        Subscription as Subscription,
        SubscriptionSet as SubscriptionSet,
        SyncClient as SyncClient,
        SyncGroupMessage as SyncGroupMessage,
        SyncGroupStream as SyncGroupStream,
        SyncMessage as SyncMessage,
        SyncStream as SyncStream,
        connect as connect,
        connect_sync as connect_sync,
    )
    from culver.errors import (
        ClientError as ClientError,
        Conflict as Conflict,
        ConnectionFailed as ConnectionFailed,
        CulverError as CulverError,
        InvalidEvent as InvalidEvent,
        InvalidRequest as InvalidRequest,
        RequestRefused as RequestRefused,
    )
else:
    __getattr__ = lazy_names(__name__)
