"""What a client reads by offset: the history of the log, and ranges of a mailbox."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from culver.client.link import Link, subscription_path
from culver.client.receiving.received_messages import HistoryEvent
from culver.client.row_pieces import ARROW_STREAM
from culver.errors import InvalidRequest
from culver.messages import Acknowledgement, GapItem, LogRange, MailboxPart, StoredEvents

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Include = Literal["event", "attributes", "both"]


class LogTable(msgspec.Struct, frozen=True):
    """A page of events as an Arrow table, where to read on, and the gaps among them."""

    events: "pa.Table"
    next: int
    gaps: tuple[GapItem, ...]


class LogCalls(ABC):
    """A part of Client."""

    @abstractmethod
    def _open_link(self) -> Link: ...

    @abstractmethod
    def _count_gap(self) -> None: ...

    async def log(self, time: datetime | None = None) -> LogRange:
        """Which offsets the site's log has. With a time, also the first one that was received then or later."""
        if time is not None and time.tzinfo is None:
            raise InvalidRequest("a time needs an offset from UTC: datetime(..., tzinfo=UTC)", field="time")
        moment = None if time is None else time.isoformat()
        return await self._open_link().ask(LogRange, "GET", "/v1/log", time=moment)

    async def history(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        filter_text: str | None = None,
    ) -> AsyncIterator[HistoryEvent]:
        """The events that the log still has, from offset `start` up to, not including, `end`, or those that the site
        received from `since` up to `until`. Without a beginning, from the first on; without an end, those there are
        now. With a filter, only those that match it.

        Nobody's mailbox changes. Damaged events are logged as a warning and counted in `gaps`. Raises RequestRefused
        with the code `gone` where the log begins later; `first_offset` among its details says where.
        """
        if (start is not None and since is not None) or (end is not None and until is not None):
            raise InvalidRequest("give offsets or times, not both", field="since" if since else "until")
        bounds = await self.log()
        at = await self._offset_of(start, since, bounds.first_offset)
        stop = min(await self._offset_of(end, until, bounds.next_offset), bounds.next_offset)
        while at < stop:
            page = await self._open_link().ask(
                StoredEvents, "GET", "/v1/log/events", **_range(at, stop, 1_000), filter=filter_text
            )
            for event in page.events:
                yield HistoryEvent(event.event, event.offset, event.received)
            for gap in page.gaps:
                logger.warning("events from offset %d up to %d are damaged in the log", gap.start, gap.end)
                self._count_gap()
            at = page.next

    async def log_table(
        self,
        start: int,
        end: int,
        limit: int = 10_000,
        *,
        filter_text: str | None = None,
        attributes: Sequence[str] = (),
        include: Include = "event",
    ) -> LogTable:
        """One page of the history in columns."""
        return await self._table("/v1/log/events", start, end, limit, attributes, include, filter=filter_text)

    async def mailbox(
        self,
        id: str,  # noqa: A002
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int = 100_000,
        part: int = 10_000,
        wait_seconds: float = 0.0,
    ) -> MailboxPart:
        """What waits in the mailbox of a durable subscription, in numbers. Nothing is acknowledged."""
        query = {**_range(start, end, limit), "part": part, "wait": wait_seconds}
        return await self._open_link().ask(MailboxPart, "GET", subscription_path(id, "/mailbox"), **query)

    async def mailbox_table(
        self,
        id: str,  # noqa: A002
        start: int,
        end: int,
        limit: int = 10_000,
        *,
        attributes: Sequence[str] = (),
        include: Include = "event",
    ) -> LogTable:
        """One page of a range of a mailbox, in columns. Nothing is acknowledged, so it can be read again."""
        path = subscription_path(id, "/mailbox/events")
        return await self._table(path, start, end, limit, attributes, include)

    async def acknowledge(self, id: str, offset: int) -> None:  # noqa: A002
        """Be done with everything up to and including an offset in the mailbox of a durable subscription. Returns
        once that is on the site's disk."""
        body = Acknowledgement(delivery_id=f"{id}:{offset}")
        await self._open_link().http("POST", subscription_path(id, "/ack"), body=body)

    async def _offset_of(self, offset: int | None, time: datetime | None, otherwise: int) -> int:
        if time is None:
            return otherwise if offset is None else offset
        found = (await self.log(time)).offset
        assert isinstance(found, int)
        return found

    async def _table(
        self,
        path: str,
        start: int,
        end: int,
        limit: int,
        attributes: Sequence[str],
        include: Include,
        **query: Any,
    ) -> LogTable:
        import pyarrow as pa

        query |= {**_range(start, end, limit), "attribute": list(attributes), "include": include}
        _, body = await self._open_link().http("GET", path, answer_type=ARROW_STREAM, **query)
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        metadata = table.schema.metadata
        gaps = msgspec.json.decode(metadata[b"gaps"], type=tuple[GapItem, ...])
        return LogTable(table, int(metadata[b"next"]), gaps)


def _range(start: int | None, end: int | None, limit: int) -> dict[str, Any]:
    return {"from": start, "to": end, "limit": limit}
