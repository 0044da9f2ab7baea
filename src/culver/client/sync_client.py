"""The synchronous client: runs the asynchronous one on an event loop in its own thread."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from culver.client.async_client import AckMode, Client, SubscribeOptions
from culver.client.event_encoding import EventLike
from culver.client.receiving.received_messages import (
    GroupGap,
    GroupMessage,
    HistoryEvent,
    Message,
    SyncGroupMessage,
    SyncMessage,
)
from culver.client.receiving.streams import GroupStream, ItemStream, Stream
from culver.errors import ClientError
from culver.loop_thread import LoopThread
from culver.messages import FilterWarning, Gap, Receipt

Result = TypeVar("Result")
SyncItem = TypeVar("SyncItem", bound=SyncMessage | SyncGroupMessage | Gap | GroupGap)

P = ParamSpec("P")


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["SyncClient", P], Result]:
    """The method of a SyncClient that runs one of a Client and waits for it."""

    @functools.wraps(method)
    def call(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._run(method(self._client, *args, **kwargs))

    return call


def _collecting(
    method: Callable[Concatenate[Client, P], AsyncIterator[Result]],
) -> Callable[Concatenate["SyncClient", P], list[Result]]:
    """The method of a SyncClient that returns everything over which one of a Client iterates."""

    @functools.wraps(method)
    def call(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> list[Result]:
        async def collect() -> list[Result]:
            return [each async for each in method(self._client, *args, **kwargs)]

        return self._run(collect())

    return call


class SyncClient:
    """As Client, blocking. Its methods may be called from several threads. Use it as `with`."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._client = Client(url, **options)
        self._thread: LoopThread | None = None

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def gaps(self) -> int:
        return self._client.gaps

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ClientError(f"a client is opened once, and this one is {self._client.state.value}")
        self._thread = LoopThread("culver-client", self._client)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()

    def publish_soon(
        self, events: EventLike | Iterable[EventLike] | None = None, /, **attributes: Any
    ) -> Future[Receipt]:
        """Publish without waiting: the future has the receipt or the error. Never more than
        `max_in_flight` are sent before answers come back; bound the futures you hold yourself."""
        work = self._client.publish(events, **attributes)
        return self._open_thread(work).submit(work)

    @overload
    def subscribe(
        self,
        filter_text: str | None = None,
        *,
        gaps: Literal[False] = False,
        **options: Unpack[SubscribeOptions],
    ) -> "SyncStream[SyncMessage]": ...

    @overload
    def subscribe(
        self, filter_text: str | None = None, *, gaps: Literal[True], **options: Unpack[SubscribeOptions]
    ) -> "SyncStream[SyncMessage | Gap]": ...

    def subscribe(self, filter_text: str | None = None, **options: Any) -> "SyncStream[Any]":
        """As Client.subscribe, as a plain iterator."""

        async def make() -> Stream[Any]:
            return self._client.subscribe(filter_text, **options)

        return SyncStream(self, self._run(make()))

    @overload
    def subscribe_set(
        self, name: str, *, gaps: Literal[False] = False, ack: AckMode = "auto"
    ) -> "SyncGroupStream[SyncGroupMessage]": ...

    @overload
    def subscribe_set(
        self, name: str, *, gaps: Literal[True], ack: AckMode = "auto"
    ) -> "SyncGroupStream[SyncGroupMessage | GroupGap]": ...

    def subscribe_set(self, name: str, **options: Any) -> "SyncGroupStream[Any]":
        """As Client.subscribe_set, as a plain iterator."""
        return self._group(lambda: self._client.subscribe_set(name, **options))

    @overload
    def subscribe_prefix(
        self, prefix: str, *, gaps: Literal[False] = False, ack: AckMode = "auto"
    ) -> "SyncGroupStream[SyncGroupMessage]": ...

    @overload
    def subscribe_prefix(
        self, prefix: str, *, gaps: Literal[True], ack: AckMode = "auto"
    ) -> "SyncGroupStream[SyncGroupMessage | GroupGap]": ...

    def subscribe_prefix(self, prefix: str, **options: Any) -> "SyncGroupStream[Any]":
        """As Client.subscribe_prefix, as a plain iterator."""
        return self._group(lambda: self._client.subscribe_prefix(prefix, **options))

    @overload
    def subscribe_group(
        self, subscriptions: Iterable[str], *, gaps: Literal[False] = False, ack: AckMode = "auto"
    ) -> "SyncGroupStream[SyncGroupMessage]": ...

    @overload
    def subscribe_group(
        self, subscriptions: Iterable[str], *, gaps: Literal[True], ack: AckMode = "auto"
    ) -> "SyncGroupStream[SyncGroupMessage | GroupGap]": ...

    def subscribe_group(self, subscriptions: Iterable[str], **options: Any) -> "SyncGroupStream[Any]":
        """As Client.subscribe_group, as a plain iterator."""
        return self._group(lambda: self._client.subscribe_group(subscriptions, **options))

    def _group(self, subscribe: Callable[[], GroupStream[Any]]) -> "SyncGroupStream[Any]":
        async def make() -> GroupStream[Any]:
            return subscribe()

        return SyncGroupStream(self, self._run(make()))

    def history(self, *range_: Any, **options: Any) -> Iterator[HistoryEvent]:
        """As Client.history, as a plain iterator."""
        found = self._client.history(*range_, **options)

        async def take() -> list[HistoryEvent]:
            # One turn of the loop for many events.
            return [each async for each in _first(found, 1_000)]

        while some := self._run(take()):
            yield from some

    publish = _blocking(Client.publish)
    publish_once = _blocking(Client.publish_once)
    publish_encoded_once = _blocking(Client.publish_encoded_once)
    create_subscription = _blocking(Client.create_subscription)
    replace_subscription = _blocking(Client.replace_subscription)
    delete_subscription = _blocking(Client.delete_subscription)
    subscription = _blocking(Client.subscription)
    subscriptions = _collecting(Client.subscriptions)
    subscribe_many = _blocking(Client.subscribe_many)
    sets = _collecting(Client.sets)
    delete_set = _blocking(Client.delete_set)
    test_filter = _blocking(Client.test_filter)
    explain_filter = _blocking(Client.explain_filter)
    log = _blocking(Client.log)
    log_table = _blocking(Client.log_table)
    mailbox = _blocking(Client.mailbox)
    mailbox_table = _blocking(Client.mailbox_table)
    acknowledge = _blocking(Client.acknowledge)
    ready = _blocking(Client.ready)
    status = _blocking(Client.status)
    pipeline = _blocking(Client.pipeline)
    slices = _blocking(Client.slices)
    add_slice = _blocking(Client.add_slice)
    remove_slice = _blocking(Client.remove_slice)
    overlay = _blocking(Client.overlay)
    forget_site = _blocking(Client.forget_site)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._open_thread(work).run(work)

    def _open_thread(self, work: Coroutine[Any, Any, Any]) -> LoopThread:
        if self._thread is None or self._thread.is_closed:
            work.close()
            state = "not open yet; use `with`" if self._thread is None else "closed"
            raise ClientError(f"the client is {state}")
        return self._thread


async def _first(items: AsyncIterator[Result], count: int) -> AsyncIterator[Result]:
    for _ in range(count):
        try:
            yield await anext(items)
        except StopAsyncIteration:
            return


AsyncStream = TypeVar("AsyncStream", bound=ItemStream[Any, Any])


class SyncItemStream(Generic[SyncItem, AsyncStream]):
    """As ItemStream, a plain iterator and context manager."""

    def __init__(self, client: SyncClient, stream: AsyncStream) -> None:
        self._client = client
        self._stream = stream

    @property
    def gaps(self) -> int:
        return self._stream.gaps

    def start(self) -> None:
        self._client._run(self._stream.start())

    def __iter__(self) -> Iterator[SyncItem]:
        return self

    def __next__(self) -> SyncItem:
        item = self.next(None)
        if item is None:
            raise StopIteration
        return item

    def next(self, timeout_seconds: float | None) -> SyncItem | None:
        """The next item; None when the time is up or the subscription has ended."""

        async def take() -> Any:
            # The limit lies inside the loop: outside, an item could be taken and nobody left to get it.
            try:
                async with asyncio.timeout(timeout_seconds):
                    return await anext(self._stream, None)
            except TimeoutError:
                return None

        return cast(SyncItem | None, self._blocking_form(self._client._run(take())))

    def _blocking_form(self, item: Any) -> Any:
        def acknowledge(_: object) -> None:
            self._client._run(item.ack())

        if isinstance(item, Message):
            return SyncMessage(item.event, item.offset, item.subscription, acknowledge)
        if isinstance(item, GroupMessage):
            return SyncGroupMessage(item.event, item.offset, item.subscriptions, acknowledge, item.mark)
        return item

    def close(self) -> None:
        self._client._run(self._stream.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncStream(SyncItemStream[SyncItem, Stream[Any]]):
    """As Stream, a plain iterator and context manager."""

    @property
    def subscription(self) -> str:
        return self._stream.subscription

    @property
    def since(self) -> int | None:
        return self._stream.since

    @property
    def warnings(self) -> tuple[FilterWarning, ...]:
        return self._stream.warnings


class SyncGroupStream(SyncItemStream[SyncItem, GroupStream[Any]]):
    """As GroupStream, a plain iterator and context manager."""

    @property
    def count(self) -> int | None:
        return self._stream.count


connect_sync = SyncClient
