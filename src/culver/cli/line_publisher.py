"""Publishes a stream of lines: in batches of what has arrived, with a bounded number of batches under way."""

import asyncio
import io
import os
import re
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import IO

import click

from culver.cli.printable_text import printable
from culver.client import Client, Receipt
from culver.config import EventSettings
from culver.errors import ConnectionFailed, CulverError, InvalidEvent, RequestRefused, counted
from culver.model.formats import LineSplitter, parse_event

_CHUNK_BYTES = 64 * 1024
_CHUNKS_AHEAD = 4
_BATCH_EVENTS = 500
_BATCH_BYTES = 256 * 1024
_BATCHES_IN_FLIGHT = 8
_MAX_LINE_BYTES = 16 * 1024 * 1024
_SHOWN_REFUSALS = 20
_PROGRESS_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0
_ABOUT_ONE_EVENT = ("invalid_event", "too_large", "invalid_request")
_TRY_LATER = ("rate_limited", "unavailable")
# Of the event that a refusal is about, as in "events[3].price".
_AT_PLACE = re.compile(r"(?:events)?\[(\d{1,9})\][.:]?\s*")
# The rules that hold on every site; each site has its own limits of an event's size.
_VALUE_RULES = EventSettings(max_bytes=2**62, max_attributes=2**62, max_name_length=2**62, max_depth=256)

_NumberedLine = tuple[int, bytes]
"""A line's number, and the event on it."""


@dataclass(slots=True)
class PublishSummary:
    published: int = 0
    refused: int = 0
    last_offset: int = -1

    @property
    def total(self) -> int:
        return self.published + self.refused

    def describe(self) -> str:
        if self.published == 0:
            return "no events"
        if self.published == 1:
            return f"1 event at offset {self.last_offset}"
        return f"{self.published} events, the last at offset {self.last_offset}"


class LinePublisher:
    """Reports refused lines and goes on. Any other error (the connection is lost, the disk is full) ends the run, and
    says how far it came."""

    def __init__(self, client: Client, *, show_progress: bool) -> None:
        self._client = client
        self._show_progress = show_progress
        self._shown_at = time.monotonic()
        self._slots = asyncio.Semaphore(_BATCHES_IN_FLIGHT)
        self._summary = PublishSummary()

    async def run(self, source: IO[bytes]) -> PublishSummary:
        try:
            async with asyncio.TaskGroup() as group:
                splitter = LineSplitter(_MAX_LINE_BYTES)
                async for chunk in read_chunks(source):
                    await self._send(group, splitter.feed(chunk))
                await self._send(group, splitter.end())
        except* (CulverError, OSError) as failures:
            raise self._explain(_first(failures)) from failures
        finally:
            if self._show_progress:
                click.echo("\r\x1b[K", nl=False, err=True)
        return self._summary

    async def _send(self, group: asyncio.TaskGroup, lines: list[tuple[int, bytes | None]]) -> None:
        batch: list[_NumberedLine] = []
        size = 0
        for number, line in lines:
            event = self._check(number, line)
            if event is None:
                continue
            if batch and (len(batch) >= _BATCH_EVENTS or size + len(event) > _BATCH_BYTES):
                await self._start(group, batch)
                batch, size = [], 0
            batch.append((number, event))
            size += len(event)
        if batch:
            await self._start(group, batch)

    def _check(self, number: int, line: bytes | None) -> bytes | None:
        if line is None:
            self._refuse(number, f"longer than {_MAX_LINE_BYTES} bytes")
        elif line.strip():
            try:
                parse_event(line, _VALUE_RULES)
                return line.strip()
            except CulverError as exc:
                self._refuse(number, exc.message)
        return None

    async def _start(self, group: asyncio.TaskGroup, batch: list[_NumberedLine]) -> None:
        await self._slots.acquire()
        group.create_task(self._publish(batch)).add_done_callback(lambda _: self._slots.release())

    async def _publish(self, batch: list[_NumberedLine], *, again: bool = False) -> None:
        """Publish a batch. A site accepts all of it or nothing, so a refused one is sent again without the line at
        fault."""
        try:
            receipt = await self._insist([event for _, event in batch], over_http=again)
        except RequestRefused as exc:
            if exc.details.get("code") not in _ABOUT_ONE_EVENT:
                raise
            place = _AT_PLACE.match(exc.field or "")
            culprit = 0 if len(batch) == 1 else int(place[1]) if place else len(batch)
            if culprit >= len(batch):
                for line in batch:
                    await self._publish([line], again=True)
                return
            self._refuse(batch[culprit][0], _AT_PLACE.sub("", exc.message))
            rest = batch[:culprit] + batch[culprit + 1 :]
            if rest:
                await self._publish(rest, again=True)
            return
        self._summary.published += receipt.next_offset - receipt.first_offset
        self._summary.last_offset = max(self._summary.last_offset, receipt.next_offset - 1)
        self._progress()

    async def _insist(self, events: list[bytes], *, over_http: bool) -> Receipt:
        """Publish, again and again while the site asks for patience: it has stored nothing then."""
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return await self._client.publish_encoded(events, over_http=over_http)
            except RequestRefused as exc:
                if exc.details.get("code") not in _TRY_LATER or time.monotonic() > give_up_at:
                    raise
                pause = exc.details.get("retry_after_seconds")
                await asyncio.sleep(min(5.0, pause) if isinstance(pause, int | float) else 0.5)

    def _refuse(self, number: int, reason: str) -> None:
        self._summary.refused += 1
        if self._summary.refused <= _SHOWN_REFUSALS:
            click.echo(f"culver: line {number}: {printable(reason)}", err=True)
        elif self._summary.refused == _SHOWN_REFUSALS + 1:
            click.echo("culver: further refused lines are only counted", err=True)

    def _progress(self) -> None:
        now = time.monotonic()
        if self._show_progress and now - self._shown_at >= _PROGRESS_SECONDS:
            self._shown_at = now
            click.echo(f"\r\x1b[K{counted(self._summary.published, 'event')}", nl=False, err=True)

    def _explain(self, error: CulverError | OSError) -> CulverError:
        if isinstance(error, OSError):
            return InvalidEvent(f"cannot read standard input: {error.strerror or error}")
        verb = "was" if self._summary.published == 1 else "were"
        done = f"{counted(self._summary.published, 'event')} {verb} acknowledged before this"
        if isinstance(error, ConnectionFailed) and self._summary.published:
            done += "; whether those under way were stored is unknown"
        message = f"{error.message} ({done})" if self._summary.published else error.message
        error.message, error.args = message, (message,)
        return error


def _first(failures: BaseExceptionGroup[CulverError | OSError]) -> CulverError | OSError:
    """The first error of a group, however deep; the others have the same cause."""
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, CulverError | OSError)
    return error


async def read_chunks(source: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields what the source has as soon as it has something, and reads at most a few chunks ahead.

    A daemon thread reads, because a read may block when the program ends and must not hold it up. It reads the
    descriptor itself if there is one, because the lock of a buffered reader would hold the program up too.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(_CHUNKS_AHEAD)

    def read() -> bytes:
        try:
            descriptor = source.fileno()
        except (io.UnsupportedOperation, AttributeError):
            return source.read(_CHUNK_BYTES)
        return os.read(descriptor, _CHUNK_BYTES)

    def work() -> None:
        chunk = b"?"
        while chunk:
            item: bytes | OSError
            try:
                item = chunk = read()
            except OSError as exc:
                item, chunk = exc, b""
            putting = chunks.put(item)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, asyncio.CancelledError):
                putting.close()
                return

    threading.Thread(target=work, name="culver-stdin", daemon=True).start()
    while True:
        item = await chunks.get()
        if isinstance(item, OSError):
            raise item
        if not item:
            return
        yield item
