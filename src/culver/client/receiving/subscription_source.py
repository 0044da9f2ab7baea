"""A subscription as the client sees it: how it is attached, and attached again."""

from culver.client.link import Link, subscription_path
from culver.client.receiving.message_buffer import Buffer
from culver.client.websocket_connection import Connection, Receiver
from culver.errors import Conflict, RequestRefused
from culver.messages import Attach, FilterWarning, Gap, NewSubscription, Subscribe, Subscription


class Source:
    """A durable subscription has a name, and a mailbox on the site that keeps what was not acknowledged. It is made
    where it does not exist; one that exists must have the same filter, and its scheme stays as it is.

    A live one exists while connected. Each attachment is a new subscription on the site with a new name, and the
    site, told where the last one left off, announces what happened in between as a gap.

    `since` is None until the first attachment, then the position from which events are delivered. `warnings` are the
    site's doubts about the filter, from the answer that made the subscription."""

    def __init__(self, name: str | None, filter_text: str | None, scheme: str | None) -> None:
        self.durable = name is not None
        self.subscription = name or ""
        self.since: int | None = None
        self.warnings: list[FilterWarning] = []
        self._filter = filter_text
        self._scheme = scheme

    def __str__(self) -> str:
        return f"subscription {self.subscription!r}" if self.durable else "live subscription"

    def delivery_id(self, offset: int) -> str:
        return f"{self.subscription}:{offset}"

    async def prepare(self, link: Link) -> None:
        """Make sure that the site has a durable subscription."""
        if not self.durable or self._filter is None or self.since is not None:
            return
        try:
            body = NewSubscription(filter=self._filter, id=self.subscription, scheme=self._scheme)
            made = await link.ask(Subscription, "POST", "/v1/subscriptions", body=body)
            self.warnings = made.warnings or []
        except RequestRefused as exc:
            if exc.details.get("code") != "conflict":
                raise
            existing = await link.ask(Subscription, "GET", subscription_path(self.subscription))
            if existing.filter.strip() != self._filter.strip():
                raise Conflict(
                    f"subscription {self.subscription!r} exists with the filter {existing.filter!r}; "
                    "replace its filter, or leave the filter out to receive what it has",
                    field="filter",
                ) from exc

    async def attach(self, connection: Connection, receiver: Receiver, buffer: Buffer) -> Gap | None:
        """Attach, going on after `buffer.last_offset`; returns a gap that only the client can know of."""
        if not self.durable:
            return await self._attach_live(connection, receiver, buffer)
        after = self.delivery_id(buffer.last_offset) if buffer.last_offset >= 0 else None
        answer = await connection.subscribe(receiver, Attach(subscription=self.subscription, after=after))
        self.since = answer.since
        return None

    async def _attach_live(self, connection: Connection, receiver: Receiver, buffer: Buffer) -> Gap | None:
        assert self._filter is not None
        first_time = self.since is None
        missing_from = max(buffer.last_offset + 1, self.since or 0)
        after = None if first_time or missing_from == 0 else missing_from - 1
        message = Subscribe(filter=self._filter, scheme=self._scheme, after=after)
        answer = await connection.subscribe(receiver, message)
        self.subscription, self.since = answer.subscription, answer.since
        self.warnings = answer.warnings or []
        if first_time:
            return None
        if self.since < missing_from:
            # The site's log is shorter than what was seen of it: another log. Its offsets start anew.
            buffer.last_offset = self.since - 1
            return Gap(self.subscription, self.since, missing_from, None, "unavailable")
        if after is None and self.since > 0:
            # "After" cannot say "before the first offset", so the site had nothing to announce a gap from.
            return Gap(self.subscription, 0, self.since, None, "disconnected")
        return None
