"""What a server bears, learnt while it works, and the load ratio that follows (Dynamoth, equation 1).

The paper measures its machines once and sets all thresholds by hand. Here a server begins with a configured or a
default bandwidth. Signs of saturation lower the estimate to the throughput at which they were seen, healthy
throughput above the estimate raises it, and in the long run it returns to where it began, so that no lesson lasts
for ever. All thresholds are ratios of what is allowed.
"""

import math

import msgspec

from culver.channels.core.channel_load import ServerLoad

#: 100 MB/s: a network of 1 Gbit/s, less what its frames take.
DEFAULT_BANDWIDTH = 100e6

#: Redis handles commands in one thread; above this part of a core its latency rises steeply.
ALLOWED_CPU = 0.9

#: Signs must be seen this long before they count, and health before it does.
_SIGN_SECONDS = 2.0
_HEALTH_SECONDS = 3.0

_NEAR_ONE_CORE = 0.95

#: Probes of a server that does little are slow for other reasons.
_SLOW_PROBE_SECONDS = 0.05
_BUSY_RATIO = 0.25

#: Buffers that hold more than this time's output are more than a burst.
_FULL_BUFFER_SECONDS = 0.1
_FULL_BUFFER_BYTES = 64 << 10

#: Buffers of a few clients grow because these read slowly; those of many because the server is short of bandwidth.
_MANY_CLIENTS_SHARE = 0.1
_NEAR_THE_ESTIMATE = 0.5

#: No lesson takes an estimate below this part of where it began.
_LOWEST_SHARE = 1 / 16

#: A lesson fades to a half in this time.
_HALF_LIFE_SECONDS = 600.0


class LoadThresholds(msgspec.Struct, frozen=True):
    """Load ratios: above ``high`` a server is relieved, down to ``safe``; below ``low`` on average, one is spared."""

    high: float = 0.9
    safe: float = 0.75
    low: float = 0.35

    def __post_init__(self) -> None:
        if not 0 < self.low < self.safe < self.high:
            raise ValueError(f"thresholds must rise from low to safe to high, not {self}")


class ServerCapacity:
    """The allowed outgoing bytes per second and the allowed CPU of one server. Time never goes back."""

    def __init__(
        self, bandwidth: float = DEFAULT_BANDWIDTH, cpu: float = ALLOWED_CPU, *, is_limit: bool = False
    ) -> None:
        """``is_limit`` says that the bandwidth was given as a limit: health above it does not raise it. Bytes wait in
        the kernel for seconds before Redis notices a narrow network."""
        if bandwidth <= 0 or cpu <= 0:
            raise ValueError("a server's bandwidth and CPU must be positive")
        self._first_bytes = bandwidth
        self._is_limit = is_limit
        self._first_cpu = cpu
        self.allowed_bytes = bandwidth
        self.allowed_cpu = cpu
        self._observed_at: float | None = None
        self._signs_since: float | None = None
        self._healthy_since: float | None = None
        #: The sign of saturation that is seen at the moment, in words.
        self.saturation: str | None = None

    def load_ratio(self, load: ServerLoad) -> float:
        """Equation 1, with CPU: the larger of outgoing bytes and CPU, each against what is allowed."""
        return self.ratio(load.outgoing_bytes, load.cpu)

    def ratio(self, outgoing_bytes: float, cpu: float) -> float:
        return max(outgoing_bytes / self.allowed_bytes, cpu / self.allowed_cpu)

    def observe(self, load: ServerLoad, now: float) -> None:
        """Learns from the load of the last seconds. Call it once for every report."""
        self._fade(now)
        buffers = self._buffers_grow(load)
        latency = load.probe_seconds > _SLOW_PROBE_SECONDS and self.load_ratio(load) >= _BUSY_RATIO
        near_one_core = load.cpu >= _NEAR_ONE_CORE
        self.saturation = _describe(load, buffers=buffers, latency=latency, near_one_core=near_one_core)
        if self.saturation is None:
            self._signs_since = None
            if self._healthy_since is None:
                self._healthy_since = now
            if now - self._healthy_since >= _HEALTH_SECONDS:
                most = self._first_bytes if self._is_limit else math.inf
                self.allowed_bytes = max(self.allowed_bytes, min(load.outgoing_bytes, most))
                self.allowed_cpu = max(self.allowed_cpu, load.cpu)
            return
        self._healthy_since = None
        if self._signs_since is None:
            self._signs_since = now
        if now - self._signs_since < _SIGN_SECONDS:
            return
        # A full core by itself teaches nothing about bytes: the ratio of CPU is above 1 then.
        by_bytes = load.outgoing_bytes / self.allowed_bytes >= load.cpu / self.allowed_cpu
        if buffers or (latency and by_bytes):
            floor = self._first_bytes * _LOWEST_SHARE
            self.allowed_bytes = min(self.allowed_bytes, max(load.outgoing_bytes, floor))
        elif latency:
            self.allowed_cpu = min(self.allowed_cpu, max(load.cpu, self._first_cpu * _LOWEST_SHARE))

    def _buffers_grow(self, load: ServerLoad) -> bool:
        full = max(_FULL_BUFFER_BYTES, _FULL_BUFFER_SECONDS * load.outgoing_bytes)
        if load.output_buffer_bytes < full or load.buffer_growth <= 0:
            return False
        many = load.waiting_clients >= max(2.0, _MANY_CLIENTS_SHARE * load.clients)
        return many or load.outgoing_bytes >= _NEAR_THE_ESTIMATE * self.allowed_bytes

    def _fade(self, now: float) -> None:
        if self._observed_at is not None and now > self._observed_at:
            kept = math.exp2((self._observed_at - now) / _HALF_LIFE_SECONDS)
            self.allowed_bytes = self._first_bytes + (self.allowed_bytes - self._first_bytes) * kept
            self.allowed_cpu = self._first_cpu + (self.allowed_cpu - self._first_cpu) * kept
        self._observed_at = now


def _describe(load: ServerLoad, *, buffers: bool, latency: bool, near_one_core: bool) -> str | None:
    if near_one_core:
        return f"CPU at {load.cpu:.0%} of a core"
    if buffers:
        return f"output buffers of {load.output_buffer_bytes / 1e6:.1f} MB grow"
    if latency:
        return f"a probe took {load.probe_seconds * 1e3:.0f} ms"
    return None
