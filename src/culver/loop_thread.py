"""An event loop in a thread of its own: how a synchronous client runs an asynchronous one."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Enters a context on its loop when it starts, and leaves it before the loop ends. Other threads run coroutines
    there and wait for them. It starts and ends once. Where entering fails or is interrupted, no thread is left."""

    def __init__(self, name: str, life: AbstractAsyncContextManager[Any]) -> None:
        self._life = life
        begun: Future[Callable[[], object]] = Future()
        opened: Future[None] = Future()
        serve = functools.partial(asyncio.run, self._serve(begun, opened))
        self._thread = threading.Thread(target=serve, name=name, daemon=True)
        self._thread.start()
        give_up = begun.result()
        try:
            opened.result()
        except BaseException:  # entering failed, or an interrupt ended the wait for it
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(give_up)
            self._thread.join()
            raise

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Returns when the loop has ended. Closing again changes nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Runs without waiting.

        :raises RuntimeError: the loop has ended.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs and waits. An interrupt cancels the work."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _serve(self, begun: "Future[Callable[[], object]]", opened: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        begun.set_result(task.cancel)
        try:
            async with self._life:
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
                return
            if not isinstance(error, asyncio.CancelledError):
                raise
        # Calls that waited have got their error; they end before the loop does.
        await asyncio.sleep(0)
