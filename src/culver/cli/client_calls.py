"""How a command runs a client, and reads an answer into a record."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from culver.errors import ConnectionFailed

_T = TypeVar("_T")


def run_async(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a client's work to its end. Ctrl-C cancels it, lets it close its connection, and is raised."""
    return asyncio.run(work)


def read_answer(answer: dict[str, Any], record: type[_T]) -> _T:
    """The site's answer as a record. Raises ConnectionFailed where the two do not fit."""
    try:
        return msgspec.convert(answer, record)
    except msgspec.ValidationError as exc:
        raise ConnectionFailed(
            f"the site's answer is not understood ({exc}); is it a newer or older version?"
        ) from exc
