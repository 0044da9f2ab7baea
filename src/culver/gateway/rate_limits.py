"""Limits on how fast one client may send: token buckets, with the time passed in, and the limit of a setting."""

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

from culver.config import GatewaySettings
from culver.errors import RateLimited


@dataclass(slots=True)
class _Bucket:
    tokens: float
    updated: float


class TokenBuckets:
    """One bucket per key, refilled at `rate` per second up to one second's worth.

    A bucket that is not empty grants any amount and may go into debt, so that a batch larger than the bucket passes
    and is paid for afterwards. Beyond `max_buckets`, the least recently used one is dropped, and comes back full. A
    rate of 0 grants everything.
    """

    def __init__(self, rate: float, max_buckets: int = 65_536) -> None:
        self._rate = rate
        self._burst = max(rate, 1.0)
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str, amount: float, now: float) -> float:
        """Take `amount` and return 0, or take nothing and return the seconds to wait. `now` never goes backwards."""
        if not self._rate:
            return 0.0
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._burst, now)
            if len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.tokens += (now - bucket.updated) * self._rate
            if bucket.tokens > self._burst:
                bucket.tokens = self._burst
            bucket.updated = now
        if bucket.tokens < 1.0 and bucket.tokens < amount:
            return (min(amount, 1.0) - bucket.tokens) / self._rate
        bucket.tokens -= amount
        return 0.0

    def give_back(self, key: str, amount: float) -> None:
        """Undo a `take` of just now."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.tokens += amount


class RateLimit:
    """The limit that `setting` puts on what each client sends."""

    def __init__(self, settings: GatewaySettings, setting: str) -> None:
        self._setting = setting
        self._limit = getattr(settings, setting)
        self._buckets = TokenBuckets(self._limit)

    def grant(self, client: str, count: int = 1) -> bool:
        """Count so much, or return False and count nothing where it would have to wait."""
        return not self._buckets.take(client, count, time.monotonic())

    def give_back(self, client: str, count: int = 1) -> None:
        """Undo a `grant` of just now."""
        self._buckets.give_back(client, count)

    async def wait(self, client: str, count: int = 1, longest_seconds: float = math.inf) -> None:
        """Count so much, once that is allowed. Raises RateLimited where it takes longer than `longest_seconds`."""
        while seconds := self._buckets.take(client, count, time.monotonic()):
            if seconds > longest_seconds:
                what = self._setting.replace("_", " ")
                raise RateLimited(
                    f"this client may send {self._limit} {what}; wait {seconds:.3f} seconds",
                    field=self._setting,
                    limit=self._limit,
                    retry_after_seconds=seconds,
                )
            await asyncio.sleep(seconds)


def address_key(client: str | None) -> str:
    """The key of one client: its IPv4 address, or the /64 network that one IPv6 customer gets."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return client
