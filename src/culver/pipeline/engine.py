"""What an engine does: it follows the head through the log and hands every range to the sink, once, in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa

from culver.config import PipelineSettings
from culver.log import PublicationLog
from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.engine_totals import EngineObservation
from culver.pipeline.head import Head
from culver.pipeline.notifications import NotificationSink
from culver.pipeline.site_files import SiteFiles

Progress = Callable[[str], None]
"""Told in a few words how far a long start-up has come."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Everything that an engine is made of. With `elastic`, slices come and go while it runs."""

    settings: PipelineSettings
    files: SiteFiles
    log: PublicationLog
    sink: NotificationSink
    head: Head
    progress: Progress
    elastic: bool = False


class Engine(Protocol):
    """Owned by the event loop's thread. Calls the sink on that thread too, in order of offset.

    An engine tries a range that fails again, with growing pauses, until it works: the events are in the log. A new
    engine continues at the frontier of its first head, so that nothing is skipped.
    """

    name: ClassVar[str]
    writes_files: ClassVar[bool]
    """Whether results are in notification files, which further gateways can read, when the sink gets them."""

    def __init__(self, setup: EngineSetup) -> None: ...

    @staticmethod
    def parallelism(settings: PipelineSettings) -> int:
        """How many tasks it runs at once."""

    @property
    def ready(self) -> bool:
        """Whether events flow."""

    @property
    def state(self) -> str:
        """A few words for the status page: starting, running, stopped, or the trouble."""

    def observe(self) -> EngineObservation:
        """Tell what it has done since it was made, and what waits in it. Never blocks."""

    async def start(self) -> None:
        """Begin; returns before the engine is ready."""

    def foresee(self, start: int, batches: Sequence[pa.RecordBatch]) -> None:
        """A commit has begun: if it succeeds, these events will be in the log from `start` on. A commit of many
        events passes none. An engine may match them ahead, but hands nothing on before the head has passed them.
        Never blocks for long, and never raises."""

    def follow(self, head: Head) -> None:
        """The head has moved. Never blocks, and may come before `start` and after `stop`."""

    def tell(self, load: LoadReport) -> None:
        """Give later batches the recent load of the sets and the number of registrations. Never blocks for long."""

    async def stop(self) -> None:
        """Finish the current range and release everything, within seconds. Leaves nothing running."""
