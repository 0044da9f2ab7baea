"""`spark.readStream.format("culver")`: a durable subscription, exactly once into a checkpointed query.

    Spark's checkpoint   offsets 4 = {"offset": 120}   commits 3
    the mailbox          ... acknowledged up to 80 | 80 ... 119 | 120 ...     (offsets 3 = {"offset": 80})
                                                     batch 4

The offset of the query is a position in the log: all deliveries below it have been planned. Spark writes it down
before the batch runs, and a batch that runs again has the same bounds. The mailbox keeps its deliveries until they
are acknowledged, which only `commit` does: Spark calls it when the batch is in its log of commits. So a range can be
read as often as necessary, in parts, by any worker, and is read for good once.

A filter without a subscription is live: the source makes a temporary subscription, reads that, and renews it while
the query is open. It expires some minutes after the query has ended, and a query that comes back earlier misses
nothing.
"""

import itertools
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from culver.client import LogTable, SyncClient
from culver.errors import Conflict, DataLoss, RequestRefused, Unavailable
from culver.messages import GapItem, MailboxPart
from culver.spark.event_columns import EventColumns
from culver.spark.live_lease import LIVE_SECONDS, LiveLease, renew
from culver.spark.site_access import SiteAccess
from culver.spark.source_options import StreamOptions, stream_options

# So an idle query asks twice a second instead of a hundred times.
_WAIT_SECONDS = 0.5
_WHOLE_RANGE = 1_000_000
# The answers by which events are lost: they are acknowledged, or their subscription is no more.
_GONE = ("gone", "not_found")

logger = logging.getLogger(__name__)

Offset = dict[str, Any]


class MailboxRange(InputPartition):
    """`[start, end)` of a mailbox."""

    def __init__(self, subscription: str, start: int, end: int) -> None:
        super().__init__(None)
        self.subscription = subscription
        self.start = start
        self.end = end


def stream_reader(options: Mapping[str, str], schema: StructType) -> "MailboxStreamReader":
    return MailboxStreamReader(stream_options(options), EventColumns(schema))


class MailboxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and commits in one process beside the driver; `read` runs in the workers."""

    def __init__(self, options: StreamOptions, columns: EventColumns) -> None:
        self._options = options
        self._columns = columns
        self._link = SiteAccess(options.url, options.wait_seconds)
        self._lease: LiveLease | None = None  # beside the driver, of a live query
        self._target: int | None = None  # where a query that reads what is available now ends

    # --- beside the driver ---

    def initialOffset(self) -> Offset:  # noqa: N802
        # Spark asks for this more than once, and again for a first batch that it repeats, so it must not differ.
        if self._options.subscription is None:
            return {"subscription": None, "offset": 0}
        part = self._link.ask(lambda client: client.mailbox(self._named(), limit=1))
        return {"subscription": self._named(), "offset": part.acknowledged}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_events_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._link.ask(lambda client: client.log()).next_offset

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Waits a little for deliveries. Behind the last one that there is, the offset stays where it is, however
        many other events are published."""
        self._check_subscription(start)
        if start["subscription"] is None:
            return self._begin_live()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_events_per_batch
        complete, deadline = -1, 0.0
        while self._target is None or start["offset"] < self._target:
            try:
                self._keep(start["subscription"])
                part = self._link.ask(
                    partial(_look, start["subscription"], start["offset"], self._target, most)
                )
            except RequestRefused as exc:
                return self._begin_again(start, exc)
            self._report(part.gaps)
            if part.complete < start["offset"]:
                self._check_log(start)
            if part.end > start["offset"] and (part.count or part.gaps):
                return {**start, "offset": part.end}
            if self._target is None or part.complete >= self._target:
                break
            if part.complete > complete:
                complete, deadline = part.complete, time.monotonic() + self._options.wait_seconds
            elif time.monotonic() >= deadline:
                raise Unavailable(
                    f"{self._options.url} has matched the events up to offset {complete} and no more for "
                    f"{self._options.wait_seconds:g} s; this query ends at offset {self._target}. See the site's log "
                    "for why its matching stands still"
                )
            time.sleep(_WAIT_SECONDS / 10)  # published before the query began, and not matched yet
        return start

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._check_subscription(start)
        if start["subscription"] != end["subscription"]:
            return []  # a live query has begun, or begun again
        ranges: list[InputPartition] = []
        at, last = start["offset"], end["offset"]
        while at < last:
            try:
                self._keep(end["subscription"])
                part = self._link.ask(partial(self._part, end["subscription"], at, last))
            except RequestRefused as exc:
                at = self._lose_if_gone(exc, end["subscription"], at, last)
                continue
            bounds = part.bounds
            ranges += [
                MailboxRange(end["subscription"], low, high)
                for low, high in itertools.pairwise(bounds)
                if part.count
            ]
            at = part.end
        return ranges

    def commit(self, end: Offset) -> None:
        """Spark has the batch in its log of commits. Acknowledging twice, or an older offset, changes nothing."""
        if end["offset"] > 0:
            try:
                self._link.ask(lambda client: client.acknowledge(end["subscription"], end["offset"] - 1))
            except RequestRefused as exc:
                if exc.details.get("code") != "not_found":
                    raise
                logger.warning("the batch is done, but cannot be acknowledged: %s", exc)

    def stop(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    # --- in the workers ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, MailboxRange)
        return self._columns.batches(self._pages(partition), partition.subscription)

    def _pages(self, partition: MailboxRange) -> Iterator[LogTable]:
        at = partition.start
        while at < partition.end:
            try:
                page = self._link.ask(partial(self._page, partition.subscription, at, partition.end))
            except RequestRefused as exc:
                at = self._lose_if_gone(exc, partition.subscription, at, partition.end)
                continue
            self._report(page.gaps)
            yield page
            at = page.next

    def _page(self, subscription: str, start: int, end: int, client: SyncClient) -> LogTable:
        columns = self._columns
        return client.mailbox_table(
            subscription, start, end, attributes=columns.attributes, include=columns.include
        )

    # --- inside ---

    def _named(self) -> str:
        assert self._options.subscription is not None
        return self._options.subscription

    def _check_subscription(self, start: Offset) -> None:
        named = self._options.subscription
        if named is not None and start["subscription"] != named:
            raise Conflict(
                f"the checkpoint belongs to subscription {start['subscription']!r}, not {named!r}: use a checkpoint "
                "of its own for each subscription",
                field="subscription",
            )

    def _check_log(self, start: Offset) -> None:
        """A site that was killed matches its latest events again; one that was restored has other ones to come."""
        end = self._link.ask(lambda client: client.log()).next_offset
        if end < start["offset"]:
            raise DataLoss(
                f"the log of {self._options.url} ends at offset {end}, before offset {start['offset']} of this "
                "query: was the site restored from a copy? Begin with a new checkpoint"
            )

    def _part(self, subscription: str, start: int, end: int, client: SyncClient) -> MailboxPart:
        part = self._options.events_per_partition
        return client.mailbox(subscription, start, end, limit=_WHOLE_RANGE, part=part)

    def _begin_live(self) -> Offset:
        text = self._options.filter
        assert text is not None
        # Each attempt has an id of its own: one whose answer was lost may have made its subscription, which expires.
        made = self._link.ask(
            lambda client: client.create_subscription(
                text, id=f"spark-{uuid.uuid4().hex}", expires_in_seconds=LIVE_SECONDS
            )
        )
        self.stop()
        self._lease = LiveLease(self._options.url, made.id, text)
        return {"subscription": made.id, "offset": made.since}

    def _keep(self, subscription: str) -> None:
        """Have the subscription of a live query renewed, now and until the reader stops."""
        text = self._options.filter
        if text is not None and self._lease is None:
            renew(self._link, subscription, text)
            self._lease = LiveLease(self._options.url, subscription, text)

    def _begin_again(self, start: Offset, exc: RequestRefused) -> Offset:
        """A live subscription has expired while no query read it; anything else is an error."""
        code = exc.details.get("code")
        if code not in _GONE:
            raise exc
        if self._options.subscription is not None or code != "not_found":
            raise DataLoss(_explained(exc, start["subscription"], start["offset"])) from exc
        again = self._begin_live()
        self._lose(
            f"the query was away for longer than {LIVE_SECONDS:g} s: events from offset {start['offset']} up to "
            f"{again['offset']} may be missing",
            exc,
        )
        return again

    def _lose_if_gone(self, exc: RequestRefused, subscription: str, start: int, end: int) -> int:
        """Where to read on. Any other failure is raised: what the site cannot give now is not lost."""
        if exc.details.get("code") not in _GONE:
            raise exc
        self._lose(_explained(exc, subscription, start), exc)
        following: int = exc.details.get("first_offset", end)
        return following

    def _report(self, gaps: "list[GapItem] | tuple[GapItem, ...]") -> None:
        for gap in gaps:
            count = "an unknown number of" if gap.dropped is None else str(gap.dropped)
            self._lose(
                f"{count} events from offset {gap.start} up to {gap.end} are missing from the mailbox ({gap.reason})"
            )

    def _lose(self, what: str, cause: Exception | None = None) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}; the option failOnDataLoss=false goes on without them") from cause
        logger.warning("%s", what)


def _look(subscription: str, start: int, target: int | None, most: int, client: SyncClient) -> MailboxPart:
    wait_seconds = _WAIT_SECONDS if target is None else 0.0
    part = client.mailbox(subscription, start, limit=most, wait_seconds=wait_seconds)
    if target is None or part.end <= target:
        return part
    return client.mailbox(subscription, start, target, limit=most)


def _explained(exc: RequestRefused, subscription: str, start: int) -> str:
    if exc.details.get("code") == "gone":
        return (
            f"somebody else has acknowledged deliveries of {subscription!r} that this query had not committed, from "
            f"offset {start} on: a subscription belongs to one query, with one checkpoint ({exc})"
        )
    return f"subscription {subscription!r} cannot be read from offset {start} on: {exc}"
