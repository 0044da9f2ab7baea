"""Reads Server-Sent Events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx


class Stream:
    """Reads messages of an event stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def message(self) -> dict[str, str]:
        """The next message; a comment is one with the name ''."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(10):
            async for line in self._lines:
                if not line and fields:
                    return fields
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
        return {"event": "END"}


@asynccontextmanager
async def streaming(
    client: httpx.AsyncClient, path: str, *, first: str = "subscribed", **options: Any
) -> AsyncIterator[tuple[Stream, dict[str, Any]]]:
    """A stream, and the data of its first message, which is `first`."""
    async with client.stream("GET", path, **options) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        stream = Stream(response)
        hello = await stream.message()
        assert hello["event"] == first
        yield stream, json.loads(hello["data"])
