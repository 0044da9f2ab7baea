"""One filter that a subscription has or had."""

from dataclasses import dataclass

from culver.model import COLUMNAR


@dataclass(frozen=True, slots=True)
class Registration:
    number: int
    id: str
    filter: str
    durable: bool
    since: int
    until: int | None  # None: in effect; otherwise replaced or removed from that position on
    removed: bool  # True: the subscription is gone, not merely replaced
    version: int  # the registry version that added it
    created_at_us: int
    expires_at_us: int | None
    mailbox_count: int | None
    mailbox_bytes: int | None
    mailbox_age_seconds: int | None
    scheme: str = COLUMNAR  # the name of the filter that matches it
