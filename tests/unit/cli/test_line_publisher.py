import asyncio
import io
import os

import pytest

from culver.cli.line_publisher import read_chunks


def test_chunks_come_as_soon_as_they_are_written() -> None:
    async def scenario() -> list[bytes]:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source:
            chunks = read_chunks(source)
            os.write(writing, b"one\n")
            first = await anext(chunks)
            os.write(writing, b"two\n")
            second = await anext(chunks)
            os.close(writing)
            return [first, second, *[chunk async for chunk in chunks]]

    assert asyncio.run(scenario()) == [b"one\n", b"two\n"]


def test_a_source_without_a_descriptor_is_read_as_well() -> None:
    async def scenario() -> bytes:
        return b"".join([chunk async for chunk in read_chunks(io.BytesIO(b"x" * 200_000))])

    assert asyncio.run(scenario()) == b"x" * 200_000


def test_a_source_that_fails_raises_its_error() -> None:
    async def scenario() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as source:  # not open for reading
            async for _ in read_chunks(source):
                pass

    with pytest.raises(OSError, match="descriptor"):
        asyncio.run(scenario())
