"""The inline engine: runs the operators in the site's own process, for milliseconds of latency.

It matches a range of few events on the event loop itself. That takes a fraction of a millisecond; handing the range
to a thread and back takes longer, because two threads compete for the GIL. Larger ranges go to a thread. It matches a
few events while the disk makes them durable, and keeps the result to itself until they are.

It hands its results on in memory and writes nothing: the log has the events, and the next start matches those again
whose notifications delivery has not written when the process ends.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter

import pyarrow as pa

from culver.config import PipelineSettings
from culver.pipeline.batch_plan import BatchPlan, LoadReport
from culver.pipeline.engine import EngineSetup
from culver.pipeline.engine_totals import EngineObservation, EngineTally
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications
from culver.pipeline.range_processor import RangeProcessor, warm_up_operators

logger = logging.getLogger(__name__)

# Up to so many events are matched on the loop.
_SMALL_RANGE = 64
_LONGEST_PAUSE_SECONDS = 5.0


class InlineEngine:
    name = "inline"
    writes_files = False

    def __init__(self, setup: EngineSetup) -> None:
        self._files = setup.files
        self._log = setup.log
        self._sink = setup.sink
        self._progress = setup.progress
        self._batch_events = setup.settings.batch_events
        self._forwarding = setup.settings.forwarding
        self._head = setup.head
        self._position = setup.head.frontier
        self._tally = EngineTally()
        self._load = LoadReport()
        self._changed = asyncio.Event()
        self._changed.set()
        self._stopping = False
        self._ready = False
        self._trouble: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._processor: RangeProcessor | None = None
        # The result for foreseen events, and how many seconds it took.
        self._ahead: tuple[Notifications, float] | None = None

    @staticmethod
    def parallelism(settings: PipelineSettings) -> int:
        return 1

    @property
    def ready(self) -> bool:
        return self._ready and self._trouble is None

    @property
    def state(self) -> str:
        if self._stopping:
            return "stopped"
        return self._trouble or ("running" if self._ready else "starting")

    def observe(self) -> EngineObservation:
        return self._tally.observe(self._position)

    async def start(self) -> None:
        self._progress("loading the matching kernels")
        self._task = asyncio.create_task(self._run())

    def foresee(self, start: int, batches: Sequence[pa.RecordBatch]) -> None:
        self._ahead = None  # the last commit may have failed, and this one begins at the same offset
        processor = self._processor
        if not batches or processor is None or not start == self._head.log_end == self._position:
            return
        began = perf_counter()
        try:
            found = processor.match(start, batches, self._plan())
        except Exception:
            return  # `_run` tries it again, and reports the error
        self._ahead = found, perf_counter() - began

    def follow(self, head: Head) -> None:
        before, self._head = self._head, head
        if head.log_end > before.log_end and not self._hand_on_foreseen():
            self._changed.set()

    def tell(self, load: LoadReport) -> None:
        self._load = load

    async def stop(self) -> None:
        self._stopping = True
        self._changed.set()
        if self._task is not None:
            await self._task
        self._ready = False

    async def _run(self) -> None:
        pause_seconds = 0.1
        while not self._stopping:
            try:
                if self._processor is None:
                    await asyncio.to_thread(warm_up_operators)
                    self._processor = RangeProcessor(self._files.index, self._log, lambda: self._head)
                    self._ready = True
                elif self._head.log_end <= self._position:
                    self._changed.clear()
                    await self._changed.wait()
                else:
                    await self._process_next(self._processor)
                self._trouble, pause_seconds = None, 0.1
            except Exception as exc:
                self._trouble = f"cannot match events from {self._position} on: {exc}"
                logger.exception("the inline engine tries again in %.1f s", pause_seconds)
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
        if self._processor is not None:
            self._processor.close()

    async def _process_next(self, processor: RangeProcessor) -> None:
        start = self._position
        began = perf_counter()
        end = min(self._head.log_end, start + self._batch_events)
        small = end - start <= _SMALL_RANGE
        blocks = processor.process(start, end, self._plan())
        while (
            block := next(blocks, None) if small else await asyncio.to_thread(next, blocks, None)
        ) is not None:
            self._hand_on(block)
        self._position = end
        self._tally.add_batch(end - start, perf_counter() - began)
        if small:
            await asyncio.sleep(0)  # other tasks take their turn

    def _hand_on_foreseen(self) -> bool:
        """Hand the result for foreseen events on now that they are in the log. False if there is none, or if it is
        stale: another index version may have more registrations."""
        if self._ahead is None or self._head.log_end <= self._ahead[0].start:
            return False
        (block, seconds), self._ahead = self._ahead, None
        now = (self._position, self._head.log_end, self._head.index_version)
        if (block.start, block.end, block.index_version) != now:
            return False
        began = perf_counter()
        try:
            self._hand_on(block)
        except Exception:
            return False  # `_run` tries it again, and reports the error
        self._tally.add_batch(block.end - block.start, seconds + perf_counter() - began)
        return True

    def _hand_on(self, block: Notifications) -> None:
        self._sink.accept(block, stored=False)
        self._position = block.end
        self._tally.add(block.work)

    def _plan(self) -> BatchPlan:
        head = self._head
        return BatchPlan(head.index_version, head.slices, load=self._load, forwarding=self._forwarding)
