"""Reads and acknowledges mailboxes of a site that may be killed at any moment, and keeps account."""

import threading
from collections.abc import Iterable

import httpx


class Mailbox:
    """What one subscription got. An event may come again as long as its acknowledgement was not answered; after
    that, never."""

    def __init__(self, subscription: str) -> None:
        self.subscription = subscription
        self.numbers: dict[int, int] = {}  # of each event, by its offset
        self.repeated = 0
        self.gaps: list[object] = []
        self._confirmed = -1

    def read(self, http: httpx.Client) -> int:
        """Take what waits, and acknowledge it; returns how many items there were. Raises httpx.HTTPError."""
        path = f"/v1/subscriptions/{self.subscription}"
        answer = http.get(f"{path}/events", params={"limit": 1000, "wait": 0})
        answer.raise_for_status()
        items = answer.json()["items"]
        for item in items:
            if item["type"] != "event":
                self.gaps.append(item)
            elif item["offset"] <= self._confirmed:
                self.repeated += 1
            else:
                assert item["delivery_id"] == f"{self.subscription}:{item['offset']}"
                number = item["event"]["n"]
                assert self.numbers.setdefault(item["offset"], number) == number
        if items:
            last = items[-1]
            http.post(f"{path}/ack", json={"delivery_id": last["delivery_id"]}).raise_for_status()
            self._confirmed = last["offset"]
        return len(items)


class MailboxReader(threading.Thread):
    """Goes from mailbox to mailbox; `finish` reads them all until they are empty."""

    def __init__(self, url: str, subscriptions: Iterable[str], pause_seconds: float) -> None:
        super().__init__(name="mailbox-reader", daemon=True)
        self.mailboxes = [Mailbox(subscription) for subscription in subscriptions]
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def run(self) -> None:
        try:
            while True:
                for mailbox in self.mailboxes:
                    if self._stopping.wait(self._pause_seconds):
                        return
                    self._try(mailbox)
        except BaseException as exc:
            self._error = exc

    def _try(self, mailbox: Mailbox) -> None:
        try:
            mailbox.read(self._http)
        except httpx.TransportError:
            self._stopping.wait(0.2)  # the site is away
        except httpx.HTTPStatusError as exc:
            if exc.response.status_code != 503:
                raise

    def finish(self) -> None:
        """Call it when the site is well, with everything delivered."""
        self.stop()
        if self._error is not None:
            raise self._error
        for mailbox in self.mailboxes:
            while mailbox.read(self._http):
                pass

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def close(self) -> None:
        self.stop()
        self._http.close()
