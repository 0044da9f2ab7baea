"""A registration: one filter that a subscription has or had."""

from dataclasses import dataclass

from culver.model import COLUMNAR


@dataclass(frozen=True, slots=True)
class Registration:
    """In effect for log positions from `since` on, and before `until` unless that is None. `removed` tells the end of
    the subscription from a replacement. `version` is the registry version that added it, and `scheme` names the
    filter that matches it."""

    number: int
    id: str
    filter: str
    durable: bool
    since: int
    until: int | None
    removed: bool
    version: int
    created_at_us: int
    expires_at_us: int | None
    mailbox_count: int | None
    mailbox_bytes: int | None
    mailbox_age_seconds: int | None
    scheme: str = COLUMNAR
