"""The synchronous client of channels: runs the asynchronous one on an event loop in its own thread."""

import functools
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from culver.channels.channel_client import Channels
from culver.channels.channel_connections import Response
from culver.channels.channel_pubsub import Handler, Message, PubSub, Value, log_gap
from culver.errors import ConnectionFailed
from culver.loop_thread import LoopThread

Result = TypeVar("Result")
P = ParamSpec("P")

_MOST_TAKEN = 1_000
_POLL_SECONDS = 0.1


def _blocking(
    method: Callable[Concatenate[Channels, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["SyncChannels", P], Result]:
    """The method of a SyncChannels that runs one of a Channels and waits for it."""

    @functools.wraps(method)
    def call(self: "SyncChannels", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._run(method(self._channels, *args, **kwargs))

    return call


class SyncChannels:
    """As ``Channels``, blocking. Its methods may be called from several threads. Close it, or use it as ``with``."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._channels = Channels(url, **options)
        self._starting = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        return cls(url, **options)

    @property
    def url(self) -> str:
        return self._channels.url

    def __enter__(self) -> Self:
        try:
            self._run(self._channels.__aenter__())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all subscriptions and closes the connections. Calls that still wait fail."""
        with self._starting:
            self._closed = True
            if self._thread is not None:
                self._thread.close()

    publish = _blocking(Channels.publish)
    ping = _blocking(Channels.ping)
    pubsub_channels = _blocking(Channels.pubsub_channels)
    pubsub_numsub = _blocking(Channels.pubsub_numsub)
    pubsub_numpat = _blocking(Channels.pubsub_numpat)

    def publish_soon(self, channel: Value, message: Value) -> "Future[int]":
        """Publishes without waiting: the future has the number of subscribers or the error. Bound the futures that
        you hold yourself."""
        work = self._channels.publish(channel, message)
        return self._running_thread(work).submit(work)

    def pubsub(self, **options: Any) -> "SyncPubSub":
        """Takes the options of ``Channels.pubsub``. Handlers are called in the thread that reads."""
        return SyncPubSub(self, self._channels.pubsub(**options))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._running_thread(work).run(work)

    def _running_thread(self, work: Coroutine[Any, Any, Any]) -> LoopThread:
        with self._starting:
            if self._closed:
                work.close()
                raise ConnectionFailed("the client is closed: make a new one")
            if self._thread is None:
                # The first call connects, and gets the error if that fails.
                self._thread = LoopThread("culver-channels", aclosing(self._channels))
            return self._thread


class SyncPubSub:
    """As ``PubSub``, blocking. One thread reads it; others may subscribe and unsubscribe meanwhile."""

    def __init__(self, client: SyncChannels, pubsub: PubSub) -> None:
        self._client = client
        self._pubsub = pubsub
        self._taken: deque[Response] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all subscriptions. A thread that waits for a message gets None. The object can subscribe again."""
        if not self._client._closed:
            self._client._run(self._pubsub.aclose())
        self._taken.clear()

    reset = close

    @property
    def subscribed(self) -> bool:
        """Whether there is a subscription, or the end of one that was not read yet."""
        return self._pubsub.subscribed

    @property
    def channels(self) -> dict[bytes | str, Handler | None]:
        return self._pubsub.channels

    @property
    def patterns(self) -> dict[bytes | str, Handler | None]:
        return self._pubsub.patterns

    def subscribe(self, *channels: Any, **handlers: Handler) -> None:
        self._client._run(self._pubsub.subscribe(*channels, **handlers))

    def psubscribe(self, *patterns: Any, **handlers: Handler) -> None:
        self._client._run(self._pubsub.psubscribe(*patterns, **handlers))

    def unsubscribe(self, *channels: Any) -> None:
        self._client._run(self._pubsub.unsubscribe(*channels))

    def punsubscribe(self, *patterns: Any) -> None:
        self._client._run(self._pubsub.punsubscribe(*patterns))

    def ping(self, message: Value | None = None) -> bool:
        return self._client._run(self._pubsub.ping(message))

    def get_message(
        self, ignore_subscribe_messages: bool = False, timeout: float | None = 0.0
    ) -> Message | None:
        """The next message; None if none comes within ``timeout`` seconds, or if a handler has taken it.

        :raises RuntimeError: nothing was ever subscribed.
        :raises ConnectionFailed: the client is closed.
        """
        if not self._taken:
            self._taken.extend(self._client._run(self._pubsub.take_many(timeout, _MOST_TAKEN)))
            if not self._taken:
                return None
        response = self._pubsub.decoded(self._taken.popleft())
        message, handler = self._pubsub.read(response, ignore_subscribe_messages)
        if message is None or handler is None:
            return message
        handler(message)
        return None

    def listen(self) -> Iterator[Message]:
        """Iterates over messages as long as there are subscriptions."""
        while self.subscribed:
            message = self.get_message(timeout=None)
            if message is not None:
                yield message

    def __iter__(self) -> Iterator[Message]:
        return self.listen()

    def run_in_thread(
        self,
        sleep_time: float = 0.0,
        daemon: bool = False,
        exception_handler: Callable[[BaseException, "SyncPubSub", "PubSubThread"], None] | None = None,
    ) -> "PubSubThread":
        """Reads messages for the handlers in a thread of its own. Its ``stop`` ends it and the subscriptions.

        :raises RuntimeError: a subscription has no handler.
        """
        self._pubsub.require_handlers()
        thread = PubSubThread(self, sleep_time or _POLL_SECONDS, daemon, exception_handler)
        thread.start()
        return thread


class PubSubThread(threading.Thread):
    """Reads the messages of a ``SyncPubSub`` for its handlers."""

    def __init__(
        self,
        pubsub: SyncPubSub,
        poll_seconds: float,
        daemon: bool,
        exception_handler: Callable[[BaseException, SyncPubSub, "PubSubThread"], None] | None,
    ) -> None:
        super().__init__(name="culver-pubsub", daemon=daemon)
        self._pubsub = pubsub
        self._poll_seconds = poll_seconds
        self._exception_handler = exception_handler
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    log_gap(self._pubsub.get_message(True, self._poll_seconds))
                except BaseException as error:
                    if self._exception_handler is None:
                        raise
                    self._exception_handler(error, self._pubsub, self)
        finally:
            self._pubsub.close()

    def stop(self) -> None:
        """Asks the thread to end, within the poll time. ``join`` waits for it."""
        self._stopping.set()
