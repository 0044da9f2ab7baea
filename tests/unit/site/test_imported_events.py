"""Events of other sites get their origin, go to the log in order, and fail as a whole."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from culver.config import EventSettings
from culver.errors import StorageFull
from culver.log import CommitReceipt
from culver.model import Event, Origin
from culver.overlay import Append
from culver.site.wide_area.imported_events import ImportedEvents
from support.gateway import run
from support.until import settled, until

LYON = "lyon~0123456789abcdef"


class FakeCommitter:
    """A log and its committer; publications wait until `answers` has one for them."""

    def __init__(self) -> None:
        self.next_offset = 100
        self.published: list[list[Event]] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.pending_events = 0

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        self.published.append(list(events))
        return asyncio.ensure_future(self._answer(len(events)))

    async def _answer(self, count: int) -> CommitReceipt:
        error = await self.answers.get()
        if error is not None:
            raise error
        first, self.next_offset = self.next_offset, self.next_offset + count
        return CommitReceipt(first, self.next_offset)


class Heard:
    def __init__(self, settings: EventSettings | None = None) -> None:
        self.log = FakeCommitter()
        self.appended: list[tuple[str, int, bool]] = []
        self.failed: list[str] = []
        self.imported = ImportedEvents(
            self.log,  # type: ignore[arg-type]
            self.log,  # type: ignore[arg-type]
            settings or EventSettings(),
            lambda *what: self.appended.append(what),
            self.failed.append,
        )


def append(end: int, *events: tuple[int, bytes]) -> Append:
    return Append(LYON, end, events)


def test_events_are_parsed_and_have_their_origin() -> None:
    async def scenario() -> None:
        heard = Heard()
        cloud = b'{"specversion":"1.0","id":"1","source":"/x","type":"t","data":{"a":2}}'
        heard.imported.append(append(9, (5, b'{"a":1}'), (8, cloud)))
        await until(lambda: heard.log.published)
        (plain, event) = heard.log.published[0]
        assert (plain.data["a"], plain.origin) == (1, Origin(LYON, 5))
        assert (event.context["type"], event.data["a"], event.origin) == ("t", 2, Origin(LYON, 8))
        # Until the answer comes, the events may be in the log and nobody knows.
        assert (heard.appended, heard.imported.floor()) == ([], 100)
        heard.log.next_offset = 105
        heard.log.answers.put_nowait(None)
        await until(lambda: heard.appended == [(LYON, 9, False)])
        assert heard.imported.floor() == 107
        assert heard.imported.received == {LYON: 2}

    run(scenario())


def test_refused_publication_comes_again_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        heard = Heard()
        for _ in range(2):
            heard.log.answers.put_nowait(StorageFull("the disk is full"))
            heard.imported.append(append(6, (5, b'{"a":1}')))
        await until(lambda: heard.failed == [LYON, LYON])
        assert (heard.appended, heard.imported.floor(), heard.imported.received) == ([], 100, {})
        assert len([each for each in caplog.records if "disk is full" in each.message]) == 1

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_event_beyond_the_limits_is_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        heard = Heard(EventSettings(max_attributes=1))
        heard.log.answers.put_nowait(None)
        heard.imported.append(append(8, (5, b'{"a":1,"b":2}'), (6, b'{"a":1}'), (7, b"nothing")))
        await until(lambda: heard.appended == [(LYON, 8, True)])
        assert [event.origin for event in heard.log.published[0]] == [Origin(LYON, 6)]
        # With nothing left to publish, the stream goes on all the same.
        heard.imported.append(append(9, (8, b"[]")))
        await until(lambda: len(heard.appended) == 2)
        assert (heard.imported.skipped, len(heard.log.published)) == ({LYON: 3}, 1)
        assert next(each.message for each in caplog.records if "skipped" in each.message).startswith(
            f"event 5 of {LYON} is skipped"
        )

    run(scenario())


def test_many_bytes_are_parsed_beside_the_loop() -> None:
    async def scenario() -> None:
        heard = Heard()
        heard.log.answers.put_nowait(None)
        heard.imported.append(append(1_000, *((n, b'{"a":"%s"}' % (b"x" * 200)) for n in range(1_000))))
        await until(lambda: heard.appended)
        assert len(heard.log.published[0]) == 1_000

    run(scenario())


def test_publication_that_is_cut_off_holds_the_floor() -> None:
    async def scenario() -> None:
        heard = Heard()
        heard.imported.append(append(6, (5, b'{"a":1}')))
        await until(lambda: heard.log.published)
        await heard.imported.close()
        heard.log.next_offset = 200
        await settled()
        assert (heard.appended, heard.failed, heard.imported.floor()) == ([], [], 100)

    run(scenario())
