"""What an engine is: it follows the head through the log and hands every range to the sink, once, in order."""

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from culver.pipeline.engine_totals import EngineObservation
from culver.pipeline.head import Head
from culver.pipeline.set_loads import LoadReport

Progress = Callable[[str], None]
"""Told in a few words what a long start-up is doing."""


class Engine(Protocol):
    """Owned by the event loop's thread. The sink is called on that thread too, in order of offset.

    A range that fails is tried again, with growing pauses, until it works: the events are in the log. A new
    engine goes on at the sink's frontier, so that nothing is skipped.
    """

    @property
    def name(self) -> str: ...

    @property
    def ready(self) -> bool:
        """Events flow."""

    @property
    def state(self) -> str:
        """A few words for the status page: starting, running, or what is wrong."""

    def observe(self) -> EngineObservation:
        """What it has done since it was made, and what waits in it. Never blocks."""

    async def start(self) -> None:
        """Begin; returns before the engine is ready."""

    def foresee(self, start: int, batches: Sequence[pa.RecordBatch]) -> None:
        """A commit has begun: if the disk takes them, these events will be in the log from `start` on. Where they are
        many, none are told. Whatever is worked out for them ahead counts for nothing until the head has passed
        them. Never blocks for long, and never raises."""

    def follow(self, head: Head) -> None:
        """The head has moved. Never blocks."""

    def tell(self, load: LoadReport) -> None:
        """What batches from now on are to go by: how the sets did lately, and how many registrations there are. Never
        blocks for long."""

    async def stop(self) -> None:
        """Finish the range at hand and let everything go, within seconds. Nothing is left running."""
