"""The options of the source and the sink `culver`, checked before a job starts."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from culver.errors import InvalidConfiguration, did_you_mean

_COMMON = ("url", "filter", "eventsPerPartition", "failOnDataLoss", "waitSeconds")
_STREAM_OPTIONS = (*_COMMON, "subscription", "maxEventsPerBatch")
_HISTORY_OPTIONS = (*_COMMON, "from", "to", "since", "until")
_SINK_OPTIONS = ("url", "publisher", "order", "json", "eventsPerRequest", "waitSeconds")

MOST_BATCH = 2**31 - 2
# The site's rule for publisher ids, with room for the number of a partition.
_PUBLISHER = r"[A-Za-z0-9][A-Za-z0-9._~:/-]{0,179}"


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What both ways to read have in common."""

    url: str
    filter: str | None
    events_per_partition: int
    fail_on_data_loss: bool
    wait_seconds: float


class StreamOptions(SourceOptions, frozen=True, kw_only=True):
    subscription: str | None
    max_events_per_batch: int


class HistoryOptions(SourceOptions, frozen=True, kw_only=True):
    """Offsets or times; None is the beginning, or the end, of the log."""

    start: int | datetime | None
    end: int | datetime | None


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    publisher: str | None
    batch: int
    order: str
    json: str | None
    events_per_request: int
    wait_seconds: float


def sink_options(given: Mapping[str, str], *, is_streaming: bool) -> SinkOptions:
    """Raises InvalidConfiguration with the name of the option as `field`."""
    more = ("checkpointLocation", "queryName") if is_streaming else ("batch",)
    options = _Given(given, (*_SINK_OPTIONS, *more))
    publisher, order = options.text("publisher"), options.text("order") or "input"
    if publisher is not None and not re.fullmatch(_PUBLISHER, publisher):
        raise _wrong(
            "publisher",
            "must be 1 to 180 letters, digits and . _ ~ : / -, and begin with a letter or digit, "
            f"not {publisher[:200]!r}",
        )
    if order not in ("input", "sorted"):
        raise _wrong("order", f"must be input or sorted, not {order!r}")
    batch = options.text("batch")
    if batch is not None and publisher is None:
        raise _wrong("batch", "needs the option publisher: without it, each job is a publisher of its own")
    if batch is not None and not (batch.isascii() and batch.isdigit() and int(batch) <= MOST_BATCH):
        raise _wrong("batch", f"must be a whole number from 0 to {MOST_BATCH}, not {batch!r}")
    return SinkOptions(
        url=_url(options),
        publisher=publisher,
        batch=int(batch or 0),
        order=order,
        json=options.text("json"),
        events_per_request=options.count("eventsPerRequest", 2_000, 10_000),
        wait_seconds=float(options.count("waitSeconds", 120, 86_400, least=0)),
    )


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Raises InvalidConfiguration with the name of the option as `field`."""
    options = _Given(given, _STREAM_OPTIONS)
    subscription, filter_text = options.text("subscription"), options.text("filter")
    common = _common(options, per_partition=10_000, fail_on_data_loss=subscription is not None)
    if (subscription is None) == (filter_text is None):
        raise _wrong("subscription", "give either subscription (durable) or filter (live)")
    return StreamOptions(
        **common,
        subscription=subscription,
        max_events_per_batch=options.count("maxEventsPerBatch", 100_000, 1_000_000),
    )


def history_options(given: Mapping[str, str]) -> HistoryOptions:
    """Raises InvalidConfiguration with the name of the option as `field`."""
    options = _Given(given, _HISTORY_OPTIONS)
    return HistoryOptions(
        **_common(options, per_partition=50_000, fail_on_data_loss=True),
        start=options.position("from", "since"),
        end=options.position("to", "until"),
    )


def _common(options: "_Given", *, per_partition: int, fail_on_data_loss: bool) -> dict[str, Any]:
    return {
        "url": _url(options),
        "filter": options.text("filter"),
        "events_per_partition": options.count("eventsPerPartition", per_partition, 1_000_000),
        "fail_on_data_loss": options.truth("failOnDataLoss", fail_on_data_loss),
        "wait_seconds": float(options.count("waitSeconds", 120, 86_400, least=0)),
    }


def _url(options: "_Given") -> str:
    url = options.text("url")
    if url is None:
        raise _wrong("url", "the address of the site is missing, such as http://127.0.0.1:8080")
    return url


class _Given:
    """Spark ignores the case of options, and hands all of them over as text."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower() for name in known}
        for name in self._given:
            if name not in names and name != "path":
                raise _wrong(name, f"there is no such option; {did_you_mean(name, known)}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def count(self, name: str, default: int, most: int, least: int = 1) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise _wrong(name, f"must be a whole number from {least} to {most}, not {text!r}")
        return int(text)

    def truth(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise _wrong(name, f"must be true or false, not {text!r}")
        return text.lower() == "true"

    def position(self, offset: str, time: str) -> int | datetime | None:
        by_offset, by_time = self.text(offset), self.text(time)
        if by_offset is not None and by_time is not None:
            raise _wrong(time, f"give {offset} (an offset) or {time} (a time), not both")
        if by_offset is not None:
            if not (by_offset.isascii() and by_offset.isdigit() and len(by_offset) < 19):
                raise _wrong(offset, f"must be an offset, 0 or more, not {by_offset!r}")
            return int(by_offset)
        if by_time is None:
            return None
        try:
            moment = datetime.fromisoformat(by_time)
        except ValueError:
            raise _wrong(time, f"must be a time such as 2026-01-05T09:30:00Z, not {by_time!r}") from None
        if moment.tzinfo is None:
            raise _wrong(time, f"{by_time!r} names no moment: end it with Z or with +hh:mm")
        return moment


def _wrong(option: str, what: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"option {option}: {what}", field=option)
