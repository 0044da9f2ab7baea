"""An event loop in a thread of its own: how a synchronous client runs an asynchronous one."""

import asyncio
import functools
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Enters a context on its loop when it starts, and leaves it before the loop ends. Other threads run coroutines
    there and wait for them. It starts and ends once."""

    def __init__(self, name: str, life: AbstractAsyncContextManager[Any]) -> None:
        self._life = life
        opened: Future[asyncio.AbstractEventLoop] = Future()
        serve = functools.partial(asyncio.run, self._serve(opened))
        self._thread = threading.Thread(target=serve, name=name, daemon=True)
        self._thread.start()
        self._loop = opened.result()

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

    async def _serve(self, opened: "Future[asyncio.AbstractEventLoop]") -> None:
        self._closing = asyncio.Event()
        try:
            async with self._life:
                opened.set_result(asyncio.get_running_loop())
                await self._closing.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        # Calls that waited have got their error; they end before the loop does.
        await asyncio.sleep(0)
