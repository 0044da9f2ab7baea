"""Culver: content-based publish/subscribe on Apache Spark.

    async with culver.connect() as client:
        await client.publish(symbol="XYZ", price=21.5)
        async for message in client.subscribe("price > 20"):
            ...

Importing this module is cheap: each name below is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
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
    from culver.client.message_stream import Stream
    from culver.client.sync_client import SyncClient, SyncStream, connect_sync
    from culver.errors import (
        ClientError,
        Conflict,
        ConnectionFailed,
        CulverError,
        InvalidEvent,
        InvalidRequest,
        RequestRefused,
    )

__all__ = [
    "Client",
    "ClientError",
    "ClientState",
    "Conflict",
    "ConnectionFailed",
    "CulverError",
    "FilterTest",
    "Gap",
    "InvalidEvent",
    "InvalidRequest",
    "Mailbox",
    "Message",
    "Receipt",
    "RequestRefused",
    "Rows",
    "Stream",
    "Subscription",
    "SubscriptionSet",
    "SyncClient",
    "SyncMessage",
    "SyncStream",
    "__version__",
    "connect",
    "connect_sync",
]

_HOMES = {
    "culver.client.async_client": ("Client", "ClientState", "connect"),
    "culver.client.message_stream": ("Stream",),
    "culver.client.sync_client": ("SyncClient", "SyncStream", "connect_sync"),
    "culver.client.client_types": (
        "FilterTest",
        "Gap",
        "Mailbox",
        "Message",
        "Receipt",
        "Rows",
        "Subscription",
        "SubscriptionSet",
        "SyncMessage",
    ),
    "culver.errors": (
        "ClientError",
        "Conflict",
        "ConnectionFailed",
        "CulverError",
        "InvalidEvent",
        "InvalidRequest",
        "RequestRefused",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'culver' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
