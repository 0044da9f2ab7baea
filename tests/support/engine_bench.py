"""An engine with a log, an index and a sink of its own."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from culver.config import PipelineSettings
from culver.log import DamagedEvents, PublicationLog
from culver.matching import Entry, IndexWriter
from culver.model.columns.event_batch import encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.pipeline import Engine, EngineSetup
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications
from culver.pipeline.site_files import SiteFiles
from culver.plugins import engine_named
from support.notifications import offsets_of
from support.until import until

START_SECONDS = 120.0


def events(values: list[int]) -> list[pa.RecordBatch]:
    return encode([Event({}, {"value": value}, b"{}") for value in values], 0)


class EngineBench:
    """Registration n asks for events of at least n. As a sink it keeps which registrations each offset has reached;
    while `refusing`, it raises."""

    def __init__(self, name: str, directory: Path, log: PublicationLog) -> None:
        self.files = SiteFiles(directory)
        self.files.notifications.mkdir(parents=True, exist_ok=True)
        self.settings = PipelineSettings(engine=name, spark_master="local[1]", batch_events=1_000)
        self.log = log
        self.reached: dict[int, set[int]] = {}
        self.damage: list[DamagedEvents] = []
        self.end = 0
        self.refusing = False
        self.refused = 0
        self.progress: list[str] = []
        self.registered: list[int] = []
        self.writer = IndexWriter(self.files.index)
        self.head = Head(0, 0, 0)
        self.engine: Engine = self.new_engine()

    def new_engine(self) -> Engine:
        setup = EngineSetup(self.settings, self.files, self.log, self, self.head, self.progress.append)
        self.engine = engine_named(self.settings.engine)(setup)
        return self.engine

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        assert stored == self.engine.writes_files
        assert notifications.start == self.end, "ranges come in order, and each comes once"
        if self.refusing:
            self.refused += 1
            raise OSError("the sink refuses")
        self.end = notifications.end
        self.damage += notifications.damage
        for offset in range(notifications.start, notifications.end):
            self.reached[offset] = set()
        for number in notifications.numbers.tolist():
            for offset in offsets_of(notifications, number):
                self.reached[offset].add(number)
        self.move()

    def register(self, *numbers: int) -> None:
        """From the head on."""
        entries = [Entry(n, parse(f"value >= {n}"), since=self.head.log_end) for n in numbers]
        self.writer.publish(self.writer.registry_version + 1, entries, [], 0)
        self.registered += numbers
        self.move(index_version=self.writer.version)

    def foresee(self, values: list[int]) -> list[pa.RecordBatch]:
        batches = events(values)
        self.engine.foresee(self.log.next_offset, batches)
        return batches

    def commit(self, batches: list[pa.RecordBatch]) -> int:
        """Returns the first offset."""
        first = self.log.append(batches)
        self.move(log_end=self.log.next_offset)
        return first

    def move(self, **changes: Any) -> None:
        self.head = self.head._replace(frontier=self.end, **changes)
        self.engine.follow(self.head)

    async def done(self) -> None:
        """The engine runs and has handed on everything below the head."""
        await until(lambda: self.engine.ready and self.end >= self.head.log_end, START_SECONDS)
