import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from culver.loop_thread import LoopThread


@asynccontextmanager
async def life(record: list[str]) -> AsyncIterator[None]:
    record.append(f"entered in {threading.current_thread().name}")
    yield
    record.append("left")


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_the_thread_between_entering_and_leaving_its_context() -> None:
    record: list[str] = []
    thread = LoopThread("worker", life(record))
    assert thread.run(name_of_thread()) == "worker"
    assert thread.submit(name_of_thread()).result() == "worker"
    assert record == ["entered in worker"]
    thread.close()
    thread.close()
    assert record == ["entered in worker", "left"]
    assert thread.is_closed
    with pytest.raises(RuntimeError):
        thread.run(name_of_thread())


def test_a_context_that_cannot_be_entered_fails_in_the_thread_that_starts_it() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise OSError("no life")
        yield

    with pytest.raises(OSError, match="no life"):
        LoopThread("worker", broken())


def test_an_error_of_the_coroutine_is_raised_where_it_was_called() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("wrong")

    thread = LoopThread("worker", life([]))
    with pytest.raises(KeyError, match="wrong"):
        thread.run(fail())
    thread.close()
